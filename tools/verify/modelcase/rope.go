package modelcase

import (
	"encoding/json"
	"fmt"
	"math"

	"monotron/megatron/spec"
)

// ropeRow is a rule of rotary positions and its angles at some positions, each the last one of a sequence.
type ropeRow struct {
	Name     string
	Channels int             `json:"head_dim"`
	Most     int             `json:"max_position_embeddings"`
	Rule     json.RawMessage `json:"rope_parameters"` // as in config.json
	At       []ropeAngles
}

// ropeAngles are those of one position, a value per pair of channels; Frequencies nil: those of the row's first one.
type ropeAngles struct {
	Position    int
	Factor      float64   `json:"attention_factor"`
	Frequencies []float64 `json:"inv_freq"`
	Cos, Sin    []float64
}

// maxRopePosition bounds the positions of a row, which are lengths of sequences here.
const maxRopePosition = 1 << 30

// runRope: frequencies, and the factor and values of cos and sin. Angles are computed in f64.
func (r *run) runRope() error {
	limits := map[string]float64{}
	for _, name := range []string{"inv_freq_rel", "attention_factor_abs", "cos_sin_abs_where_angles_are_float64"} {
		limit, err := r.tolerance(name)
		if err != nil {
			return err
		}
		limits[name] = limit
	}
	return rows(r, func(name string, row ropeRow) error {
		rule, err := spec.ParseRopeRule(string(row.Rule), row.Channels)
		if err != nil {
			return r.bad("%s: %v", name, err)
		}
		turned := row.Channels
		if rule.Partial != nil && rule.Type != spec.RopeProportional {
			turned = int(float64(turned) * *rule.Partial)
		}
		for _, at := range row.At {
			if at.Position < 0 || at.Position > maxRopePosition {
				return r.bad("%s: position %d is out of range; positions must be from 0 to %d", name, at.Position, maxRopePosition)
			}
			if at.Frequencies == nil {
				at.Frequencies = row.At[0].Frequencies
			}
			r.compareAngles(fmt.Sprintf("%s, %s, position %d", name, row.Name, at.Position), rule.Table(0, turned, at.Position+1, row.Most), at, limits)
		}
		return nil
	})
}

func (r *run) compareAngles(name string, got spec.RopeTable, want ropeAngles, limits map[string]float64) {
	r.report.exact("pairs", name, len(got.Frequencies), len(want.Frequencies))
	r.report.number("factor of cos and sin", name, got.Factor, want.Factor, limits["attention_factor_abs"])
	worst := 0.0
	for i := range min(len(got.Frequencies), len(want.Frequencies)) {
		if f := want.Frequencies[i]; f != got.Frequencies[i] {
			worst = math.Max(worst, math.Abs(got.Frequencies[i]-f)/math.Abs(f)) // a frequency of 0 has no other
		}
	}
	r.report.add("frequencies", name, worst, limits["inv_freq_rel"])
	cos, sin := make([]float64, len(got.Frequencies)), make([]float64, len(got.Frequencies))
	for i, f := range got.Frequencies {
		cos[i], sin[i] = got.Factor*math.Cos(float64(want.Position)*f), got.Factor*math.Sin(float64(want.Position)*f)
	}
	r.report.within("cos", name, cos, want.Cos, limits["cos_sin_abs_where_angles_are_float64"])
	r.report.within("sin", name, sin, want.Sin, limits["cos_sin_abs_where_angles_are_float64"])
}
