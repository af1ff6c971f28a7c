package gguf

import (
	"math"

	"monotron/internal/exitcode"
	"monotron/megatron/spec"
)

// Gemma 4: layers with a window, and full ones whose heads are others.

var gemma4Names = map[string]string{
	"model.layers.N.post_attention_layernorm": "blk.N.post_attention_norm", "model.layers.N.pre_feedforward_layernorm": "blk.N.ffn_norm", "model.layers.N.post_feedforward_layernorm": "blk.N.post_ffw_norm",
	"model.layers.N.layer_scalar":                 "blk.N.layer_output_scale.weight",
	"model.layers.N.post_feedforward_layernorm_1": "blk.N.post_ffw_norm_1", "model.layers.N.pre_feedforward_layernorm_2": "blk.N.pre_ffw_norm_2", "model.layers.N.post_feedforward_layernorm_2": "blk.N.post_ffw_norm_2",
	"model.layers.N.router.proj": "blk.N.ffn_gate_inp", "model.layers.N.router.scale": "blk.N.ffn_gate_inp.scale", "model.layers.N.router.per_expert_scale": "blk.N.ffn_down_exps.scale",
	"model.layers.N.experts.gate_up_proj": "blk.N.ffn_gate_up_exps.weight", "model.layers.N.experts.down_proj": "blk.N.ffn_down_exps.weight",
	"model.embed_tokens_per_layer": "per_layer_token_embd", "model.per_layer_model_projection": "per_layer_model_proj", "model.per_layer_projection_norm": "per_layer_proj_norm",
	"model.layers.N.per_layer_input_gate": "blk.N.inp_gate", "model.layers.N.per_layer_projection": "blk.N.proj", "model.layers.N.post_per_layer_input_norm": "blk.N.post_norm",
}

var gemma4Keys = map[string]string{"attention.head_count_kv": "", "feed_forward_length": "", "expert_shared_feed_forward_length": "", "expert_used_count": "top_k_experts", "final_logit_softcapping": "final_logit_softcapping",
	"attention.sliding_window": "sliding_window", "attention.shared_kv_layers": "num_kv_shared_layers", "embedding_length_per_layer_input": "hidden_size_per_layer_input"}

func (d *describing) gemma4() {
	m := d.m
	put := func(key string, n int) { d.put(key, uint32(n)) }
	for _, part := range []string{"key", "value"} {
		put("attention."+part+"_length", m.Full.KVChannels)
		put("attention."+part+"_length_swa", m.KVChannels)
	}
	put("rope.dimension_count", m.Full.KVChannels)
	put("rope.dimension_count_swa", m.KVChannels)
	d.put("attention.sliding_window_pattern", d.windows())
	// Numbers that layers have of their own.
	heads, widths := make([]int32, m.NumLayers), make([]int32, m.NumLayers)
	for i := range heads {
		heads[i], widths[i] = int32(m.NumQueryGroups), int32(m.MLPOf(i).FFNHiddenSize)
		if m.WindowAt(i) < 0 {
			heads[i] = int32(m.Full.NumQueryGroups)
		}
	}
	config := d.own
	if config == nil {
		config = d.config
	}
	if config["num_global_key_value_heads"] != nil || m.Full.NumQueryGroups != m.NumQueryGroups {
		d.put("attention.head_count_kv", heads)
	} else {
		put("attention.head_count_kv", m.NumQueryGroups)
	}
	if d.config["use_double_wide_mlp"] == true {
		d.put("feed_forward_length", widths)
	} else {
		put("feed_forward_length", m.FFNHiddenSize)
	}
}

func (d *describing) checkGemma4() {
	m := d.m
	d.need(!m.QKVBias && !m.HasProjBias(), "attention_bias")
	d.need(m.WindowLeft >= 0, "a model without sliding windows")
	d.need(m.Full != nil, "layers of the same shape with and without a window")
	r := rule(m)
	d.need(r != nil && r.Type == spec.RopeProportional, "rope_type other than proportional in full_attention layers")
	d.need(m.ScoreScale() == 1, "attention scores multiplied by %g", m.ScoreScale())
}

// gemma4Rope is the tensor of full layers' rotations: those beyond the turning part do not turn.
func gemma4Rope(m *spec.Model) []float32 {
	r := rule(m)
	list := make([]float32, m.Full.KVChannels/2)
	turning := int(float64(m.Full.KVChannels) * *r.Partial / 2)
	for i := range list {
		if list[i] = 1; i >= turning {
			list[i] = 1e30
		}
	}
	return list
}

func (s *settling) gemma4() {
	number := func(key string) int64 { n, _ := s.config[key].(int64); return n }
	layers := number("num_hidden_layers")
	slides, ok := s.flags("attention.sliding_window_pattern")
	if !ok {
		s.fail("%s is missing", s.key("attention.sliding_window_pattern"))
		return
	}
	s.config["layer_types"] = layerKinds(slides, "sliding_attention", "full_attention")
	s.config["hidden_activation"] = "gelu_pytorch_tanh"
	// Widths of heads.
	full, _ := s.config["head_dim"].(int64)
	own, _ := s.headWidth("attention.key_length_swa", "attention.value_length_swa", true)
	s.config["head_dim"], s.config["global_head_dim"] = own, full
	if n, ok := s.take("rope.dimension_count_swa"); ok && n != own {
		s.fail("%s is %d; it must be %d, because RoPE must rotate all channels of a head", s.key("rope.dimension_count_swa"), n, own)
	}
	// Numbers of each layer.
	wide, narrow := s.perLayer("attention.head_count_kv", slides, false), s.perLayer("attention.head_count_kv", slides, true)
	if s.config["num_key_value_heads"] = narrow; wide != narrow {
		s.config["num_global_key_value_heads"] = wide
	}
	list := s.ints("feed_forward_length")
	if len(list) > 0 {
		s.config["intermediate_size"] = list[0]
		s.config["use_double_wide_mlp"] = int64(len(list)) == layers && layers > 0 && list[layers-1] == 2*list[0]
		for i, n := range list {
			shared := int64(i) >= layers-number("num_kv_shared_layers")
			if n != list[0] && !(shared && n == 2*list[0]) {
				s.fail("%s of layer %d is %d; it must be %d, or twice that in layers that share keys", s.key("feed_forward_length"), i, n, list[0])
				break
			}
		}
	}
	// Keys that are values have no tensor of values in full layers.
	for i, slide := range slides {
		_, has := s.f.Tensor(layerTensor(i, "attn_v.weight"))
		_, key := s.f.Tensor(layerTensor(i, "attn_k.weight"))
		if !slide && key {
			s.config["attention_k_eq_v"] = !has
		}
	}
	if n := number("hidden_size_per_layer_input"); n == 0 {
		s.config["hidden_size_per_layer_input"] = int64(0)
	}
	s.config["vocab_size_per_layer_input"] = s.config["vocab_size"]
	s.config["enable_moe_block"] = number("num_experts") > 0
	s.gemma4Rotary(full)
}

// gemma4Rotary reads the tables of both kinds of layers.
func (s *settling) gemma4Rotary(full int64) {
	local := any(10000.0)
	if x, ok := s.number("rope.freq_base_swa"); ok {
		local = fraction(x)
	}
	global := s.config["rope_theta"]
	if global == nil {
		global = 1e6
	}
	delete(s.config, "rope_theta")
	t, ok := s.f.Tensor(ropeFreqs)
	if !ok {
		s.fail("tensor %q is missing", ropeFreqs)
		return
	}
	if len(t.Dims) != 1 || t.Dims[0] != full/2 || full < 2 {
		s.fail("tensor %q has the shape %v; it must have one element for each two of the %d channels of a head", ropeFreqs, t.Shape(), full)
		return
	}
	values := make([]float32, t.Dims[0])
	if err := s.f.Float32(t, values, 0); err != nil {
		s.problems = append(s.problems, err)
		return
	}
	turning := 0
	for i, v := range values {
		switch {
		case v == 1 && turning == i:
			turning++
		case v != 1e30:
			s.fail("tensor %q: element %d is %v; the first elements must be 1 and all others 1e30", ropeFreqs, i, v)
			return
		}
	}
	s.config["rope_parameters"] = map[string]any{
		"full_attention":    map[string]any{"rope_type": "proportional", "rope_theta": global, "partial_rotary_factor": float64(turning) / float64(full/2)},
		"sliding_attention": map[string]any{"rope_type": "default", "rope_theta": local}}
}

// ints is a number or a list of them, which is then understood.
func (s *settling) ints(key string) []int64 {
	s.used[s.key(key)] = true
	v, ok := s.f.Value(s.key(key))
	if !ok {
		return nil
	}
	list, ok := v.Ints()
	if n, one := v.Int(); one {
		list, ok = []int64{n}, true
	}
	for _, n := range list {
		ok = ok && n >= 0 && n <= math.MaxInt32
	}
	if !ok {
		s.fail("%s is %s; it must be an integer from 0 to %d, or a list with such an integer for each layer", s.key(key), v.Kind(), math.MaxInt32)
		return nil
	}
	return list
}

// perLayer is the number that layers of a kind have.
func (s *settling) perLayer(key string, kinds []bool, kind bool) int64 {
	list, found := s.ints(key), int64(-1)
	name := "no window"
	if kind {
		name = "a window"
	}
	for i := range kinds {
		switch {
		case len(list) == 1:
			return list[0]
		case i >= len(list) || kinds[i] != kind:
		case found >= 0 && list[i] != found:
			s.problems = append(s.problems, exitcode.Errorf(exitcode.BadData, "%s is %d in layer %d, but %d in other layers that also have %s", s.key(key), list[i], i, found, name))
			return found
		default:
			found = list[i]
		}
	}
	return max(found, 0)
}
