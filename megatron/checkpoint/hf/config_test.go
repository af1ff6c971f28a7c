package hf

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"monotron/internal/exitcode"
	"monotron/megatron/spec"
)

// The config.json of Llama 3.1 8B in transformers 4's spelling (rope_scaling)
// gives the shape that Meta published; in 5's (rope_parameters) the same.
func TestLlama31Config(t *testing.T) {
	const common = `{"model_type":"llama","vocab_size":128256,"hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,
		"num_attention_heads":32,"num_key_value_heads":8,"hidden_act":"silu","max_position_embeddings":131072,"rms_norm_eps":1e-05,
		"tie_word_embeddings":false,"attention_bias":false,"mlp_bias":false,"torch_dtype":"bfloat16",`
	const scaling = `"factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":8192`
	want := &spec.Model{
		NumLayers: 32, HiddenSize: 4096, FFNHiddenSize: 14336, NumAttentionHeads: 32, NumQueryGroups: 8, KVChannels: 128,
		VocabSize: 128256, PaddedVocabSize: 128256, Position: spec.PositionRope, RotaryBase: 500000, RotaryPercent: 1,
		RopeScaling:   &spec.RopeScaling{Factor: 8, LowFreq: 1, HighFreq: 4, OriginalMax: 8192},
		Normalization: spec.RMSNorm, NormEpsilon: 1e-5, Activation: spec.Swiglu, WindowLeft: -1, InitStd: 0.02, EmbeddingInitStd: 0.02,
	}
	for name, rope := range map[string]string{
		"transformers 4": `"rope_theta":500000.0,"rope_scaling":{"rope_type":"llama3",` + scaling + `}}`,
		"transformers 5": `"rope_parameters":{"rope_type":"llama3","rope_theta":500000.0,` + scaling + `}}`,
	} {
		c, err := ParseConfig("config.json", []byte(common+rope))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(want, c.Model); diff != "" || c.MaxPositions != 131072 || c.Family != Llama {
			t.Errorf("%s: %s (positions %d)", name, diff, c.MaxPositions)
		}
	}
}

// Fields that change the arithmetic reach the model (transformers' documentation
// of each config class).
func TestConfigDetails(t *testing.T) {
	base := `"vocab_size":64,"hidden_size":32,"intermediate_size":64,"num_hidden_layers":4,"num_attention_heads":4,"num_key_value_heads":2`
	for name, c := range map[string]struct {
		text string
		ok   func(m *spec.Model) bool
	}{
		"mistral window":      {`{"model_type":"mistral",` + base + `,"sliding_window":16}`, func(m *spec.Model) bool { return m.WindowLeft == 15 && !m.QKVBias }},
		"mistral none":        {`{"model_type":"mistral",` + base + `,"sliding_window":null}`, func(m *spec.Model) bool { return m.WindowLeft == -1 }},
		"qwen2 unused":        {`{"model_type":"qwen2",` + base + `,"sliding_window":16,"use_sliding_window":false}`, func(m *spec.Model) bool { return m.WindowLeft == -1 && m.QKVBias && !m.LinearBias }},
		"qwen2 all":           {`{"model_type":"qwen2",` + base + `,"sliding_window":16,"use_sliding_window":true,"max_window_layers":0}`, func(m *spec.Model) bool { return m.WindowLeft == 15 }},
		"qwen3 norms":         {`{"model_type":"qwen3",` + base + `,"head_dim":16}`, func(m *spec.Model) bool { return m.QKNorm && m.KVChannels == 16 && !m.QKVBias }},
		"head_dim null":       {`{"model_type":"llama",` + base + `,"head_dim":null}`, func(m *spec.Model) bool { return m.KVChannels == 8 }},
		"biases":              {`{"model_type":"llama",` + base + `,"attention_bias":true,"mlp_bias":true}`, func(m *spec.Model) bool { return m.LinearBias && m.QKVBias }},
		"biases of attention": {`{"model_type":"llama",` + base + `,"attention_bias":true}`, func(m *spec.Model) bool { return !m.LinearBias && m.QKVBias && m.HasProjBias() }},
		"biases of the MLP":   {`{"model_type":"smollm3",` + base + `,"mlp_bias":true}`, func(m *spec.Model) bool { return m.LinearBias && !m.QKVBias && !m.HasProjBias() }},
		"qwen3 biases":        {`{"model_type":"qwen3",` + base + `,"attention_bias":true,"mlp_bias":true}`, func(m *spec.Model) bool { return !m.LinearBias && m.QKVBias && m.HasProjBias() }},
		"gpt_neox biases":     {`{"model_type":"gpt_neox",` + base + `,"attention_bias":false}`, func(m *spec.Model) bool { return m.LinearBias && !m.QKVBias && !m.HasProjBias() }},
		"Yarn-Llama-2":        {`{"model_type":"llama",` + base + `,"rope_scaling":{"type":"yarn","factor":4.0,"original_max_position_embeddings":16,"finetuned":true,"attn_factor":1}}`, func(m *spec.Model) bool { return strings.Contains(m.RopeRule, `"yarn"`) }},
		"linear rope":         {`{"model_type":"llama",` + base + `,"rope_scaling":{"type":"linear","factor":4.0}}`, func(m *spec.Model) bool { return m.RotaryInterpolation == 4 && m.RotaryBase == 10000 }},
		"partial rotary":      {`{"model_type":"llama",` + base + `,"partial_rotary_factor":0.5}`, func(m *spec.Model) bool { return m.RotaryDims() == 8 }},
		"partial inside":      {`{"model_type":"qwen2",` + base + `,"rope_parameters":{"rope_type":"default","partial_rotary_factor":0.5}}`, func(m *spec.Model) bool { return m.RotaryDims() == 8 }},
		"rope by type": {`{"model_type":"llama",` + base + `,"rope_parameters":{"full_attention":{"rope_type":"default","rope_theta":5e5},"sliding_attention":{"rope_type":"default","rope_theta":5e5}}}`, func(m *spec.Model) bool {
			return m.RotaryBase == 5e5
		}},
		"mistral absent": {`{"model_type":"mistral",` + base + `}`, func(m *spec.Model) bool { return m.WindowLeft == 4095 }},
		"qwen3 absent":   {`{"model_type":"qwen3",` + base + `}`, func(m *spec.Model) bool { return m.KVChannels == 128 }},
		"qwen types":     {`{"model_type":"qwen2",` + base + `,"layer_types":["full_attention","full_attention","full_attention","full_attention"],"use_sliding_window":true,"max_window_layers":0}`, func(m *spec.Model) bool { return m.WindowLeft == -1 }},
		"qwen mixed": {`{"model_type":"qwen2",` + base + `,"layer_types":["full_attention","sliding_attention","full_attention","sliding_attention"],"use_sliding_window":true,"sliding_window":3}`, func(m *spec.Model) bool {
			return m.WindowLeft == 2 && m.WindowAt(0) == -1 && m.WindowAt(1) == 2 && m.WindowAt(3) == 2
		}},
		"qwen last": {`{"model_type":"qwen3",` + base + `,"use_sliding_window":true,"sliding_window":3,"max_window_layers":3}`, func(m *spec.Model) bool { return m.WindowAt(2) == -1 && m.WindowAt(3) == 2 }},
		"olmo2":     {`{"model_type":"olmo2",` + base + `}`, func(m *spec.Model) bool { return m.NormAfter && m.QKNorm && m.QKNormFull && m.NormEpsilon == 1e-5 }},
		"gpt_neo": {`{"model_type":"gpt_neo","vocab_size":64,"hidden_size":32,"num_layers":3,"num_heads":4,"attention_types":[[["global","local"],1],[["local"],1]]}`, func(m *spec.Model) bool {
			return m.ScoreScale() == 1 && m.WindowAt(0) == -1 && m.WindowAt(1) == 255 && m.WindowAt(2) == 255 && m.LinearBias && !m.QKVBias && m.MaxPositions == 2048 && m.Tied
		}},
		"phi3": {`{"model_type":"phi3",` + base + `,"partial_rotary_factor":0.5,"sliding_window":5}`, func(m *spec.Model) bool { return m.RotaryDims() == 4 && m.WindowLeft == 4 && m.NormEpsilon == 1e-5 }},
		"smollm3": {`{"model_type":"smollm3",` + base + `}`, func(m *spec.Model) bool {
			return m.RopeAt(2) && !m.RopeAt(3) && m.Tied && m.RotaryBase == 2e6 && m.WindowLeft == -1
		}},
		"smollm3 own": {`{"model_type":"smollm3",` + base + `,"no_rope_layers":[0,1,1,0],"use_sliding_window":true,"sliding_window":5}`, func(m *spec.Model) bool {
			return !m.RopeAt(0) && m.RopeAt(1) && m.WindowAt(0) == 4 && m.WindowAt(1) == -1
		}},
		"starcoder2": {`{"model_type":"starcoder2",` + base + `,"norm_epsilon":1e-3}`, func(m *spec.Model) bool {
			return m.Normalization == spec.LayerNorm && m.NormEpsilon == 1e-3 && m.LinearBias && m.QKVBias && m.Tied && m.Activation == spec.GeluTanh
		}},
		"gpt_neox": {`{"model_type":"gpt_neox",` + base + `,"rotary_pct":0.5}`, func(m *spec.Model) bool {
			return m.ParallelResidual && m.RotaryDims() == 4 && m.NumQueryGroups == 4 && m.Activation == spec.GeluErf && !m.Tied && m.LinearBias
		}},
		"gpt2 erf":     {`{"model_type":"gpt2","vocab_size":64,"n_embd":32,"n_layer":2,"n_head":4,"n_positions":16,"activation_function":"gelu"}`, func(m *spec.Model) bool { return m.Activation == spec.GeluErf && m.FFNHiddenSize == 128 && m.Tied }},
		"gpt2 n_inner": {`{"model_type":"gpt2","vocab_size":64,"n_embd":32,"n_layer":2,"n_head":4,"n_positions":16,"n_inner":48}`, func(m *spec.Model) bool { return m.Activation == spec.GeluTanh && m.FFNHiddenSize == 48 }},
		"bloom hub":    {`{"model_type":"bloom","vocab_size":64,"n_embed":32,"num_hidden_layers":2,"num_attention_heads":4}`, func(m *spec.Model) bool { return m.HiddenSize == 32 && m.NumLayers == 2 && m.EmbedNorm }},
	} {
		config, err := ParseConfig("config.json", []byte(c.text))
		if err != nil || !c.ok(config.Model) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A config that monotron cannot honour is refused and the message names the
// field; nothing is dropped, nothing panics.
func TestConfigRefusals(t *testing.T) {
	const llama = `{"model_type":"llama","vocab_size":64,"hidden_size":32,"intermediate_size":64,"num_hidden_layers":4,"num_attention_heads":4`
	const gpt2 = `{"model_type":"gpt2","vocab_size":64,"n_embd":32,"n_layer":2,"n_head":4,"n_positions":16`
	for text, says := range map[string]string{
		``:                                   "config.json",
		`{"model_type":"gpt2","n_emb`:        "config.json:1: the file ends",
		`[]`:                                 "config.json",
		`{}`:                                 "model_type",
		`{"model_type":"xlnet"}`:             `"xlnet"`,
		`{"model_type":"mixtral"}`:           "hidden_size",
		`{"model_type":"gpt2"}`:              "n_embd is missing",
		gpt2 + `,"n_head":5}`:                "n_head",
		gpt2 + `,"n_head":0}`:                "n_head",
		gpt2 + `,"n_head":-4}`:               "n_head",
		gpt2 + `,"n_layer":1000000000}`:      "n_layer",
		gpt2 + `,"n_embd":1e300}`:            "n_embd",
		gpt2 + `,"n_embd":"32"}`:             "n_embd",
		gpt2 + `,"layer_norm_epsilon":0}`:    "layer_norm_epsilon",
		gpt2 + `,"activation_function":"x"}`: `activation_function "x"`,
		gpt2 + `,"scale_attn_by_inverse_layer_idx":true}`:              "scale_attn_by_inverse_layer_idx",
		gpt2 + `,"add_cross_attention":true}`:                          "add_cross_attention",
		llama + `,"num_key_value_heads":3}`:                            "num_key_value_heads",
		llama + `,"num_attention_heads":5}`:                            "num_attention_heads",
		llama + `,"hidden_act":"gelu"}`:                                "hidden_act",
		llama + `,"rope_scaling":{"rope_type":"spiral","factor":4.0}}`: `"spiral"`,
		llama + `,"rope_scaling":{"rope_type":"llama3","factor":4.0}}`: "low_freq_factor",
		llama + `,"rope_scaling":{"rope_type":"linear","factor":-1}}`:  "factor",
		llama + `,"rope_scaling":{"rope_type":"yarn","factor":4,"original_max_position_embeddings":16,"attn_factor":0.9}}`:                          "attn_factor 0.9 is ignored by transformers",
		llama + `,"rope_scaling":{"rope_type":"linear"}}`:                                                                                           "factor",
		llama + `,"partial_rotary_factor":0.5,"rope_scaling":{"type":"linear","factor":2.0}}`:                                                       "partial_rotary_factor",
		llama + `,"quantization_config":{"quant_method":"gptq"}}`:                                                                                   "quantization_config",
		`{"model_type":"gpt_neo","vocab_size":64,"hidden_size":32,"num_layers":3,"num_heads":4}`:                                                    "attention_types names 24 layers, but the model has 3",
		`{"model_type":"gpt_neo","vocab_size":64,"hidden_size":32,"num_layers":1,"num_heads":4,"attention_types":[[["sideways"],1]]}`:               `"sideways"`,
		`{"model_type":"gpt_neo","vocab_size":64,"hidden_size":32,"num_layers":1,"num_heads":4,"attention_types":[[["global"],1,2]]}`:               "attention_types",
		`{"model_type":"gpt_neo","vocab_size":64,"hidden_size":32,"num_layers":1,"num_heads":4,"attention_types":[[["local","local"],9000000000]]}`: "more than 10000",
		`{"model_type":"smollm3","no_rope_layers":[1],` + llama[22:] + `}`:                                                                          "no_rope_layers has 1 entries",
		`{"model_type":"phi3","rope_scaling":{"type":"longrope"},` + llama[22:] + `}`:                                                               "short_factor has 0 numbers",
		llama + `,"head_dim":7}`:          "must be even, because RoPE",
		llama + `,"num_local_experts":8}`: "experts",
		`{"model_type":"bloom","apply_residual_connection_post_layernorm":true,` + gpt2[21:] + `}`: "apply_residual_connection_post_layernorm",
	} {
		_, err := ParseConfig("config.json", []byte(text))
		if err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "config.json") {
			t.Errorf("%s: %v, want it to say %q", text, err, says)
		}
		if code := exitcode.CodeOf(err); code != exitcode.BadData && code != exitcode.Usage {
			t.Errorf("%s: exit code %d", text, code)
		}
	}
}

func FuzzConfig(f *testing.F) {
	f.Add([]byte(`{"model_type":"llama","vocab_size":64,"hidden_size":32,"intermediate_size":64,"num_hidden_layers":4,"num_attention_heads":4,"rope_scaling":{"type":"linear","factor":4.0}}`))
	f.Add([]byte(`{"model_type":"gpt2","vocab_size":64,"n_embd":32,"n_layer":2,"n_head":4,"n_positions":16}`))
	f.Add([]byte(`{"model_type":"gpt_neo","vocab_size":64,"hidden_size":32,"num_layers":2,"num_heads":4,"attention_types":[[["global","local"],1]]}`))
	f.Add([]byte(`{"model_type":"granitemoehybrid","vocab_size":64,"hidden_size":32,"num_hidden_layers":2,"num_attention_heads":4,"mamba_n_heads":4,"layer_types":["mamba","attention"],"time_step_limit":[0.1,{"__float__":"Infinity"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := ParseConfig("config.json", text)
		if err != nil || c.Model.NumLayers > 100 {
			return
		}
		if _, err := NewMapping(c.Model, c.Family); err != nil && exitcode.CodeOf(err) != exitcode.Usage {
			t.Fatalf("a config that was accepted has no mapping: %v", err)
		}
	})
}
