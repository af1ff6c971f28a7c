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

type rope struct {
	Type          *string  `json:"rope_type"`
	OldType       *string  `json:"type"`
	Theta         *float64 `json:"rope_theta"`
	PartialRotary *float64 `json:"partial_rotary_factor"`
	Factor        *float64 `json:"factor"`
	LowFreq       *float64 `json:"low_freq_factor"`
	HighFreq      *float64 `json:"high_freq_factor"`
	OriginalMax   *int64   `json:"original_max_position_embeddings"`
}

// UnmarshalJSON also reads the form of models whose layer types rotate by tables of their
// own, {"full_attention": {..}, "sliding_attention": {..}}: where the tables are equal they
// are one, else it is an error, since a model here has one table.
func (r *rope) UnmarshalJSON(raw []byte) error {
	type flat rope
	var tables map[string]json.RawMessage
	if err := json.Unmarshal(raw, &tables); err != nil {
		return err
	}
	var types []string
	for name, table := range tables {
		if bytes.HasPrefix(bytes.TrimSpace(table), []byte("{")) {
			types = append(types, name)
		}
	}
	if len(types) == 0 {
		return json.Unmarshal(raw, (*flat)(r))
	}
	slices.Sort(types)
	if len(types) != len(tables) {
		return fmt.Errorf("the rotary parameters mix tables by layer type (%s) with values outside them", strings.Join(types, ", "))
	}
	for i, name := range types {
		var one flat
		if err := json.Unmarshal(tables[name], &one); err != nil {
			return err
		}
		if i > 0 && !reflect.DeepEqual(one, flat(*r)) {
			return fmt.Errorf("the rotary parameters of %s and %s differ; a model with one rotary table for each layer type is not supported", types[0], name)
		}
		*r = rope(one)
	}
	return nil
}

// rotary reads both spellings: rope_parameters (transformers 5) wins over
// rope_theta and rope_scaling.
func (c *reading) rotary(f *fields) {
	m := c.Model
	m.Position = spec.PositionRope
	theta, partial, r := f.RopeTheta, f.PartialRotary, f.RopeScaling
	if p := f.RopeParameters; p != nil {
		r = p
		if p.Theta != nil {
			theta = p.Theta
		}
		if p.PartialRotary != nil {
			partial = p.PartialRotary
		}
	}
	m.RotaryBase = c.positive("rope_theta", theta, 10000)
	if m.KVChannels%2 != 0 {
		c.fail("head_dim %d is the number of rotating channels, which must be even", m.KVChannels)
	}
	if r != nil {
		c.ropeScaling(r)
	}
	c.partialRotary(c.positive("partial_rotary_factor", partial, 1))
}

// partialRotary: the classes of the other families turn whole heads, whatever
// partial_rotary_factor says; a scaling that takes it makes them fail.
func (c *reading) partialRotary(factor float64) {
	m := c.Model
	if slices.Contains(turnsPart, c.Family) {
		m.RotaryPercent = factor
		if n := m.RotaryDims(); n < 2 || n%2 != 0 || factor > 1 {
			c.fail("partial_rotary_factor %v rotates %d of a head's %d channels; the number must be even", factor, n, m.KVChannels)
		}
		return
	}
	scaled := m.RopeScaling != nil || m.RotaryInterpolation > 0
	if scaled && int(float64(m.KVChannels)*factor) != m.KVChannels {
		c.fail("partial_rotary_factor %v with a scaled rope: transformers' %s cannot run this, as it rotates complete heads", factor, c.Family)
	}
}

func (c *reading) ropeScaling(r *rope) {
	kind := "default"
	if r.OldType != nil {
		kind = *r.OldType
	}
	if r.Type != nil {
		kind = *r.Type
	}
	switch kind {
	case "default":
	case "linear":
		if r.Factor == nil {
			c.fail("rope_type linear needs factor")
		}
		c.Model.RotaryInterpolation = c.positive("rope factor", r.Factor, 1)
	case "llama3":
		if r.Factor == nil || r.LowFreq == nil || r.HighFreq == nil || r.OriginalMax == nil {
			c.fail("rope_type llama3 needs factor, low_freq_factor, high_freq_factor and original_max_position_embeddings")
			return
		}
		s := &spec.RopeScaling{
			Factor:      c.positive("rope factor", r.Factor, 1),
			LowFreq:     c.positive("low_freq_factor", r.LowFreq, 1),
			HighFreq:    c.positive("high_freq_factor", r.HighFreq, 4),
			OriginalMax: c.size("original_max_position_embeddings", math.MaxInt32, r.OriginalMax),
		}
		if s.HighFreq <= s.LowFreq {
			c.fail("high_freq_factor %v is not above low_freq_factor %v", s.HighFreq, s.LowFreq)
		}
		c.Model.RopeScaling = s
	default:
		c.fail("rope_type %q is not supported; default, linear and llama3 are", kind)
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
