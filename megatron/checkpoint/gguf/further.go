package gguf

import (
	"fmt"
	"strings"

	"monotron/megatron/checkpoint/hf"
	"monotron/megatron/spec"
)

// Code of single families in addition to their row.

func layerTensor(layer int, name string) string { return fmt.Sprintf("blk.%d.%s", layer, name) }

// GPT-OSS: experts in one tensor, [in, out], gate and up in turn.

var gptOSSNames = map[string]string{
	"model.layers.N.post_attention_layernorm": "blk.N.post_attention_norm", "model.layers.N.self_attn.sinks": "blk.N.attn_sinks.weight", "model.layers.N.mlp.router": "blk.N.ffn_gate_inp",
}

func splitExperts(_ *spec.Model, src hf.Source) (list []part, ok bool) {
	stem, expert := expertOf(src.Name)
	if expert < 0 {
		return nil, false
	}
	layer, kind, _ := strings.Cut(stem, ".mlp.experts.")
	name := func(form string) string { return in(layer+".", form) }
	switch kind {
	case "gate_up_proj":
		for i, form := range []string{"ffn_gate_exps.weight", "ffn_up_exps.weight"} {
			list = append(list, part{name: name(form), rows: src.Shape[1] / 2, width: src.Shape[0], stacked: true, first: -1, at: int64(i), step: 2, turned: true, own: true, ours: int64(i) * src.Shape[1] / 2})
		}
	case "gate_up_proj_bias":
		for i, form := range []string{"ffn_gate_exps.bias", "ffn_up_exps.bias"} {
			list = append(list, part{name: name(form), rows: src.Shape[0] / 2, width: 1, stacked: true, first: -1, at: int64(i), step: 2, own: true, ours: int64(i) * src.Shape[0] / 2})
		}
	case "down_proj":
		list = append(list, part{name: name("ffn_down_exps.weight"), rows: src.Shape[1], width: src.Shape[0], stacked: true, first: -1, step: 1, turned: true, own: true})
	case "down_proj_bias":
		list = append(list, part{name: name("ffn_down_exps.bias"), rows: src.Shape[0], width: 1, stacked: true, first: -1, step: 1})
	}
	return list, len(list) > 0
}

func (d *describing) checkGPTOSS() {
	m := d.m
	for i := range m.NumLayers {
		d.need((m.WindowAt(i) >= 0) == (i%2 == 0), "layer %d %s a window", i, withOrWithout(m.WindowAt(i) >= 0))
	}
	d.need(m.GateLimit == 7 && m.GateOffset == 1, "swiglu_limit %g", m.GateLimit)
	d.need(m.QKVBias && m.HasProjBias(), "attention layers without biases")
	d.need(!m.Tied, "tied embeddings")
	r := rule(m)
	d.need(r == nil || r.Truncate != nil && !*r.Truncate, "truncate true (llama.cpp reads files of this architecture with truncate false)")
	if r != nil {
		d.notes = append(d.notes, "llama.cpp rounds the ends of YaRN's ramp, but this model does not (truncate false), so results differ in the third digit")
	}
}

func (s *settling) gptOSS() {
	s.config["layer_types"] = layerKinds(s.everyLayer(func(i int) bool { return i%2 == 0 }), "sliding_attention", "full_attention")
	if list, ok := s.flags("attention.sliding_window_pattern"); ok {
		s.config["layer_types"] = layerKinds(list, "sliding_attention", "full_attention")
	}
	if rule, ok := s.config["rope_scaling"].(map[string]any); ok {
		rule["truncate"] = false
	} else {
		s.config["rope_scaling"] = map[string]any{"rope_type": "default"}
	}
	delete(s.config, "num_experts")
	s.config["swiglu_limit"] = 7.0
}

// LFM2: short convolutions in most layers.

var lfm2Names = map[string]string{
	"model.embedding_norm": "token_embd_norm", "model.layers.N.operator_norm": "blk.N.attn_norm", "model.layers.N.ffn_norm": "blk.N.ffn_norm",
	"model.layers.N.conv.in_proj": "blk.N.shortconv.in_proj", "model.layers.N.conv.conv": "blk.N.shortconv.conv", "model.layers.N.conv.out_proj": "blk.N.shortconv.out_proj",
	"model.layers.N.self_attn.out_proj": "blk.N.attn_output", "model.layers.N.self_attn.q_layernorm": "blk.N.attn_q_norm", "model.layers.N.self_attn.k_layernorm": "blk.N.attn_k_norm",
	"model.layers.N.feed_forward.w1": "blk.N.ffn_gate", "model.layers.N.feed_forward.w3": "blk.N.ffn_up", "model.layers.N.feed_forward.w2": "blk.N.ffn_down",
}

func (d *describing) lfm2() {
	heads := make([]int32, d.m.NumLayers)
	for i := range heads {
		if !d.m.ConvAt(i) {
			heads[i] = int32(d.m.NumQueryGroups)
		}
	}
	d.put("attention.head_count_kv", heads)
	d.put("feed_forward_length", uint32(d.m.FFNHiddenSize))
}

func (s *settling) lfm2() {
	heads := s.ints("attention.head_count_kv")
	layers, _ := s.config["num_hidden_layers"].(int64)
	if int64(len(heads)) != layers {
		s.fail("%s has %d numbers; it must have one for each of the %d layers", s.key("attention.head_count_kv"), len(heads), layers)
		return
	}
	conv, most := make([]bool, len(heads)), int64(0)
	for i, n := range heads {
		conv[i], most = n == 0, max(most, n)
	}
	for i, n := range heads {
		if n != 0 && n != most {
			s.fail("%s is %d in layer %d, but %d in other layers; layers with attention must have equal numbers", s.key("attention.head_count_kv"), n, i, most)
		}
	}
	s.config["layer_types"], s.config["num_key_value_heads"], s.config["conv_bias"] = layerKinds(conv, "conv", "full_attention"), max(most, 1), false
	if n := s.ints("feed_forward_length"); len(n) == 1 {
		s.config["intermediate_size"], s.config["block_auto_adjust_ff_dim"] = n[0], false
	}
}

// Ministral 3.

func (d *describing) ministral3() {
	if r := rule(d.m); r != nil && r.MScaleAllDim != nil {
		d.put("rope.scaling.yarn_log_multiplier", float32(*r.MScaleAllDim))
		d.put("attention.temperature_scale", float32(d.m.QueryGrowth))
	}
}

func (d *describing) checkMinistral3() {
	r := rule(d.m)
	if r == nil || r.Type != spec.RopeYarn || r.MScale == nil || r.MScaleAllDim == nil || *r.MScaleAllDim <= 0 {
		d.need(false, "rotary parameters other than YaRN with mscale and mscale_all_dim")
		return
	}
	d.need(*r.MScale == 1 && r.AttentionFactor == nil, "mscale %g", *r.MScale)
	d.need(d.m.QueryGrowth > 0 && d.m.QueryGrowthFrom == r.OriginalMax, "query scaling that does not start at original_max_position_embeddings")
}

func (s *settling) ministral3() {
	rule, ok := s.config["rope_scaling"].(map[string]any)
	scale, okScale := s.number("rope.scaling.yarn_log_multiplier")
	growth, okGrowth := s.number("attention.temperature_scale")
	if !ok || !okScale || !okGrowth {
		s.fail("this architecture needs %s, %s and %s", s.key("rope.scaling.type"), s.key("rope.scaling.yarn_log_multiplier"), s.key("attention.temperature_scale"))
		return
	}
	delete(s.config, "rope_scaling")
	rule["mscale"], rule["mscale_all_dim"], rule["llama_4_scaling_beta"], rule["rope_theta"] = 1.0, fraction(scale), fraction(growth), s.config["rope_theta"]
	s.config["rope_parameters"], s.config["sliding_window"] = rule, nil
}

// OLMo 3: OLMo 2 with windows.

func (s *settling) windowed() bool {
	n, ok := s.integer("olmo2.attention.sliding_window")
	return ok && n > 0
}

func (d *describing) olmo3() {
	d.put("attention.sliding_window_pattern", d.windows())
	if !hasKey(d, "rope.freq_base_swa") {
		d.put("rope.freq_base_swa", float32(d.m.RotaryBase))
	}
}

func (d *describing) checkOlmo3() {
	m := d.m
	d.need(m.WindowLeft >= 0, "a model without sliding windows (olmo2 can represent it)")
	d.need(!m.QKVBias && !m.HasProjBias(), "attention_bias")
	d.need(m.RotaryInterpolation <= 1, "interpolated positions")
	if m.WindowRope == "" {
		d.need(m.RopeRule == "", "scaled RoPE in layers with a window")
		return
	}
	r, err := spec.ParseRopeRule(m.WindowRope, m.RotaryDims())
	d.need(err == nil && r.Type == spec.RopeDefault && (r.Theta == 0 || r.Theta == m.RotaryBase), "the rotary parameters %s in layers with a window", m.WindowRope)
}

func (s *settling) olmo3() {
	list, ok := s.flags("attention.sliding_window_pattern")
	if !ok {
		list = s.everyLayer(func(i int) bool { return (i+1)%4 != 0 })
	}
	s.config["layer_types"] = layerKinds(list, "sliding_attention", "full_attention")
	theta := s.config["rope_theta"]
	if x, ok := s.number("rope.freq_base_swa"); ok && fraction(x) != theta {
		s.fail("%s is %v, but must be %v, because layers with a window have the same RoPE base as the other layers", s.key("rope.freq_base_swa"), x, theta)
	}
	full := map[string]any{"rope_type": "default"}
	if rule, ok := s.config["rope_scaling"].(map[string]any); ok {
		full = rule
	}
	delete(s.config, "rope_scaling")
	delete(s.config, "rope_theta")
	full["rope_theta"] = theta
	s.config["rope_parameters"] = map[string]any{"full_attention": full, "sliding_attention": map[string]any{"rope_type": "default", "rope_theta": theta}}
}

// Cohere.

func (d *describing) cohere() {
	d.put("rope.scaling.type", "none")
}

func (d *describing) checkCohere() {
	m := d.m
	d.need(m.Tied, "an output layer with separate weights")
	d.need(!m.QKVBias && !m.HasProjBias(), "attention_bias")
	d.need(m.NumAttentionHeads*m.KVChannels == m.HiddenSize, "heads of width %d", m.KVChannels)
	d.need(m.NumLayers < 64, "%d layers without norms of queries and keys", m.NumLayers)
	d.need(m.RotaryInterpolation <= 1, "interpolated positions")
}

func (s *settling) cohere() {
	if s.config["logit_scale"] == nil {
		s.config["logit_scale"] = 1.0
	}
}

// Falcon.

var falconNames = map[string]string{"transformer.h.N.input_layernorm": "blk.N.attn_norm", "transformer.h.N.ln_attn": "blk.N.attn_norm_2", "transformer.h.N.ln_mlp": "blk.N.attn_norm"}

var falconKeys = map[string]string{"context_length": "max_position_embeddings", "embedding_length": "hidden_size", "feed_forward_length": "ffn_hidden_size", "block_count": "num_hidden_layers",
	"attention.head_count": "num_attention_heads", "attention.head_count_kv": "", "attention.layer_norm_epsilon": "layer_norm_epsilon"}

// falconOrder: in the file all queries come first, then keys and values; in Hugging Face's tensor those of each group lie
// together.
func falconOrder(m *spec.Model, name string, rows int64) order {
	if name != "attn_qkv" {
		return order{}
	}
	head, groups, each := int64(m.KVChannels), int64(m.NumQueryGroups), int64(m.NumAttentionHeads/m.NumQueryGroups)
	there := func(row int64) int64 {
		h, at := row/head, row%head
		switch {
		case h < groups*each:
			return (h/each*(each+2)+h%each)*head + at
		case h < groups*(each+1):
			return ((h-groups*each)*(each+2)+each)*head + at
		}
		return ((h-groups*(each+1))*(each+2)+each+1)*head + at
	}
	back := func(row int64) int64 {
		h, at := row/head, row%head
		group, of := h/(each+2), h%(each+2)
		if of < each {
			return (group*each+of)*head + at
		}
		return (groups*(each+of-each)+group)*head + at
	}
	return order{row: there, back: back, unit: rows}
}

func (d *describing) falcon() {
	d.put("tensor_data_layout", "jploski")
	d.put("attention.head_count_kv", uint32(d.m.NumQueryGroups))
}

func (d *describing) checkFalcon() {
	m := d.m
	d.need(m.ParallelResidual, "attention and MLP one after the other")
	d.need(m.Position == spec.PositionRope, "ALiBi")
	d.need(!m.LinearBias && !m.QKVBias, "biases")
	d.need(m.RotaryBase == 10000 && m.RotaryInterpolation <= 1, "rope_theta %g", m.RotaryBase)
}

func (s *settling) falcon() {
	_, two := s.f.Tensor("blk.0.attn_norm_2.weight")
	groups, ok := s.take("attention.head_count_kv")
	if !ok {
		groups, _ = s.config["num_attention_heads"].(int64)
	}
	s.config["num_kv_heads"] = groups
	newer := two || groups != 1
	s.config["bias"], s.config["alibi"], s.config["parallel_attn"], s.config["new_decoder_architecture"], s.config["multi_query"] = false, false, true, newer, !newer
	if newer {
		s.config["num_ln_in_parallel_attn"] = map[bool]int64{true: 2, false: 1}[two]
	}
}

// Hunyuan.

func (d *describing) checkHunyuan() {
	d.need(d.m.RopeRule == "", "the rotary parameters %s (the file stores only the increased base)", d.m.RopeRule)
	d.need(!d.m.QKVBias && !d.m.HasProjBias(), "attention_bias")
}

// EXAONE 4: llama.cpp has windows in models of 64 layers alone, where layers without a window do not rotate.

func (d *describing) exaone4() {
	if d.m.WindowLeft >= 0 {
		d.put("attention.sliding_window_pattern", d.windows())
	}
}

func (d *describing) checkExaone4() {
	m := d.m
	d.need(!m.QKVBias && !m.HasProjBias(), "attention_bias")
	d.need(m.WindowLeft < 0 || m.NumLayers == 64, "sliding_window with %d layers (llama.cpp supports it only in models of 64 layers)", m.NumLayers)
	d.need(m.WindowLeft >= 0 || m.NumLayers != 64, "64 layers without sliding_window (llama.cpp always uses a window in models of 64 layers)")
}

func (s *settling) exaone4() {
	if list, ok := s.flags("attention.sliding_window_pattern"); ok {
		s.config["layer_types"] = layerKinds(list, "sliding_attention", "full_attention")
	}
	if s.config["sliding_window"] == nil {
		s.config["sliding_window"] = nil
		s.config["layer_types"] = layerKinds(s.everyLayer(func(int) bool { return false }), "sliding_attention", "full_attention")
	}
}

// sigmoidRouter says how experts are chosen.
func (d *describing) sigmoidRouter() {
	d.put("expert_gating_func", uint32(2))
}

// hasKey reports whether a key of the architecture has been written.
func hasKey(d *describing, key string) bool {
	for _, p := range d.out {
		if p.Key == d.f.arch+"."+key {
			return true
		}
	}
	return false
}
