package spec

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"monotron/internal/elementary"
)

// Kinds of RoPE rules, as rope_parameters of config.json files spell them.
const (
	RopeDefault      = "default"
	RopeLinear       = "linear"
	RopeLlama3       = "llama3"
	RopeYarn         = "yarn"
	RopeLong         = "longrope"
	RopeDynamic      = "dynamic"
	RopeProportional = "proportional"
)

// RopeRule says how RoPE's frequencies follow from its base. Its JSON is that of
// rope_parameters in Hugging Face's config.json; absent keys have that library's defaults.
type RopeRule struct {
	Type            string    `json:"rope_type"`
	Theta           float64   `json:"rope_theta,omitempty"` // base; 0: the model's RotaryBase
	Factor          *float64  `json:"factor,omitempty"`
	LowFreq         *float64  `json:"low_freq_factor,omitempty"`
	HighFreq        *float64  `json:"high_freq_factor,omitempty"`
	OriginalMax     int       `json:"original_max_position_embeddings,omitempty"`
	AttentionFactor *float64  `json:"attention_factor,omitempty"`
	BetaFast        *float64  `json:"beta_fast,omitempty"`
	BetaSlow        *float64  `json:"beta_slow,omitempty"`
	Truncate        *bool     `json:"truncate,omitempty"`
	MScale          *float64  `json:"mscale,omitempty"`
	MScaleAllDim    *float64  `json:"mscale_all_dim,omitempty"`
	Alpha           *float64  `json:"alpha,omitempty"` // Hunyuan's dynamic: base·alpha^(d/(d−2)) at any length
	ShortFactor     []float64 `json:"short_factor,omitempty"`
	LongFactor      []float64 `json:"long_factor,omitempty"`
	Partial         *float64  `json:"partial_rotary_factor,omitempty"` // of proportional alone
}

// ParseRopeRule reads a rule; d is how many channels it turns (of proportional: the width of
// a head). The error says what is missing or wrong.
func ParseRopeRule(text string, d int) (*RopeRule, error) {
	r := &RopeRule{}
	dec := json.NewDecoder(bytes.NewReader([]byte(text)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(r); err != nil {
		return nil, fmt.Errorf("the text is not a JSON object with the keys of a rule: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if dec.More() {
		return nil, fmt.Errorf("text follows the JSON object")
	}
	return r, r.check(d)
}

// Text is the rule's JSON, which ParseRopeRule reads.
func (r *RopeRule) Text() string {
	text, _ := json.Marshal(r) // numbers are finite: check
	return string(text)
}

func (r *RopeRule) check(d int) error {
	// Numbers of any rule.
	for name, v := range map[string]*float64{"factor": r.Factor, "low_freq_factor": r.LowFreq, "high_freq_factor": r.HighFreq, "attention_factor": r.AttentionFactor,
		"beta_fast": r.BetaFast, "beta_slow": r.BetaSlow, "alpha": r.Alpha, "partial_rotary_factor": r.Partial} {
		if v != nil && !(*v > 0 && *v < 1e12) {
			return fmt.Errorf("%s is %v; it must be above 0 and below 1e12", name, *v)
		}
	}
	if r.Theta < 0 || math.IsInf(r.Theta, 0) || math.IsNaN(r.Theta) {
		return fmt.Errorf("rope_theta must be a finite number of at least 0, not %v", r.Theta)
	}
	if r.OriginalMax < 0 {
		return fmt.Errorf("original_max_position_embeddings must be at least 0, not %d", r.OriginalMax)
	}
	// What each rule cannot do without.
	missing := ""
	need := func(is bool, name string) {
		if !is && missing == "" {
			missing = name
		}
	}
	switch r.Type {
	case RopeDefault:
	case RopeLinear:
		need(r.Factor != nil, "factor")
	case RopeLlama3:
		need(r.Factor != nil, "factor")
		need(r.LowFreq != nil, "low_freq_factor")
		need(r.HighFreq != nil, "high_freq_factor")
		need(r.OriginalMax > 0, "original_max_position_embeddings")
		if missing == "" && *r.HighFreq <= *r.LowFreq {
			return fmt.Errorf("high_freq_factor %v is not above low_freq_factor %v", *r.HighFreq, *r.LowFreq)
		}
	case RopeYarn:
		need(r.Factor != nil, "factor")
		need(r.OriginalMax > 0, "original_max_position_embeddings")
	case RopeLong:
		need(r.OriginalMax > 1, "original_max_position_embeddings")
		for i, list := range [][]float64{r.ShortFactor, r.LongFactor} {
			name := [...]string{"short_factor", "long_factor"}[i]
			if len(list) != d/2 {
				return fmt.Errorf("%s has %d numbers, but %d rotating channels need %d", name, len(list), d, d/2)
			}
			for _, v := range list {
				if !(v > 0 && v < 1e12) {
					return fmt.Errorf("%s has %v; its numbers must be above 0 and below 1e12", name, v)
				}
			}
		}
	case RopeDynamic:
		need(r.Factor != nil || r.Alpha != nil, "factor")
		need(d > 2, "more than two rotating channels")
	case RopeProportional:
		need(r.Partial != nil && *r.Partial <= 1, "partial_rotary_factor")
	default:
		return fmt.Errorf("rope_type %q is not supported; choose default, linear, llama3, yarn, longrope, dynamic or proportional", r.Type)
	}
	if missing != "" {
		return fmt.Errorf("rope_type %s needs %s", r.Type, missing)
	}
	return nil
}

// RopeTable is the frequency of each pair of channels and the factor of cos and sin.
type RopeTable struct {
	Frequencies []float64
	Factor      float64
}

// Table is the rule's table for d rotating channels in sequences of `length` positions of a
// model that is meant for `most` positions: dynamic and longrope depend on both.
func (r *RopeRule) Table(base float64, d, length, most int) RopeTable {
	if r.Theta > 0 {
		base = r.Theta
	}
	t := RopeTable{Factor: 1}
	switch r.Type {
	// A base that grows with the length beyond the trained one (NTK).
	case RopeDynamic:
		exponent := float64(d) / float64(d-2)
		if r.Alpha != nil {
			base *= elementary.Pow(*r.Alpha, exponent)
		} else if n := float64(length) / float64(max(1, cmp.Or(r.OriginalMax, most))); n > 1 {
			base *= elementary.Pow(float64(*r.Factor*n)-(*r.Factor-1), exponent)
		}
		t.Frequencies = plainFrequencies(base, d)
	case RopeYarn:
		t.Frequencies, t.Factor = r.yarn(base, d), r.yarnFactor()
	// A list of divisors for short sequences and one for long.
	case RopeLong:
		t.Frequencies = plainFrequencies(base, d)
		factors := r.ShortFactor
		if length > r.OriginalMax {
			factors = r.LongFactor
		}
		for i := range t.Frequencies {
			t.Frequencies[i] /= factors[i]
		}
		t.Factor = r.longFactor(most)
	default:
		t.Frequencies = r.simple(base, d)
	}
	return t
}

// plainFrequencies are base^(−2i/d) for i < d/2.
func plainFrequencies(base float64, d int) []float64 {
	f := make([]float64, d/2)
	for i := range f {
		f[i] = elementary.Pow(base, -2*float64(i)/float64(d))
	}
	return f
}

// simple are the frequencies of rules that change each by itself.
func (r *RopeRule) simple(base float64, d int) []float64 {
	f, factor := plainFrequencies(base, d), 1.0
	if r.Factor != nil {
		factor = *r.Factor
	}
	turning := len(f)
	if r.Type == RopeProportional {
		turning = int(*r.Partial * float64(d) / 2)
	}
	for i := range f {
		switch {
		case r.Type == RopeLlama3:
			f[i] = (&RopeScaling{Factor: factor, LowFreq: *r.LowFreq, HighFreq: *r.HighFreq, OriginalMax: r.OriginalMax}).slow(f[i])
		case i >= turning:
			f[i] = 0
		case r.Type == RopeLinear || r.Type == RopeProportional:
			f[i] /= factor
		}
	}
	return f
}

func or(v *float64, otherwise float64) float64 {
	if v == nil {
		return otherwise
	}
	return *v
}

// yarn divides by Factor the frequencies of pairs that turn less than BetaSlow times in the
// original length, leaves those that turn more than BetaFast times, with a ramp between
// (Peng et al., arXiv 2309.00071).
func (r *RopeRule) yarn(base float64, d int) []float64 {
	pair := func(turns float64) float64 {
		return float64(d) * elementary.Log(float64(r.OriginalMax)/(turns*2*math.Pi)) / (2 * elementary.Log(base))
	}
	low, high := pair(or(r.BetaFast, 32)), pair(or(r.BetaSlow, 1))
	if r.Truncate == nil || *r.Truncate {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = math.Max(low, 0), math.Min(high, float64(d-1))
	if low == high {
		high += 0.001
	}
	f := plainFrequencies(base, d)
	for i := range f {
		ramp := math.Min(1, math.Max(0, (float64(i)-low)/(high-low)))
		f[i] = float64(f[i] / *r.Factor * ramp) + float64(f[i]*(1-ramp))
	}
	return f
}

// yarnMagnitude is by how much YaRN strengthens attention: 0.1·scale·ln(factor) + 1.
func yarnMagnitude(factor, scale float64) float64 {
	if factor <= 1 {
		return 1
	}
	return float64(0.1*scale*elementary.Log(factor)) + 1
}

func (r *RopeRule) yarnFactor() float64 {
	scale := func(m float64) float64 { return yarnMagnitude(*r.Factor, m) }
	switch {
	case r.AttentionFactor != nil:
		return *r.AttentionFactor
	case or(r.MScale, 0) != 0 && or(r.MScaleAllDim, 0) != 0:
		return scale(*r.MScale) / scale(*r.MScaleAllDim)
	}
	return scale(1)
}

func (r *RopeRule) longFactor(most int) float64 {
	if r.AttentionFactor != nil {
		return *r.AttentionFactor
	}
	n := float64(most) / float64(r.OriginalMax)
	if r.Factor != nil {
		n = *r.Factor
	}
	if n <= 1 {
		return 1
	}
	return math.Sqrt(1 + elementary.Log(n)/elementary.Log(float64(r.OriginalMax)))
}

// TakeRopeRule moves RopeRule to the fields that Llama 3's scaling and a linear one have: files of
// other programs are written from these. m has the frequencies that it had.
func (m *Model) TakeRopeRule() {
	r, err := ParseRopeRule(m.RopeRule, m.RotaryDims())
	if m.RopeRule == "" || err != nil || m.Latent != nil {
		return
	}
	switch r.Type {
	case RopeLlama3:
		m.RopeScaling = &RopeScaling{Factor: *r.Factor, LowFreq: *r.LowFreq, HighFreq: *r.HighFreq, OriginalMax: r.OriginalMax}
	case RopeLinear:
		m.RotaryInterpolation = *r.Factor
	default:
		return
	}
	m.RopeRule = ""
	if r.Theta > 0 {
		m.RotaryBase = r.Theta
	}
}

// RopeTable is the table of a layer's rotation, of sequences of `length` positions.
func (m *Model) RopeTable(windowed bool, length int) (RopeTable, error) {
	if m.Latent != nil {
		return RopeTable{m.Latent.frequencies(m.RotaryBase), m.Latent.tableFactor()}, nil
	}
	rule := m.RopeRule
	if windowed && m.WindowRope != "" {
		rule = m.WindowRope
	}
	if rule == "" {
		return RopeTable{m.RopeFrequencies(), 1}, nil
	}
	r, err := ParseRopeRule(rule, m.RotaryDims())
	if err != nil {
		return RopeTable{}, err
	}
	return r.Table(m.RotaryBase, m.RotaryDims(), length, m.Context), nil
}

// WindowedAt reports whether a layer (0-based, global) has the window, or chunks.
func (m *Model) WindowedAt(layer int) bool {
	return (m.WindowLeft >= 0 || m.Chunk > 0) && (m.Windowed == nil || m.Windowed[m.decoderLayer(layer)])
}
