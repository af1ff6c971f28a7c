package hf

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"monotron/megatron/spec"
)

// rope is rope_parameters or rope_scaling: one table, or one for each type of layer.
type rope struct {
	spec.RopeRule
	Theta         *float64
	PartialRotary *float64
	Growth        *float64         // of queries, with the position (Ministral 3)
	byType        map[string]*rope // full_attention, sliding_attention; nil: one table
	types         []string         // of layers, that have tables, the same or not; nil: one table without a type
}

// UnmarshalJSON also reads the form of models whose layer types rotate by tables of their
// own, {"full_attention": {..}, "sliding_attention": {..}}.
func (r *rope) UnmarshalJSON(raw []byte) error {
	var tables map[string]json.RawMessage
	if err := json.Unmarshal(raw, &tables); err != nil || tables == nil {
		return err
	}
	// Tables, if values are objects.
	var types []string
	for name, table := range tables {
		if bytes.HasPrefix(bytes.TrimSpace(table), []byte("{")) {
			types = append(types, name)
		}
	}
	if len(types) == 0 {
		return r.flat(raw)
	}
	slices.Sort(types)
	if len(types) != len(tables) {
		return fmt.Errorf("the rotary parameters have both tables per layer type (%s) and values outside these tables; write the values in the tables only", strings.Join(types, ", "))
	}
	// Equal tables are one.
	all := map[string]*rope{}
	equal := true
	for _, name := range types {
		all[name] = &rope{}
		if err := all[name].flat(tables[name]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		equal = equal && reflect.DeepEqual(all[name], all[types[0]])
	}
	if *r = *all[types[0]]; !equal {
		*r = rope{byType: all}
	}
	r.types = types
	return nil
}

// flat reads one table. A key that nobody here understands would be a rule that is not
// followed: it is an error.
func (r *rope) flat(raw []byte) error {
	var f struct {
		ruleFields
		Type          *string  `json:"rope_type"`
		OldType       *string  `json:"type"`
		Theta         *float64 `json:"rope_theta"`
		PartialRotary *float64 `json:"partial_rotary_factor"`
		// Which channels turn by which coordinate of an image; those of a text are all its position.
		Sections    []int64 `json:"mrope_section"`
		Interleaved *bool   `json:"mrope_interleaved"`

		Growth *float64 `json:"llama_4_scaling_beta"`
		Most   *int64   `json:"max_position_embeddings"` // said a second time by Ministral 3

		Finetuned *bool    `json:"finetuned"`   // how Yarn-Llama-2 was made, which changes nothing
		Attention *float64 `json:"attn_factor"` // vLLM multiplies the attention factor by it
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&f); err != nil {
		return fmt.Errorf("the rotary parameters: %w", err)
	}
	if f.Attention != nil && *f.Attention != 1 {
		return fmt.Errorf("the rotary parameters: attn_factor %v is ignored by transformers, but multiplies the attention factor in vLLM and llama.cpp; remove attn_factor to follow transformers, or write the product of the two factors as attention_factor", *f.Attention)
	}
	r.RopeRule, r.Theta, r.PartialRotary, r.Growth = spec.RopeRule(f.ruleFields), f.Theta, f.PartialRotary, f.Growth
	r.RopeRule.Type = spec.RopeDefault
	for _, kind := range []*string{f.OldType, f.Type} {
		if kind != nil {
			r.RopeRule.Type = *kind
		}
	}
	if r.RopeRule.Type == "su" { // Phi-3's first name of it
		r.RopeRule.Type = spec.RopeLong
	}
	return nil
}

type ruleFields spec.RopeRule

// rotary reads both spellings: rope_parameters (transformers 5) wins over
// rope_theta and rope_scaling.
func (c *reading) rotary(f *fields) {
	m := c.Model
	m.Position = spec.PositionRope
	// The newer spelling wins, also for base and partial factor.
	theta, partial, r := f.RopeTheta, f.PartialRotary, f.RopeScaling
	if p := f.RopeParameters; p != nil {
		r = p
	}
	var window *rope
	if r != nil && r.byType != nil {
		r, window = c.byType(r)
	}
	if r != nil && r.Growth != nil && c.Family != Ministral3 {
		c.fail("llama_4_scaling_beta is not supported in the %s family", c.Family)
	}
	if r != nil && r.Theta != nil {
		theta = r.Theta
	}
	if r != nil && r.PartialRotary != nil {
		partial = r.PartialRotary
	}
	// The table of all layers, or of those without a window.
	m.RotaryBase = c.positive("rope_theta", theta, 10000)
	if m.KVChannels%2 != 0 {
		c.fail("head_dim %d must be even, because RoPE rotates pairs of channels", m.KVChannels)
	}
	if r != nil {
		c.ropeScaling(r, f.OriginalMax)
	}
	// A second table, of layers with a window.
	if window == nil && slices.Contains([]string{Gemma3, Olmo3}, c.Family) { // one table: of full layers
		window = &rope{RopeRule: spec.RopeRule{Type: spec.RopeDefault}, Theta: theta}
		if f.RopeLocalBase != nil {
			window.Theta = f.RopeLocalBase
		}
	}
	if window != nil {
		c.windowRope(window)
	}
	c.partialRotary(c.positive("partial_rotary_factor", partial, 1))
}

// byType are the tables of full and of sliding layers.
func (c *reading) byType(r *rope) (full, sliding *rope) {
	full, sliding = r.byType["full_attention"], r.byType["sliding_attention"]
	if full == nil || sliding == nil || len(r.byType) != 2 {
		c.fail("the rotary parameters have tables for the layer types %s; they must have exactly two tables, full_attention and sliding_attention", strings.Join(r.types, ", "))
	}
	return full, sliding
}

// windowRope sets the table of layers with a window.
func (c *reading) windowRope(r *rope) {
	m, rule := c.Model, r.RopeRule
	rule.Theta = c.positive("rope_theta", r.Theta, 10000)
	if rule.Type == spec.RopeDefault && rule.Theta == m.RotaryBase && m.RopeRule == "" && m.RopeScaling == nil && m.RotaryInterpolation == 0 {
		return // the other layers' table
	}
	if r.PartialRotary != nil && *r.PartialRotary != 1 {
		c.fail("partial_rotary_factor %v for the sliding layers alone is not supported", *r.PartialRotary)
	}
	m.WindowRope = rule.Text()
	if _, err := spec.ParseRopeRule(m.WindowRope, m.RotaryDims()); err != nil {
		c.fail("the rotary parameters of sliding_attention: %v", err)
	}
}

// partialRotary: the classes of the other families turn complete heads, whatever
// partial_rotary_factor says; a scaling that takes it makes them fail.
func (c *reading) partialRotary(factor float64) {
	m := c.Model
	if slices.Contains(turnsPart, c.Family) {
		m.RotaryPercent = factor
		if n := m.RotaryDims(); n < 2 || n%2 != 0 || factor > 1 {
			c.fail("partial_rotary_factor %v rotates %d of a head's %d channels; the number must be even, and from 2 to %d", factor, n, m.KVChannels, m.KVChannels)
			return
		}
		c.checkRule()
		return
	}
	c.checkRule()
	scaled := m.RopeScaling != nil || m.RotaryInterpolation > 0 || m.RopeRule != ""
	if scaled && int(float64(m.KVChannels)*factor) != m.KVChannels {
		c.fail("partial_rotary_factor %v with scaled RoPE: transformers' %s cannot run this, because that class rotates complete heads", factor, c.Family)
	}
}

// ropeScaling reads a rule; original is the length of the first training where a config says
// it outside the rule.
func (c *reading) ropeScaling(r *rope, original *int64) {
	rule := r.RopeRule
	// Rules with fields of the model of their own.
	switch rule.Type {
	case spec.RopeDefault:
		return
	case spec.RopeLinear:
		if rule.Factor == nil {
			c.fail("rope_type linear needs factor")
		}
		c.Model.RotaryInterpolation = c.positive("rope factor", rule.Factor, 1)
		return
	case spec.RopeLlama3:
		if rule.Factor == nil || rule.LowFreq == nil || rule.HighFreq == nil || rule.OriginalMax == 0 {
			c.fail("rope_type llama3 needs factor, low_freq_factor, high_freq_factor and original_max_position_embeddings")
			return
		}
		s := &spec.RopeScaling{Factor: c.positive("rope factor", rule.Factor, 1), LowFreq: c.positive("low_freq_factor", rule.LowFreq, 1),
			HighFreq: c.positive("high_freq_factor", rule.HighFreq, 4), OriginalMax: rule.OriginalMax}
		if s.HighFreq <= s.LowFreq {
			c.fail("high_freq_factor %v is not above low_freq_factor %v", s.HighFreq, s.LowFreq)
		}
		c.Model.RopeScaling = s
		return
	}
	// Others are kept as text, with the trained length in them.
	if rule.OriginalMax == 0 && rule.Type != spec.RopeProportional && rule.Alpha == nil {
		rule.OriginalMax = c.MaxPositions
		if original != nil {
			rule.OriginalMax = c.size("original_max_position_embeddings", math.MaxInt32, original)
		}
	}
	rule.Partial = nil
	if rule.Type == spec.RopeProportional {
		c.fail("rope_type proportional is not supported in this family")
		return
	}
	c.Model.RopeRule = rule.Text()
}

// checkRule holds the rule against the channels that turn.
func (c *reading) checkRule() {
	if m := c.Model; m.RopeRule != "" {
		if _, err := spec.ParseRopeRule(m.RopeRule, m.RotaryDims()); err != nil {
			c.fail("the rotary parameters: %v", err)
		}
	}
}

// noRope reads which layers of SmolLM 3 do not rotate: every fourth, if nothing is said.
func (c *reading) noRope(f *fields) {
	m := c.Model
	on := f.NoRope
	if on == nil {
		every := c.optional("no_rope_layer_interval", f.NoRopeInterval, 4)
		for i := range m.NumLayers {
			on = append(on, 1)
			if (i+1)%every == 0 {
				on[i] = 0
			}
		}
	}
	if len(on) != m.NumLayers {
		c.fail("no_rope_layers has %d entries for %d layers", len(on), m.NumLayers)
		return
	}
	if slices.Contains(on, 0) {
		m.NoRope = make([]bool, m.NumLayers)
		for i, rotates := range on {
			m.NoRope[i] = rotates == 0
		}
	}
}
