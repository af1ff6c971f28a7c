package hf

import (
	"fmt"
	"strings"
	"testing"

	"monotron/megatron/spec"
)

// nemotron is a config.json with further keys.
func nemotron(keys string) (*Config, error) {
	return ParseConfig("config.json", []byte(`{"model_type": "nemotron_h", "vocab_size": 64, "hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1, "mamba_num_heads": 4, "n_groups": 2`+keys+`}`))
}

// Claim: config.json of Nemotron-H is read as transformers 5.24's NemotronHConfig reads it: defaults of absent keys,
// layers in the words of transformers 5, of Nvidia's code or as a pattern, of which the words count. Limits of time
// steps are those of time_step_limit, as in Nvidia's code.
func TestNemotronHConfigs(t *testing.T) {
	read := func(keys string) *spec.Model {
		t.Helper()
		c, err := nemotron(keys)
		if err != nil {
			t.Fatal(err)
		}
		return c.Model
	}
	m := read("")
	if m.Hybrid() != "ME*-" || m.NumLayers != 4 || m.FFNHiddenSize != 21504 || m.KVChannels != 128 || m.Position != spec.PositionNone || m.Activation != spec.SquaredRelu || m.Tied {
		t.Errorf("%+v", m)
	}
	if s := m.Mamba; s.Heads != 4 || s.Groups != 2 || s.StateDim != 128 || s.HeadDim != 64 || s.Taps != 4 || !s.ConvBias || s.DtMin != 0 || s.DtMax != 0 {
		t.Errorf("%+v", s)
	}
	if e := m.Experts; e.Num != 8 || e.TopK != 2 || e.FFNHiddenSize != 7688 || e.SharedFFN != 7688 || e.ScoreFunction != spec.ScoreSigmoid || !e.ExpertBias || e.AuxLossCoeff[0] != 0 {
		t.Errorf("%+v", e)
	}
	for keys, want := range map[string]string{
		`, "hybrid_override_pattern": "M-M*-", "num_hidden_layers": 5`:                                            "M-M*-",
		`, "layers_block_type": ["mamba", "attention", "mlp"]`:                                                    "M*-",
		`, "layers_block_type": ["linear_attention", "full_attention", "moe"], "hybrid_override_pattern": "M-M-"`: "M*E",
		`, "layers_block_type": ["full_attention", "mlp"]`:                                                        "*-",
	} {
		if got := read(keys); got.Hybrid() != want || (got.Mamba != nil) != strings.Contains(want, "M") || (got.Experts != nil) != strings.Contains(want, "E") {
			t.Errorf("%s: %s", keys, got.Hybrid())
		}
	}
	if m := read(`, "moe_latent_size": 16`); m.Experts.LatentSize != 16 || m.ExpertWidth() != 16 {
		t.Errorf("%+v", m.Experts)
	}
	if s := read(`, "time_step_limit": [0.5, {"__float__": "Infinity"}], "time_step_min": 0.001`).Mamba; s.DtMin != 0.5 || s.DtMax != 0 {
		t.Errorf("%+v", s)
	}
}

// Claim: what is not supported is refused by name.
func TestNemotronHRefusals(t *testing.T) {
	for key, value := range map[string]string{"use_bias": "true", "mlp_bias": "true", "attention_bias": "true", "mamba_proj_bias": "true", "residual_in_fp32": "true", "tie_word_embeddings": "true", "sliding_window": "8",
		"moe_latent_size": "0", "n_shared_experts": "2", "mlp_hidden_act": `"silu_and_mul"`, "mamba_hidden_act": `"relu"`, "hybrid_override_pattern": `"M-G"`, "layers_block_type": `["mamba", "hyena"]`, "num_hidden_layers": "3",
		"time_step_limit": "[2, 1]", "norm_topk_prob": "false", "conv_kernel": "17", "mamba_num_heads": "3", "mamba_head_dim": "8388608", "mamba_gate": "1"} {
		if _, err := nemotron(fmt.Sprintf(", %q: %s", key, value)); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %s: %v", key, value, err)
		}
	}
	if _, err := nemotron(`, "hybrid_override_pattern": ""`); err == nil || !strings.Contains(err.Error(), "names no layers") {
		t.Error(err)
	}
}
