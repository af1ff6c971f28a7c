package gguf

import (
	"encoding/json"
	"math"

	"monotron/megatron/checkpoint/hf"
	"monotron/megatron/spec"
)

// rule is a model's rule of frequencies that is text; nil: it has none.
func rule(m *spec.Model) *spec.RopeRule {
	if m.RopeRule == "" {
		return nil
	}
	r := &spec.RopeRule{}
	if json.Unmarshal([]byte(m.RopeRule), r) != nil {
		return nil
	}
	return r
}

// checkRule compares the rule of frequencies with what llama.cpp computes: YaRN, whose ramp has ends of its own in few
// architectures, and whose factor of cosines and sines follows from the other.
func (d *describing) checkRule() {
	r := rule(d.m)
	if d.m.RopeRule == "" || d.f.hf == hf.Gemma4 {
		return
	}
	if r == nil || r.Type != spec.RopeYarn || d.f.custom {
		d.need(false, "the rotary parameters %s", d.m.RopeRule)
		return
	}
	if r.AttentionFactor != nil {
		usual := 0.1*math.Log(*r.Factor) + 1
		d.need(math.Abs(*r.AttentionFactor/usual-1) < 1e-6, "attention_factor %v instead of YaRN's %.6g", *r.AttentionFactor, usual)
	}
	is := func(x *float64, value float64) bool { return x == nil || *x == value }
	d.need(d.f.yarn || is(r.BetaFast, 32) && is(r.BetaSlow, 1), "beta_fast and beta_slow other than 32 and 1")
	if d.f.hf != hf.GPTOSS {
		d.need(r.Truncate == nil || *r.Truncate, "truncate false (llama.cpp rounds the ends of YaRN's ramp)")
	}
	d.need(d.m.WindowRope == "" || d.f.hf == hf.Olmo3, "YaRN with different RoPE parameters in layers with a window")
	d.need(d.f.hf == hf.Ministral3 || r.MScale == nil && r.MScaleAllDim == nil, "mscale and mscale_all_dim")
}

// yarn adds YaRN's settings.
func (d *describing) yarn(r *spec.RopeRule) {
	d.put("rope.scaling.type", "yarn")
	d.put("rope.scaling.original_context_length", uint32(r.OriginalMax))
	for key, v := range map[string]*float64{"factor": r.Factor, "yarn_attn_factor": r.AttentionFactor, "yarn_beta_fast": r.BetaFast, "yarn_beta_slow": r.BetaSlow} {
		if v != nil {
			d.put("rope.scaling."+key, float32(*v))
		}
	}
}

// yarn reads them into a rule.
func (s *settling) yarn() {
	rule := map[string]any{"rope_type": "yarn"}
	for key, setting := range map[string]string{"factor": "factor", "yarn_attn_factor": "attention_factor", "yarn_beta_fast": "beta_fast", "yarn_beta_slow": "beta_slow"} {
		if x, ok := s.number("rope.scaling." + key); ok {
			rule[setting] = fraction(x)
		}
	}
	if n, ok := s.take("rope.scaling.original_context_length"); ok {
		rule["original_max_position_embeddings"] = n
	} else if n, ok := s.config["max_position_embeddings"]; ok {
		rule["original_max_position_embeddings"] = n
	}
	s.config["rope_scaling"] = rule
}

// take is an integer of the architecture, which is then understood.
func (s *settling) take(key string) (int64, bool) {
	s.used[s.key(key)] = true
	n, ok := s.integer(s.key(key))
	return n, ok && n >= 0 && n <= math.MaxInt32
}

// number is a number of the architecture, which is then understood.
func (s *settling) number(key string) (float64, bool) {
	s.used[s.key(key)] = true
	v, ok := s.f.Value(s.key(key))
	if !ok {
		return 0, false
	}
	x, ok := v.Float()
	if !ok {
		s.fail("%s is %s; it must be a number", s.key(key), v.Kind())
		return 0, false
	}
	if math.IsNaN(x) || math.IsInf(x, 0) {
		s.fail("%s is %v; it must be finite", s.key(key), x)
		return 0, false
	}
	return x, true
}

// flags is a list of booleans with one for each layer, which is then understood.
func (s *settling) flags(key string) ([]bool, bool) {
	s.used[s.key(key)] = true
	v, ok := s.f.Value(s.key(key))
	if !ok {
		return nil, false
	}
	list, ok := v.Bools()
	if !ok {
		s.fail("%s is %s; it must be an ARRAY of BOOL", s.key(key), v.Kind())
		return nil, false
	}
	layers, _ := s.config["num_hidden_layers"].(int64)
	if int64(len(list)) < layers {
		s.fail("%s has %d entries; it must have one for each of the %d layers", s.key(key), len(list), layers)
		return nil, false
	}
	return list[:layers], true
}

// layerKinds names layers by a list of booleans.
func layerKinds(on []bool, yes, no string) []string {
	list := make([]string, len(on))
	for i := range on {
		if list[i] = no; on[i] {
			list[i] = yes
		}
	}
	return list
}

// windows are the layers with a window.
func (d *describing) windows() []bool {
	list := make([]bool, d.m.NumLayers)
	for i := range list {
		list[i] = d.m.WindowAt(i) >= 0
	}
	return list
}

// everyLayer is a list of booleans by a rule.
func (s *settling) everyLayer(is func(layer int) bool) []bool {
	layers, _ := s.config["num_hidden_layers"].(int64)
	list := make([]bool, min(layers, 1<<14))
	for i := range list {
		list[i] = is(i)
	}
	return list
}
