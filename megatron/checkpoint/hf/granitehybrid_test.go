package hf

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"monotron/megatron/spec"
)

// Claim: config.json of Granite 4 is read as transformers 5.24's GraniteMoeHybridConfig reads it: defaults of absent
// keys, layer types in the words of transformers 4 and 5, infinite limits as an object, layers without RoPE, and
// models that have attention alone.
func TestGraniteHybridConfigs(t *testing.T) {
	read := func(keys string) *spec.Model {
		t.Helper()
		c, err := ParseConfig("config.json", []byte(`{"model_type": "granitemoehybrid", "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "mamba_n_heads": 4`+keys+`}`))
		if err != nil {
			t.Fatal(err)
		}
		return c.Model
	}
	m := read("")
	if s := m.Mamba; s.Heads != 4 || s.Groups != 1 || s.StateDim != 256 || s.HeadDim != 16 || s.Taps != 4 || !s.ConvBias || s.DtMin != 0 || s.DtMax != 0 || slices.Contains(s.Layers, false) {
		t.Errorf("%+v", s)
	}
	if e := m.Experts; e.Num != 8 || e.TopK != 2 || e.FFNHiddenSize != 11008 || e.SharedFFN != 1024 || e.PreSoftmax || m.Position != spec.PositionNone {
		t.Errorf("%+v %s", e, m.Position)
	}
	for words, want := range map[string][]bool{`"mamba", "attention", "mamba"`: {true, false, true}, `"full_attention", "linear_attention", "full_attention"`: {false, true, false}} {
		if got := read(fmt.Sprintf(`, "layer_types": [%s]`, words)).Mamba.Layers; !slices.Equal(got, want) {
			t.Errorf("%s: %v", words, got)
		}
	}
	if s := read(`, "time_step_limit": [0.5, {"__float__": "Infinity"}]`).Mamba; s.DtMin != 0.5 || s.DtMax != 0 {
		t.Errorf("%+v", s)
	}
	m = read(`, "layer_types": ["attention", "attention", "attention"], "num_local_experts": 0, "shared_intermediate_size": 40, "position_embedding_type": "rope"`)
	if m.Mamba != nil || m.Experts != nil || m.FFNHiddenSize != 40 || m.Position != spec.PositionRope {
		t.Errorf("%+v", m)
	}
	if err := Expresses(GraniteHybrid, m); err != nil {
		t.Error(err)
	}
}

// Claim: what transformers' class refuses, and what is not supported, is refused by name.
func TestGraniteHybridRefusals(t *testing.T) {
	for key, value := range map[string]string{"mamba_proj_bias": "true", "mamba_n_heads": "3", "mamba_d_head": "5", "mamba_n_groups": "3", "time_step_limit": "[2, 1]", "hidden_act": `"gelu"`, "position_embedding_type": `"alibi"`,
		"normalization_function": `"layernorm"`, "layer_types": `["mamba", "sliding_attention", "mamba"]`, "mamba_d_conv": "17", "mamba_expand": "16777216", "num_local_experts": "null", "shared_intermediate_size": "0", "mamba_gate": "1"} {
		text := fmt.Sprintf(`{"model_type": "granitemoehybrid", "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "mamba_n_heads": 4, %q: %s}`, key, value)
		if key == "mamba_n_heads" {
			text = strings.Replace(text, `"mamba_n_heads": 4, `, "", 1)
		}
		if _, err := ParseConfig("config.json", []byte(text)); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %s: %v", key, value, err)
		}
	}
}
