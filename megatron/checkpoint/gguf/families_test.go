package gguf

import (
	"context"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/compare"
	"monotron/megatron/checkpoint/hf"
)

// small is a config.json of a small model of a family.
func small(family string) map[string]any {
	c := map[string]any{"model_type": family, "vocab_size": 40, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
		"num_key_value_heads": 2, "max_position_embeddings": 32, "rms_norm_eps": 1e-5, "rope_theta": 5e4, "tie_word_embeddings": false}
	four := []string{"sliding_attention", "sliding_attention", "sliding_attention", "full_attention"}
	linear := map[string]any{"num_hidden_layers": 4, "head_dim": 16, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 6,
		"partial_rotary_factor": 0.25, "num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 48}
	latent := map[string]any{"num_key_value_heads": 4, "kv_lora_rank": 32, "q_lora_rank": 24, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 12, "n_routed_experts": 4, "num_experts_per_tok": 2,
		"moe_intermediate_size": 32, "n_shared_experts": 1, "first_k_dense_replace": 1, "routed_scaling_factor": 2.5, "norm_topk_prob": true, "n_group": 1, "topk_group": 1, "scoring_func": "sigmoid", "topk_method": "noaux_tc"}
	yarn := map[string]any{"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 32.0, "beta_slow": 1.0}
	scans := map[string]any{"num_hidden_layers": 4, "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 16, "mamba_n_groups": 2, "num_local_experts": 0, "shared_intermediate_size": 96,
		"embedding_multiplier": 3.0, "residual_multiplier": 0.5, "attention_multiplier": 0.2, "logits_scaling": 4.0, "layer_types": []string{"mamba", "mamba", "attention", "mamba"}}
	hybrid := map[string]any{"num_hidden_layers": 4, "head_dim": 32, "mamba_num_heads": 4, "mamba_head_dim": 32, "n_groups": 2, "ssm_state_size": 16, "hybrid_override_pattern": "M-*M"}
	more := map[string]map[string]any{
		hf.GraniteHybrid: scans, hf.NemotronH: hybrid, hf.Mamba2: {"num_heads": 8, "head_dim": 16, "n_groups": 2, "state_size": 16, "intermediate_size": nil},
		"granitehybrid as " + hf.GraniteHybrid: {"position_embedding_type": "rope"},
		"granite as " + hf.GraniteHybrid:       {"layer_types": []string{"attention", "attention", "attention", "attention"}, "position_embedding_type": "rope"},
		"granitemoe as " + hf.GraniteHybrid:    {"layer_types": []string{"attention", "attention", "attention", "attention"}, "position_embedding_type": "rope", "num_local_experts": 4, "num_experts_per_tok": 2, "attention_bias": true},
		"nemotron_h_moe as " + hf.NemotronH:    {"hybrid_override_pattern": "ME*M", "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "moe_shared_expert_intermediate_size": 48, "routed_scaling_factor": 2.5},
		hf.GPTOSS:                              {"head_dim": 16, "num_local_experts": 3, "num_experts_per_tok": 2, "sliding_window": 8, "rope_theta": nil, "rope_parameters": with(yarn, map[string]any{"truncate": false})},
		hf.Qwen35:                              linear, hf.Qwen35MoE: with(linear, map[string]any{"intermediate_size": nil}), hf.Qwen3Next: linear,
		hf.LFM2:       {"num_hidden_layers": 4, "layer_types": []string{"conv", "conv", "full_attention", "conv"}, "norm_eps": 1e-5, "tie_word_embeddings": true},
		hf.DeepSeekV3: latent, hf.KimiK2: latent, hf.GLM4MoELite: latent,
		hf.DeepSeekV2: with(latent, map[string]any{"q_lora_rank": nil, "num_hidden_layers": 26, "scoring_func": "softmax", "topk_method": "greedy", "norm_topk_prob": false}),
		hf.Ministral3: {"head_dim": 16, "rope_theta": nil, "rope_parameters": with(yarn, map[string]any{"mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1})},
		hf.Olmo3:      {"num_hidden_layers": 4, "sliding_window": 8, "layer_types": four},
		hf.Gemma4: {"num_hidden_layers": 4, "head_dim": 16, "global_head_dim": 32, "sliding_window": 8, "layer_types": four, "final_logit_softcapping": 30.0, "tie_word_embeddings": true, "rope_theta": nil,
			"hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0, "enable_moe_block": true, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 32, "attention_k_eq_v": true, "num_global_key_value_heads": 1},
		hf.Cohere:   {"tie_word_embeddings": true, "logit_scale": 0.25, "layer_norm_eps": 1e-5},
		hf.Falcon:   {"new_decoder_architecture": true, "num_kv_heads": 2, "bias": false, "alibi": false, "rope_theta": 1e4, "tie_word_embeddings": true},
		hf.MiniMax2: {"head_dim": 16, "num_local_experts": 3, "num_experts_per_tok": 2, "rotary_dim": 8}, hf.Hunyuan: {"head_dim": 16}, hf.Exaone4: {"sliding_window": nil},
		hf.GPT2: {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 32, "tie_word_embeddings": true}, hf.Bloom: {"n_layer": 2, "n_head": 4, "tie_word_embeddings": true, "seq_length": 32},
		hf.Llama:   {"attention_bias": true, "mlp_bias": true, "rope_scaling": map[string]any{"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}},
		hf.GPTNeoX: {"rotary_pct": 0.5, "use_parallel_residual": true}, hf.Qwen3: {"head_dim": 32},
		hf.Phi3: {"partial_rotary_factor": 0.5}, hf.SmolLM3: {"num_hidden_layers": 4},
		hf.Mistral: {"sliding_window": nil}, hf.Mixtral: {"num_local_experts": 3, "num_experts_per_tok": 2, "sliding_window": nil},
		hf.Qwen2MoE: {"num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 64, "norm_topk_prob": false},
		hf.Qwen3MoE: {"num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": true, "head_dim": 16},
		hf.OLMoE:    {"num_key_value_heads": 4, "num_experts": 3, "num_experts_per_tok": 2, "norm_topk_prob": false},
		hf.GLM4MoE: {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_shared_experts": 1, "first_k_dense_replace": 1, "head_dim": 16,
			"routed_scaling_factor": 1.5, "norm_topk_prob": true, "n_group": 1, "topk_group": 1, "use_qk_norm": true, "attention_bias": true},
		hf.Starcoder2: {"use_bias": true, "norm_epsilon": 1e-5},
		"granite":     {"embedding_multiplier": 3.0, "logits_scaling": 4.0, "residual_multiplier": 0.3, "attention_multiplier": 0.2}, "ernie4_5": {"head_dim": 16, "use_bias": false},
		"seed_oss": {"head_dim": 16, "attention_bias": true, "attention_out_bias": false},
		"gemma2": {"head_dim": 16, "query_pre_attn_scalar": 16, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "sliding_window": 8, "tie_word_embeddings": true,
			"hidden_activation": "gelu_pytorch_tanh", "rope_theta": 1e4},
		"gemma3_text": {"head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 8, "tie_word_embeddings": true, "hidden_activation": "gelu_pytorch_tanh", "num_hidden_layers": 6,
			"rope_theta": nil, "rope_scaling": nil, "layer_types": []string{"sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention"},
			"rope_parameters": map[string]any{"full_attention": map[string]any{"rope_type": "default", "rope_theta": 1e6}, "sliding_attention": map[string]any{"rope_type": "default", "rope_theta": 1e4}}},
	}
	if _, of, is := strings.Cut(family, " as "); is { // further architectures of a family
		c["model_type"] = of
		maps.Copy(c, more[of])
	}
	maps.Copy(c, more[family])
	return c
}

// with is settings and more of them.
func with(settings, more map[string]any) map[string]any {
	c := maps.Clone(settings)
	maps.Copy(c, more)
	return c
}

// sourceOf is a model of that shape with values of a seed.
func sourceOf(t *testing.T, f *family) (checkpoint.Source, bool) {
	t.Helper()
	family := f.hf
	settings := small(f.arch + " as " + f.hf)
	text, err := json.Marshal(settings)
	if err != nil {
		t.Fatal(err)
	}
	config, err := hf.ParseConfig(family, text)
	if err != nil {
		if strings.Contains(err.Error(), "model_type") || strings.Contains(err.Error(), "not supported") {
			return nil, false // package hf does not read it yet
		}
		t.Fatal(err)
	}
	m := *config.Model
	m.Context = config.MaxPositions
	values := map[string][]float32{}
	r := rand.New(rand.NewPCG(1, 2))
	for _, e := range checkpoint.Expected(&m) {
		list := make([]float32, checkpoint.Volume(e.Shape))
		for i := range list {
			list[i] = float32(r.NormFloat64())
		}
		values[e.Name] = list
	}
	return hf.Values(&m, family, func(global string) ([]float32, error) { return values[global], nil }), true
}

// Claim: a model of every family of the table is read from its GGUF file as it was written:
// shape, settings and all weights, bit for bit (norms that are stored as weight+1 to
// rounding). Source: the model itself.
func TestEveryFamily(t *testing.T) {
	for i := range families {
		f := &families[i]
		src, read := sourceOf(t, f)
		if !read {
			t.Logf("%s is not read yet", f.hf)
			continue
		}
		path := filepath.Join(t.TempDir(), "x.gguf")
		written, err := Write(context.Background(), path, src, checkpoint.WriteOptions{Family: f.hf, Quantization: "f32"})
		if err != nil {
			t.Errorf("%s: %v", f.hf, err)
			continue
		}
		back, err := Open(path, checkpoint.OpenOptions{})
		if err != nil {
			t.Errorf("%s: %v", f.hf, err)
			continue
		}
		defer back.Close()
		if list := src.Info().Model.Differs(back.Info().Model); len(list) > 0 {
			t.Errorf("%s: the model differs: %v (%v)", f.hf, list, written.Notes)
		}
		rows, err := compare.Tensors(src, back, compare.Options{})
		if err != nil || len(rows) == 0 {
			t.Fatal(f.hf, len(rows), err)
		}
		for k := range rows {
			if !rows[k].Equal() && !rounded(&rows[k], f.hf) {
				t.Errorf("%s: %s: %d elements differ", f.hf, rows[k].Name, rows[k].Different)
			}
		}
	}
}

// Claim: what llama.cpp's architecture would compute otherwise is refused by name. Source:
// llama.cpp's graphs, which fix these settings.
func TestRefusesWhatLlamaCppLacks(t *testing.T) {
	for _, c := range []struct {
		family, key string
		value       any
		says        string
	}{
		{hf.Qwen2MoE, "norm_topk_prob", true, "norm_topk_prob true"},
		{hf.Qwen3MoE, "mlp_only_layers", []int{0}, "layers without experts"},
		{hf.Qwen2, "rope_scaling", map[string]any{"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}, "scaling"},
		{hf.SmolLM3, "no_rope_layers", []int{1, 0, 1, 1}, "layer 1 without RoPE"},
		{hf.Phi3, "rope_scaling", map[string]any{"rope_type": "longrope", "short_factor": []float64{1, 1, 1, 1}, "long_factor": []float64{2, 2, 2, 2}}, "longrope"},
		{hf.Qwen3, "rope_scaling", map[string]any{"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 16.0}, "beta_fast"},
		{hf.GPTOSS, "layer_types", []string{"full_attention", "sliding_attention"}, "layer 0 without a window"},
		{hf.GPTOSS, "swiglu_limit", 5.0, "swiglu_limit 5"},
		{hf.GPTOSS, "rope_parameters", map[string]any{"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 16}, "truncate"},
		{hf.GPTOSS, "attention_bias", false, "without biases"},
		{hf.Ministral3, "sliding_window", 8, "sliding_window"},
		{hf.Ministral3, "rope_parameters", map[string]any{"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 16, "llama_4_scaling_beta": 0.1}, "mscale"},
		{hf.DeepSeekV3, "q_lora_rank", nil, "q_lora_rank 0 with 2 layers"},
		{hf.DeepSeekV3, "rope_scaling", map[string]any{"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "mscale": 1.0, "mscale_all_dim": 0.5}, "mscale 1 with mscale_all_dim 0.5"},
		{hf.Olmo3, "rope_parameters", map[string]any{"full_attention": map[string]any{"rope_type": "default", "rope_theta": 1e5}, "sliding_attention": map[string]any{"rope_type": "default", "rope_theta": 1e4}}, "in layers with a window"},
		{hf.Olmo3, "attention_bias", true, "attention_bias"},
		{hf.Gemma4, "rope_parameters", map[string]any{"full_attention": map[string]any{"rope_type": "default", "rope_theta": 1e6}, "sliding_attention": map[string]any{"rope_type": "default", "rope_theta": 1e4}}, "proportional"},
		{hf.Cohere, "tie_word_embeddings", false, "output layer"},
		{hf.Falcon, "bias", true, "biases"},
		{hf.Falcon, "alibi", true, "ALiBi"},
		{hf.Falcon, "rope_theta", 5e5, "rope_theta 500000"},
		{hf.Qwen35, "linear_key_head_dim", 8, "llama.cpp has one number"},
		{hf.Exaone4, "sliding_window", 8, "sliding_window with 2 layers"},
		{hf.GraniteHybrid, "time_step_limit", []float64{0, 1}, "time_step_limit"},
		{hf.GraniteHybrid, "mamba_conv_bias", false, "convolutions without biases"},
		{hf.Mamba2, "use_conv_bias", false, "convolutions without biases"},
		{hf.Mamba2, "time_step_limit", []float64{0.1, 9}, "time_step_limit"},
		{hf.NemotronH, "hybrid_override_pattern", "M-*E", "which has both MLPs and experts"},
		{hf.NemotronH, "hybrid_override_pattern", "-*-*", "without state-space scans"},
	} {
		config := small(c.family)
		config[c.key] = c.value
		text, err := json.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := hf.ParseConfig(c.family, text)
		if err != nil {
			t.Fatal(err)
		}
		src := hf.Values(parsed.Model, c.family, func(string) ([]float32, error) { return nil, nil })
		_, err = Write(context.Background(), filepath.Join(t.TempDir(), "x.gguf"), src, checkpoint.WriteOptions{Family: c.family})
		if exitcode.CodeOf(err) != exitcode.Usage || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s with %s: %v, want %q", c.family, c.key, err, c.says)
		}
	}
}
