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
		if got := DistKey(m, Split(c.name)); got != c.dist {
			t.Errorf("%s: %q in torch_dist, want %q", c.name, got, c.dist)
		}
	}
	if k, ok := ParseKey("mtp.layers.0.transformer_layer.mlp.experts.experts.linear_fc2.weight"); !ok || k.Ahead != 0 || k.Expert != Stacked || k.Rest != "linear_fc2.weight" {
		t.Errorf("%+v", k)
	}
}
