package megatron

import (
	"testing"

	"monotron/megatron/spec"
)

// Claim: names of tensors in a layer of multi-token prediction are read in both of Megatron's
// spellings, and torch_dist has them under transformer_layer, not stacked, with Transformer
// Engine's names of norms.
func TestNamesOfMTP(t *testing.T) {
	m := &spec.Model{NumLayers: 2}
	for _, c := range []struct{ stored, name, dist string }{
		{"mtp.layers.0.enorm.weight", "mtp.layers.0.enorm.weight", "mtp.layers.0.enorm.weight"},
		{"module.mtp.layers.1.eh_proj.weight", "mtp.layers.1.eh_proj.weight", "mtp.layers.1.eh_proj.weight"},
		{"mtp.layers.1.transformer_layer.self_attention.linear_qkv.layer_norm_weight", "mtp.layers.1.mtp_model_layer.input_layernorm.weight",
			"mtp.layers.1.transformer_layer.self_attention.linear_qkv.layer_norm_weight"},
		{"mtp.layers.0.mtp_model_layer.mlp.linear_fc2.weight", "mtp.layers.0.mtp_model_layer.mlp.linear_fc2.weight", "mtp.layers.0.transformer_layer.mlp.linear_fc2.weight"},
		{"mtp.layers.0.transformer_layer.mlp.experts.linear_fc1.weight3", "mtp.layers.0.mtp_model_layer.mlp.experts.local_experts.3.linear_fc1.weight",
			"mtp.layers.0.transformer_layer.mlp.experts.experts.linear_fc1.weight"},
	} {
		k, ok := ParseKey(c.stored)
		if got := k.Name(k.Layer, k.Expert); !ok || got != c.name {
			t.Errorf("%s: %q, want %q", c.stored, got, c.name)
		}
		if got, _ := DistKeys(m, Split(c.name)); got != c.dist {
			t.Errorf("%s: %q in torch_dist, want %q", c.name, got, c.dist)
		}
	}
	if k, ok := ParseKey("mtp.layers.0.transformer_layer.mlp.experts.experts.linear_fc2.weight"); !ok || k.Ahead != 0 || k.Expert != Stacked || k.Rest != "linear_fc2.weight" {
		t.Errorf("%+v", k)
	}
}

// Claim: a norm before a mixture of experts has a name of its own in torch_dist with Transformer Engine, and that of a
// norm fused with linear_fc1 with Megatron's own modules; with latent attention these keep all names. Source:
// sharded_state_dict_keys_map and IdentityOp in Megatron-LM's gpt_layer_specs.py.
func TestNamesOfNormsInTorchDist(t *testing.T) {
	const fused, apart = "mlp.linear_fc1.layer_norm_weight", "pre_mlp_layernorm.weight"
	mixture := &spec.Experts{Num: 4, Layers: []bool{false, true}}
	for _, c := range []struct {
		m             *spec.Model
		layer         int
		rest          string
		engine, local string
	}{
		{&spec.Model{NumLayers: 2}, 0, apart, fused, fused},
		{&spec.Model{NumLayers: 2, Experts: mixture}, 0, apart, fused, fused},
		{&spec.Model{NumLayers: 2, Experts: mixture}, 1, apart, apart, fused},
		{&spec.Model{NumLayers: 2, Experts: mixture, Latent: &spec.Latent{}}, 0, apart, fused, apart},
		{&spec.Model{NumLayers: 2, Experts: mixture, Latent: &spec.Latent{}}, 1, apart, apart, apart},
		{&spec.Model{NumLayers: 2, Latent: &spec.Latent{}}, 1, "self_attention.q_layernorm.weight", "self_attention.linear_q_up_proj.layer_norm_weight", "self_attention.q_layernorm.weight"},
		{&spec.Model{NumLayers: 2}, 1, "input_layernorm.weight", "self_attention.linear_qkv.layer_norm_weight", "self_attention.linear_qkv.layer_norm_weight"},
	} {
		engine, local := DistKeys(c.m, Key{Layer: c.layer, Ahead: None, Expert: None, Rest: c.rest})
		if engine != "decoder.layers."+c.engine || local != "decoder.layers."+c.local {
			t.Errorf("layer %d of %+v, %s: %s and %s, want %s and %s", c.layer, c.m, c.rest, engine, local, c.engine, c.local)
		}
	}
}
