package hf

import (
	"math"
	"slices"

	"monotron/megatron/spec"
)

// Nemotron-H, Nemotron Nano 2 and Nemotron 3: a layer is a state-space scan, an attention, an MLP or a mixture.

func nemotronHAbsent(f *fields) {
	f.VocabSize, f.HiddenSize, f.Intermediate, f.MaxPositions = number(131072), number(4096), number(21504), number(4096)
	f.Heads, f.KVHeads, f.HeadDim, f.LayerNormEps = number(32), number(8), number(128), decimal(1e-5)
	f.ScanHeads, f.ScanGroups, f.ScanState, f.ScanHeadDim, f.ScanTaps = number(128), number(8), number(128), number(64), number(4)
	f.ScanConvBias, f.TimeStepLimits = yes(true), timeLimits{0, math.Inf(1)}
	f.ExpertsPerTok, f.MoEIntermediate, f.SharedWidth, f.SharedExperts = number(2), number(7688), number(7688), number(1)
	f.ScoringFunc, f.TopKMethod, f.RouterAuxLoss = word("sigmoid"), word("noaux_tc"), decimal(0)
}

func (c *reading) nemotronH(f *fields) {
	m := c.Model
	layers := c.hybridLayers(f)
	f.Layers, f.RMSNormEps = number(int64(len(layers.Sublayers))), f.LayerNormEps
	c.shape(f, false)
	m.Position, m.Sublayers = spec.PositionNone, layers.Sublayers
	if m.Activation = c.activation("mlp_hidden_act", f.MLPAct, "relu2", false); m.Gated() {
		c.fail("mlp_hidden_act %s is not supported: the MLPs of transformers' class have no gate", text(f.MLPAct))
	}
	if act := text(f.ScanAct); act != "" && act != "silu" {
		c.fail("mamba_hidden_act %q is not supported; it must be silu", act)
	}
	if m.Tied {
		c.fail("tie_word_embeddings = true is not supported: transformers' class does not tie weights")
	}
	for name, v := range map[string]*bool{"use_bias": f.UseBias, "mlp_bias": f.MLPBias, "attention_bias": f.AttentionBias, "mamba_proj_bias": f.MambaProjBias, "residual_in_fp32": f.ResidualF32} {
		c.refuse(name, v, true)
	}
	if f.SlidingWindow != nil {
		c.fail("sliding_window %d is not supported: transformers' class ignores it", *f.SlidingWindow)
	}
	if slices.Contains(layers.Experts, true) {
		c.experts(f)
		m.Experts.Layers, m.Experts.SharedFFN = layers.Experts, c.size("moe_shared_expert_intermediate_size", maxSize, f.SharedWidth)
		if f.LatentExperts != nil {
			m.Experts.LatentSize = c.size("moe_latent_size", maxSize, f.LatentExperts)
		}
		if n := f.SharedExperts; n != nil && *n != 1 {
			c.fail("n_shared_experts %d is not supported: transformers' class always has one", *n)
		}
	}
	if slices.Contains(layers.Scans, true) {
		c.addScans(f, &spec.Mamba{Heads: c.size("mamba_num_heads", maxSize, f.ScanHeads), Groups: c.size("n_groups", maxSize, f.ScanGroups), HeadDim: c.size("mamba_head_dim", maxSize, f.ScanHeadDim),
			StateDim: c.size("ssm_state_size", maxSize, f.ScanState), Taps: c.size("conv_kernel", spec.MostTaps, f.ScanTaps), ConvBias: given(f.ScanConvBias, true), Layers: layers.Scans},
			"mamba_num_heads", "n_groups", "mamba_num_heads, mamba_head_dim, n_groups and ssm_state_size")
	}
}

// hybridLayers are those of layers_block_type, in the words of transformers 5 or of Nvidia's code, or of
// hybrid_override_pattern, which counts where there are no words.
func (c *reading) hybridLayers(f *fields) spec.HybridLayers {
	words := f.BlockTypes
	if words == nil {
		words = f.LayerTypes
	}
	pattern := text(f.HybridPattern)
	if words != nil {
		pattern = ""
		symbols := map[string]string{"linear_attention": "M", "mamba": "M", "full_attention": "*", "attention": "*", "mlp": "-", "moe": "E"}
		for _, kind := range words {
			if symbols[kind] == "" {
				c.fail("layers_block_type: %q is not supported", kind)
			}
			pattern += symbols[kind]
		}
	} else if f.HybridPattern == nil {
		pattern = "ME*-"
	}
	layers, err := spec.ParseHybrid(pattern)
	if err != nil {
		c.fail("hybrid_override_pattern %q: %v", pattern, err)
	}
	if n := f.Layers; n != nil && int(*n) != len(pattern) {
		c.fail("num_hidden_layers is %d, but the list of layer types has %d entries", *n, len(pattern))
	}
	return layers
}

func nemotronHConfig(c map[string]any, m *spec.Model, positions int) {
	decoderConfig(c, m, positions)
	delete(c, "rms_norm_eps")
	delete(c, "hidden_act")
	kinds := make([]string, m.NumLayers)
	for i := range kinds {
		switch k := m.KindAt(i); {
		case k.Scan:
			kinds[i] = "linear_attention"
		case k.Mixture:
			kinds[i] = "moe"
		case k.Mixer:
			kinds[i] = "full_attention"
		default:
			kinds[i] = "mlp"
		}
	}
	// Nvidia's code and llama.cpp read the pattern.
	put(c, "layers_block_type", kinds, "hybrid_override_pattern", m.Hybrid(), "layer_norm_epsilon", m.NormEpsilon, "mlp_hidden_act", activationName(m), "mamba_hidden_act", "silu",
		"attention_bias", false, "mlp_bias", false, "use_bias", false, "mamba_proj_bias", false, "residual_in_fp32", false, "sliding_window", nil, "num_logits_to_keep", 1, "num_nextn_predict_layers", 0)
	nemotronScanConfig(c, m)
	if e := m.Experts; e != nil {
		put(c, "n_routed_experts", e.Num, "num_experts_per_tok", e.TopK, "moe_intermediate_size", e.FFNHiddenSize, "n_shared_experts", 1, "moe_shared_expert_intermediate_size", e.SharedFFN,
			"moe_latent_size", nil, "norm_topk_prob", e.TopK > 1, "routed_scaling_factor", real(otherwise(e.ScalingFactor, 1)), "n_group", max(1, e.NumGroups), "topk_group", max(1, e.GroupTopK))
		if e.LatentSize > 0 {
			c["moe_latent_size"] = e.LatentSize
		}
	}
}

// nemotronScanConfig writes the shape of scans. transformers 5 raises time steps to time_step_min, whatever
// time_step_limit says: it is 0 but for a logarithm that the class takes of it.
func nemotronScanConfig(c map[string]any, m *spec.Model) {
	s := m.Mamba
	if s == nil {
		return
	}
	put(c, "mamba_num_heads", s.Heads, "n_groups", s.Groups, "ssm_state_size", s.StateDim, "mamba_head_dim", s.HeadDim, "conv_kernel", s.Taps, "expand", max(1, s.Inner()/m.HiddenSize),
		"use_conv_bias", s.ConvBias, "chunk_size", 128, "time_step_limit", limitsConfig(s), "time_step_min", otherwise(s.DtMin, 1e-30), "time_step_max", 0.1, "time_step_floor", 1e-4)
}

// nemotronH adds its tensors.
func (mp *Mapping) nemotronH() {
	m := mp.Model
	h := m.HiddenSize
	mp.embedding("embedding.word_embeddings.weight", "backbone.embeddings.weight")
	for i := range m.NumLayers {
		ours, theirs := layerNames(i, "backbone.layers.%d.")
		kind, norm := m.KindAt(i), "pre_mlp_layernorm"
		if kind.Mixer {
			norm = "input_layernorm"
		}
		mp.norm(ours+norm, theirs+"norm")
		switch mixer := theirs + "mixer."; {
		case kind.Scan:
			mp.mamba(ours+"mixer.", mixer)
		case kind.Mixer:
			mp.attention(ours+"self_attention.", mixer, "o_proj", false, false)
		case kind.Mixture:
			mp.experts(ours+"mlp.", theirs)
		default:
			mp.linear(ours+"mlp.linear_fc1", []string{mixer + "up_proj"}, []int{m.FFNHiddenSize}, h, false, false, nil)
			mp.linear(ours+"mlp.linear_fc2", []string{mixer + "down_proj"}, []int{h}, m.FFNHiddenSize, false, false, nil)
		}
	}
	mp.norm("decoder.final_layernorm", "backbone.norm_f")
}
