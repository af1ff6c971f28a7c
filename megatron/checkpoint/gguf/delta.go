package gguf

import (
	"strings"

	"monotron/megatron/checkpoint/hf"
	"monotron/megatron/spec"
)

// Qwen3-Next and Qwen3.5, most of whose layers have a gated delta net.

// deltaFamily is a row of these families.
func deltaFamily(name, arch string) family {
	f := family{hf: name, arch: arch, exact: true, plusOne: true, names: deltaNames, order: deltaOrder, split: splitDelta, keys: deltaKeys,
		describe: (*describing).delta, settle: (*settling).delta, check: (*describing).checkDelta}
	if name == hf.Qwen3Next {
		f.order, f.fixed = nil, map[string]any{"norm_topk_prob": true}
	}
	return f
}

var deltaNames = map[string]string{
	"model.layers.N.post_attention_layernorm": "blk.N.post_attention_norm",
	"model.layers.N.linear_attn.A_log":        "blk.N.ssm_a", "model.layers.N.linear_attn.dt_bias": "blk.N.ssm_dt.bias", "model.layers.N.linear_attn.conv1d": "blk.N.ssm_conv1d",
	"model.layers.N.linear_attn.in_proj_qkv": "blk.N.attn_qkv", "model.layers.N.linear_attn.in_proj_z": "blk.N.attn_gate", "model.layers.N.linear_attn.in_proj_a": "blk.N.ssm_alpha",
	"model.layers.N.linear_attn.in_proj_b": "blk.N.ssm_beta", "model.layers.N.linear_attn.in_proj_ba": "blk.N.ssm_ba", "model.layers.N.linear_attn.norm": "blk.N.ssm_norm",
	"model.layers.N.linear_attn.out_proj": "blk.N.ssm_out",
}

// deltaKeys are keys of the delta net that are settings as they are.
var deltaKeys = map[string]string{"ssm.conv_kernel": "linear_conv_kernel_dim", "ssm.state_size": "linear_key_head_dim", "ssm.group_count": "linear_num_key_heads", "ssm.time_step_rank": "linear_num_value_heads"}

// deltaOrder: in Qwen3.5's files the value heads of all key heads take turns. Qwen3-Next's have them as they are.
func deltaOrder(m *spec.Model, name string, rows int64) order {
	d := m.Delta
	if d == nil {
		return order{}
	}
	keys, each, head, before := int64(d.KeyHeads), int64(d.ValueHeads/d.KeyHeads), int64(1), int64(0)
	switch name {
	case "attn_qkv", "ssm_conv1d":
		head, before = int64(d.ValueDim), 2*keys*int64(d.KeyDim)
	case "attn_gate", "ssm_out":
		head = int64(d.ValueDim)
	case "ssm_alpha", "ssm_beta", "ssm_a", "ssm_dt":
	default:
		return order{}
	}
	there, back := tiled(keys, each, head, before), tiled(each, keys, head, before)
	if name == "ssm_out" {
		return order{column: there, columnBack: back}
	}
	return order{row: there, back: back, unit: rows}
}

// splitDelta: Qwen3-Next has, of each key head, [q | k | its values | their gates].
func splitDelta(m *spec.Model, src hf.Source) (list []part, ok bool) {
	stem, ok := strings.CutSuffix(src.Name, ".linear_attn.in_proj_qkvz.weight")
	if !ok || m.Delta == nil {
		return nil, false
	}
	d := m.Delta
	keys, key, value := int64(d.KeyHeads), int64(d.KeyDim), int64(d.ValueHeads/d.KeyHeads*d.ValueDim)
	for h := range keys {
		at := h * 2 * (key + value)
		add := func(name string, first, rows int64) {
			list = append(list, part{name: in(stem+".", name), rows: rows, width: src.Shape[1], first: first + h*rows, at: at, step: 1})
			at += rows
		}
		add("attn_qkv.weight", 0, key)
		add("attn_qkv.weight", keys*key, key)
		add("attn_qkv.weight", 2*keys*key, value)
		add("attn_gate.weight", 0, value)
	}
	return list, true
}

func (d *describing) delta() {
	m, every := d.m, uint32(4)
	d.put("ssm.inner_size", uint32(m.Delta.ValueHeads*m.Delta.ValueDim))
	d.put("attention.recurrent_layers", m.Delta.Layers)
	if n, ok := d.config["full_attention_interval"].(float64); ok && n >= 1 {
		every = uint32(n)
	}
	d.put("full_attention_interval", every)
	d.put("rope.dimension_count", uint32(m.RotaryDims()))
	if d.f.hf == hf.Qwen3Next {
		return
	}
	// Of an image: of a text all coordinates are the position.
	sections := []int32{11, 11, 10, 0}
	for _, name := range []string{"rope_scaling", "rope_parameters"} {
		rope, _ := d.own[name].(map[string]any)
		if list, ok := rope["mrope_section"].([]any); ok && len(list) <= 4 {
			sections = make([]int32, 4)
			for i, n := range list {
				x, _ := n.(float64)
				sections[i] = int32(x)
			}
		}
	}
	d.put("rope.dimension_sections", sections)
}

func (d *describing) checkDelta() {
	delta := d.m.Delta
	if d.need(delta != nil, "a model without linear attention"); delta != nil {
		d.need(delta.KeyDim == delta.ValueDim, "linear_key_head_dim %d differs from linear_value_head_dim %d (llama.cpp has one number for both)", delta.KeyDim, delta.ValueDim)
	}
}

func (s *settling) delta() {
	number := func(key string) int64 { n, _ := s.config[key].(int64); return n }
	if inner, ok := s.take("ssm.inner_size"); ok && number("linear_num_value_heads") > 0 {
		s.config["linear_value_head_dim"] = inner / number("linear_num_value_heads")
	}
	every, ok := s.take("full_attention_interval")
	if !ok || every < 1 {
		every = 4
	}
	layers, ok := s.flags("attention.recurrent_layers")
	if !ok {
		layers = s.everyLayer(func(i int) bool { return int64(i+1)%every != 0 })
	}
	s.config["layer_types"] = layerKinds(layers, "linear_attention", "full_attention")
	s.used[s.key("rope.dimension_sections")] = true
	if s.family.hf == hf.Qwen35MoE {
		delete(s.config, "intermediate_size")
	}
}
