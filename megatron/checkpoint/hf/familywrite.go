package hf

import (
	"math"

	"monotron/megatron/spec"
)

// decoderConfig writes what families with Llama's keys share.
func decoderConfig(c map[string]any, m *spec.Model, positions int) {
	put(c, "num_hidden_layers", m.NumLayers, "hidden_size", m.HiddenSize, "intermediate_size", m.FFNHiddenSize,
		"num_attention_heads", m.NumAttentionHeads, "num_key_value_heads", m.NumQueryGroups, "head_dim", m.KVChannels,
		"max_position_embeddings", positions, "rms_norm_eps", m.NormEpsilon, "hidden_act", activationName(m))
	if m.Position == spec.PositionRope {
		rotaryConfig(c, m)
	}
}

// windowConfig writes layers with a window. Most classes compute the mask of a window even if no layer has one: for
// them unused is its size then.
func windowConfig(c map[string]any, m *spec.Model, unused any) {
	c["sliding_window"] = unused
	if m.WindowLeft >= 0 {
		c["sliding_window"] = m.WindowLeft + 1
	}
	c["layer_types"] = perLayer(m, "sliding_attention", "full_attention")
}

func graniteConfig(c map[string]any, m *spec.Model, positions int) {
	decoderConfig(c, m, positions)
	put(c, "attention_bias", m.QKVBias, "mlp_bias", m.LinearBias)
	graniteFactorConfig(c, m)
}

// graniteFactorConfig writes Granite's multipliers.
func graniteFactorConfig(c map[string]any, m *spec.Model) {
	put(c, "embedding_multiplier", otherwise(m.EmbeddingScale, 1), "residual_multiplier", otherwise(m.ResidualScale, 1),
		"logits_scaling", inverse(otherwise(m.LogitScale, 1)), "attention_multiplier", m.ScoreScale())
}

func gemmaConfig(c map[string]any, m *spec.Model, positions int) {
	decoderConfig(c, m, positions)
	delete(c, "hidden_act")
	windowConfig(c, m, 4096)
	scalar := 1 / (m.ScoreScale() * m.ScoreScale())
	if r := math.Round(scalar); 1/math.Sqrt(r) == m.ScoreScale() {
		scalar = r
	}
	put(c, "hidden_activation", activationName(m), "attention_bias", m.QKVBias)
	if c["query_pre_attn_scalar"] = scalar; scalar == math.Round(scalar) {
		c["query_pre_attn_scalar"] = int(scalar)
	}
	for name, limit := range map[string]float64{"attn_logit_softcapping": m.ScoreCap, "final_logit_softcapping": m.LogitCap} {
		if c[name] = nil; limit > 0 {
			c[name] = real(limit)
		}
	}
	if c["model_type"] == Gemma3 {
		twoTables(c, m)
		c["use_bidirectional_attention"] = false
	}
}

// twoTables writes the rotary tables of full and of sliding layers, as transformers 4 and 5
// read them.
func twoTables(c map[string]any, m *spec.Model) {
	flat, nested := c["rope_parameters"].(map[string]any)
	if !nested {
		return
	}
	if _, by := flat["full_attention"]; !by {
		sliding := map[string]any{"rope_type": "default", "rope_theta": real(m.RotaryBase)}
		if m.WindowRope != "" {
			sliding = ruleConfig(m.WindowRope)
		}
		c["rope_parameters"] = map[string]any{"full_attention": flat, "sliding_attention": sliding}
	}
	if c["model_type"] == Gemma3 {
		c["rope_local_base_freq"] = c["rope_parameters"].(map[string]any)["sliding_attention"].(map[string]any)["rope_theta"]
	}
}

func olmo3Config(c map[string]any, m *spec.Model, positions int) {
	decoderConfig(c, m, positions)
	windowConfig(c, m, 4096)
	twoTables(c, m)
	put(c, "attention_bias", m.QKVBias)
}

func exaone4Config(c map[string]any, m *spec.Model, positions int) {
	decoderConfig(c, m, positions)
	windowConfig(c, m, nil)
}

func seedConfig(c map[string]any, m *spec.Model, positions int) {
	decoderConfig(c, m, positions)
	put(c, "attention_bias", m.QKVBias, "attention_out_bias", m.HasProjBias(), "mlp_bias", m.LinearBias, "residual_dropout", 0.0, "attention_dropout", 0.0)
}

func hunyuanConfig(c map[string]any, m *spec.Model, positions int) {
	decoderConfig(c, m, positions)
	put(c, "attention_bias", m.QKVBias)
}

func ernieConfig(c map[string]any, m *spec.Model, positions int) {
	decoderConfig(c, m, positions)
	put(c, "use_bias", m.LinearBias)
}

func cohereConfig(c map[string]any, m *spec.Model, positions int) {
	decoderConfig(c, m, positions)
	delete(c, "rms_norm_eps")
	put(c, "layer_norm_eps", m.NormEpsilon, "logit_scale", otherwise(m.LogitScale, 1), "attention_bias", m.QKVBias, "use_qk_norm", false)
}

func falconConfig(c map[string]any, m *spec.Model, positions int) {
	put(c, "num_hidden_layers", m.NumLayers, "hidden_size", m.HiddenSize, "num_attention_heads", m.NumAttentionHeads, "ffn_hidden_size", m.FFNHiddenSize,
		"max_position_embeddings", positions, "layer_norm_epsilon", m.NormEpsilon, "activation", activationName(m), "bias", m.LinearBias,
		"alibi", m.AlibiTable, "parallel_attn", m.ParallelResidual, "num_kv_heads", m.NumQueryGroups)
	newer := m.ParallelResidual && (!m.ParallelOneNorm || m.NumQueryGroups != 1)
	put(c, "new_decoder_architecture", newer, "multi_query", m.NumQueryGroups == 1)
	if newer {
		c["num_ln_in_parallel_attn"] = 2
		if m.ParallelOneNorm {
			c["num_ln_in_parallel_attn"] = 1
		}
	}
	if !m.AlibiTable {
		rotaryConfig(c, m)
	}
}

func optConfig(c map[string]any, m *spec.Model, _ int) {
	put(c, "num_hidden_layers", m.NumLayers, "hidden_size", m.HiddenSize, "num_attention_heads", m.NumAttentionHeads, "ffn_dim", m.FFNHiddenSize,
		"max_position_embeddings", m.MaxPositions, "activation_function", activationName(m), "enable_bias", m.LinearBias, "do_layer_norm_before", !m.NormBehindSum,
		"word_embed_proj_dim", m.HiddenSize, "layer_norm_elementwise_affine", true, "dropout", 0.0, "attention_dropout", 0.0)
}

func miniMaxConfig(c map[string]any, m *spec.Model, positions int) {
	decoderConfig(c, m, positions)
	if e := m.Experts; e != nil {
		put(c, "num_local_experts", e.Num, "num_experts_per_tok", e.TopK, "intermediate_size", e.FFNHiddenSize, "output_router_logits", false, "attention_dropout", 0.0)
		if len(e.AuxLossCoeff) > 0 {
			put(c, "router_aux_loss_coef", e.AuxLossCoeff[0])
		}
	}
	put(c, "rotary_dim", m.RotaryDims())
}

func llama4Config(c map[string]any, m *spec.Model, positions int) {
	decoderConfig(c, m, positions)
	types, chunk := make([]string, m.NumLayers), any(nil)
	for i := range types {
		if types[i] = "full_attention"; m.ChunkAt(i) > 0 {
			types[i], chunk = "chunked_attention", m.Chunk
		}
	}
	put(c, "intermediate_size_mlp", m.FFNHiddenSize, "no_rope_layers", rotating(m), "moe_layers", []int{}, "attention_chunk_size", chunk, "layer_types", types,
		"use_qk_norm", m.QKL2Norm, "attn_temperature_tuning", m.QueryGrowth != 0, "floor_scale", max(1, m.QueryGrowthFrom), "attn_scale", otherwise(m.QueryGrowth, 0.1),
		"attention_bias", m.QKVBias, "num_local_experts", 1, "num_experts_per_tok", 1)
}

// falcon adds its tensors: the rows of query_key_value lie as ours.
func (mp *Mapping) falcon() {
	m := mp.Model
	h := m.HiddenSize
	mp.embedding("embedding.word_embeddings.weight", "transformer.word_embeddings.weight")
	for i := range m.NumLayers {
		ours, theirs := layerNames(i, "transformer.h.%d.")
		switch {
		case m.ParallelResidual && !m.ParallelOneNorm:
			mp.norm(ours+"input_layernorm", theirs+"ln_attn")
			mp.norm(ours+"pre_mlp_layernorm", theirs+"ln_mlp")
		default:
			mp.norm(ours+"input_layernorm", theirs+"input_layernorm")
			if !m.ParallelResidual {
				mp.norm(ours+"pre_mlp_layernorm", theirs+"post_attention_layernorm")
			}
		}
		mp.linear(ours+"self_attention.linear_qkv", []string{theirs + "self_attention.query_key_value"}, []int{m.QKVRows()}, h, m.QKVBias, false, nil)
		mp.linear(ours+"self_attention.linear_proj", []string{theirs + "self_attention.dense"}, []int{h}, h, m.HasProjBias(), false, nil)
		mp.linear(ours+"mlp.linear_fc1", []string{theirs + "mlp.dense_h_to_4h"}, []int{m.FFNHiddenSize}, h, m.LinearBias, false, nil)
		mp.linear(ours+"mlp.linear_fc2", []string{theirs + "mlp.dense_4h_to_h"}, []int{h}, m.FFNHiddenSize, m.LinearBias, false, nil)
	}
	mp.norm("decoder.final_layernorm", "transformer.ln_f")
}

// opt adds its tensors: of a model whose norms follow the sums, the last layer's is our
// final norm.
func (mp *Mapping) opt() {
	m := mp.Model
	h := m.HiddenSize
	mp.embedding("embedding.word_embeddings.weight", "model.decoder.embed_tokens.weight")
	mp.same("embedding.position_embeddings.weight", "model.decoder.embed_positions.weight", m.PositionRows(), h)
	first, second := "input_layernorm", "pre_mlp_layernorm"
	if m.NormBehindSum {
		first, second = "post_self_attn_layernorm", "post_mlp_layernorm"
	}
	for i := range m.NumLayers {
		ours, theirs := layerNames(i, "model.decoder.layers.%d.")
		mp.norm(ours+first, theirs+"self_attn_layer_norm")
		mp.attention(ours+"self_attention.", theirs+"self_attn.", "out_proj", m.QKVBias, m.HasProjBias())
		if m.NormBehindSum && i == m.NumLayers-1 {
			mp.norm("decoder.final_layernorm", theirs+"final_layer_norm")
		} else {
			mp.norm(ours+second, theirs+"final_layer_norm")
		}
		mp.linear(ours+"mlp.linear_fc1", []string{theirs + "fc1"}, []int{m.FFNHiddenSize}, h, m.LinearBias, false, nil)
		mp.linear(ours+"mlp.linear_fc2", []string{theirs + "fc2"}, []int{h}, m.FFNHiddenSize, m.LinearBias, false, nil)
	}
	if !m.NormBehindSum {
		mp.norm("decoder.final_layernorm", "model.decoder.final_layer_norm")
	}
}
