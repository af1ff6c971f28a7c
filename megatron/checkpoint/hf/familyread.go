package hf

import (
	"math"
	"slices"

	"monotron/megatron/spec"
)

// shape reads sizes, heads and positions of a family with Llama's keys; tied is its class's
// default.
func (c *reading) shape(f *fields, tied bool) {
	m := c.Model
	c.common(f, tied)
	m.NumLayers = c.size("num_hidden_layers", maxLayers, f.Layers)
	m.HiddenSize = c.size("hidden_size", maxSize, f.HiddenSize)
	m.FFNHiddenSize = c.size("intermediate_size", maxSize, f.Intermediate)
	c.groupedHeads(f)
	c.MaxPositions = c.optional("max_position_embeddings", f.MaxPositions, 2048)
	m.Normalization = spec.RMSNorm
	m.NormEpsilon = c.positive("rms_norm_eps", f.RMSNormEps, 1e-6)
}

// decoder is shape with RoPE and SwiGLU.
func (c *reading) decoder(f *fields, tied bool) {
	c.shape(f, tied)
	c.Model.Activation = c.activation("hidden_act", f.HiddenAct, "silu", true)
	c.rotary(f)
}

// layerWindows reads layer_types with windows, or those of the class where they are absent.
func (c *reading) layerWindows(f *fields, slides func(layer int) bool) {
	var on []bool
	switch {
	case f.SlidingWindow == nil && slices.Contains(f.LayerTypes, "sliding_attention"):
		c.fail("layer_types has sliding_attention, but sliding_window is null")
		return
	case len(f.LayerTypes) > 0:
		on = c.layerTypes(f.LayerTypes, true)
	case f.SlidingWindow != nil:
		for i := range c.Model.NumLayers {
			on = append(on, slides(i))
		}
	}
	if slices.Contains(on, true) {
		c.windows("sliding_window", f.SlidingWindow, on)
	}
}

// every is the class's rule of layers with a window: all but every n-th.
func (c *reading) every(pattern any, n int) func(layer int) bool {
	if pattern != nil {
		v, ok := pattern.(float64)
		if n = int(v); !ok || float64(n) != v || n < 1 || n > maxLayers {
			c.fail("sliding_window_pattern %v is not a number of layers; give layer_types", pattern)
			n = 1
		}
	}
	return func(layer int) bool { return (layer+1)%n != 0 }
}

// scoreScale sets the scale of scores where it is not the usual one.
func (c *reading) scoreScale(scale float64) {
	if m := c.Model; scale != m.ScoreScale() {
		m.SoftmaxScale = scale
	}
}

// separateBiases sets the biases of QKV, of attention's output and of the MLP.
func (c *reading) separateBiases(qkv, proj, mlp bool) {
	m := c.Model
	m.QKVBias, m.LinearBias, m.ProjBias, m.NoProjBias = qkv, mlp, proj && !mlp, mlp && !proj
}

func graniteAbsent(f *fields) {
	f.MaxPositions, f.Intermediate = number(2048), number(11008)
}

func (c *reading) granite(f *fields) {
	c.decoder(f, false)
	attention := given(f.AttentionBias, false)
	c.separateBiases(attention, attention, given(f.MLPBias, false))
	c.graniteFactors(f)
}

// graniteFactors reads Granite's multipliers.
func (c *reading) graniteFactors(f *fields) {
	m := c.Model
	m.EmbeddingScale = not1(c.positive("embedding_multiplier", f.EmbeddingMultiplier, 1))
	m.ResidualScale = not1(c.positive("residual_multiplier", f.ResidualMultiplier, 1))
	m.LogitScale = not1(1 / c.positive("logits_scaling", f.LogitsScaling, 1))
	c.scoreScale(c.positive("attention_multiplier", f.AttentionMultiplier, 1))
}

func gemma2Absent(f *fields) {
	f.KVHeads, f.HeadDim, f.MaxPositions, f.QueryScalar, f.SlidingWindow = number(4), number(256), number(8192), decimal(256), number(4096)
	f.ScoreCap, f.LogitCap = decimal(50), decimal(30)
}

func gemma3Absent(f *fields) {
	f.KVHeads, f.HeadDim, f.MaxPositions, f.QueryScalar, f.SlidingWindow = number(4), number(256), number(131072), decimal(256), number(4096)
	f.RopeTheta, f.RopeLocalBase = decimal(1e6), decimal(1e4)
}

// gemma reads Gemma 2 and the text of Gemma 3.
func (c *reading) gemma(f *fields) {
	m := c.Model
	c.shape(f, true)
	m.Activation = c.activation("hidden_activation", f.HiddenActivation, "gelu_pytorch_tanh", true)
	m.NormOnePlus, m.NormSandwich = true, true
	m.EmbeddingScale = not1(math.Sqrt(float64(m.HiddenSize)))
	pattern := 2
	if c.Family == Gemma3 {
		m.QKNorm, pattern = true, 6
	}
	c.layerWindows(f, c.every(f.WindowPattern, pattern))
	c.rotary(f)
	attention := given(f.AttentionBias, false)
	c.separateBiases(attention, attention, false)
	c.scoreScale(1 / math.Sqrt(c.positive("query_pre_attn_scalar", f.QueryScalar, 256)))
	m.ScoreCap = c.positive("attn_logit_softcapping", f.ScoreCap, 0)
	m.LogitCap = c.positive("final_logit_softcapping", f.LogitCap, 0)
	if on, is := f.Bidirectional.(bool); f.Bidirectional != nil && (!is || on) {
		c.fail("use_bidirectional_attention %v is not supported", f.Bidirectional)
	}
}

func olmo3Absent(f *fields) {
	f.SlidingWindow, f.RMSNormEps, f.MaxPositions, f.RopeTheta = number(4096), decimal(1e-5), number(2048), decimal(500000)
}

func (c *reading) olmo3(f *fields) {
	m := c.Model
	c.decoder(f, false)
	m.NormAfter, m.QKNorm, m.QKNormFull = true, true, true
	c.layerWindows(f, c.every(nil, 4))
	attention := given(f.AttentionBias, false)
	c.separateBiases(attention, attention, false)
}

func exaone4Absent(f *fields) {
	f.KVHeads, f.RMSNormEps, f.SlidingWindow, f.MaxPositions = number(32), decimal(1e-5), number(4096), number(2048)
}

func (c *reading) exaone4(f *fields) {
	m := c.Model
	c.decoder(f, false)
	m.NormAfter, m.QKNorm = true, true
	rule := c.every(nil, 4)
	if len(f.LayerTypes) == 0 {
		rule = c.every(f.WindowPattern, 4)
	}
	c.layerWindows(f, rule)
	if f.SlidingWindow == nil {
		return
	}
	m.NoRope = make([]bool, m.NumLayers)
	for i := range m.NoRope {
		m.NoRope[i] = !m.WindowedAt(i)
	}
	if !slices.Contains(m.NoRope, true) {
		m.NoRope = nil
	}
}

func seedAbsent(f *fields) {
	f.KVHeads, f.HeadDim, f.MaxPositions, f.AttentionBias = number(8), number(128), number(524288), yes(true)
}

func (c *reading) seedOSS(f *fields) {
	c.decoder(f, false)
	c.separateBiases(given(f.AttentionBias, true), given(f.OutBias, false), given(f.MLPBias, false))
}

func hunyuanAbsent(f *fields) { f.RMSNormEps, f.MaxPositions = decimal(1e-5), number(2048) }

func (c *reading) hunyuan(f *fields) {
	m := c.Model
	c.decoder(f, false)
	m.QKNorm, m.QKNormAfterRope = true, true
	attention := given(f.AttentionBias, false)
	c.separateBiases(attention, attention, false)
	c.refuse("mlp_bias", f.MLPBias, true)
	c.refuse("use_qk_norm", f.QueryKeyNorm, false)
}

func ernieAbsent(f *fields) {
	f.KVHeads, f.HeadDim, f.MaxPositions, f.RMSNormEps, f.RopeTheta = number(2), number(128), number(131072), decimal(1e-5), decimal(500000)
}

func (c *reading) ernie(f *fields) {
	c.decoder(f, true)
	c.Model.RotaryInterleaved = true
	bias := given(f.UseBias, false)
	c.separateBiases(bias, bias, bias)
}

func cohereAbsent(f *fields) {
	f.LogitScale, f.MaxPositions, f.RopeTheta = decimal(0.0625), number(8192), decimal(500000)
}

func (c *reading) cohere(f *fields) {
	m := c.Model
	c.decoder(f, true)
	m.Normalization, m.NormNoBias, m.NormEpsilon = spec.LayerNorm, true, c.positive("layer_norm_eps", f.NeoXEps, 1e-5)
	m.ParallelResidual, m.ParallelOneNorm, m.RotaryInterleaved = true, true, true
	m.LogitScale = not1(c.positive("logit_scale", f.LogitScale, 1))
	attention := given(f.AttentionBias, false)
	c.separateBiases(attention, attention, false)
	c.refuse("use_qk_norm", f.QueryKeyNorm, true) // LayerNorm with a weight for each channel of each head
}

func falconAbsent(f *fields) { f.MaxPositions = number(2048) }

// falcon reads its three kinds: 40B (new_decoder_architecture), 7B (multi_query,
// parallel_attn), RW (alibi).
func (c *reading) falcon(f *fields) {
	// Shape, norms, activation.
	m := c.Model
	c.common(f, true)
	m.NumLayers = c.size("num_hidden_layers", maxLayers, f.Layers)
	m.HiddenSize = c.size("hidden_size", maxSize, f.HiddenSize)
	c.evenHeads("num_attention_heads", c.size("num_attention_heads", maxSize, f.Heads))
	m.FFNHiddenSize = c.optional("ffn_hidden_size", f.FFNHidden, 4*m.HiddenSize)
	c.MaxPositions = c.optional("max_position_embeddings", f.MaxPositions, 2048)
	m.Normalization, m.NormEpsilon = spec.LayerNorm, c.positive("layer_norm_epsilon", f.LayerNormEps, 1e-5)
	m.Activation = c.activation("activation", f.FalconAct, "gelu", false)
	// Biases; keys and values of all heads, of groups, or of one head.
	bias, newer := given(f.Bias, false), given(f.NewDecoder, false)
	c.separateBiases(bias, bias, bias)
	switch {
	case newer:
		m.NumQueryGroups = c.optional("num_kv_heads", f.NumKVHeads, m.NumAttentionHeads)
		if m.NumAttentionHeads%m.NumQueryGroups != 0 {
			c.fail("num_kv_heads %d does not divide num_attention_heads %d", m.NumQueryGroups, m.NumAttentionHeads)
		}
	case given(f.MultiQuery, true):
		m.NumQueryGroups = 1
	}
	// Attention and MLP in parallel, behind one norm or two.
	m.ParallelResidual = newer || given(f.ParAttn, true)
	norms := c.optional("num_ln_in_parallel_attn", f.ParNorms, 2)
	if norms > 2 {
		c.fail("num_ln_in_parallel_attn is %d; it must be 1 or 2", norms)
	}
	m.ParallelOneNorm = m.ParallelResidual && (!newer || norms == 1)
	if given(f.Alibi, false) {
		m.Position, m.AlibiTable = spec.PositionAlibi, true
		return
	}
	c.rotary(f)
}

func optAbsent(f *fields) { f.MaxPositions = number(2048) }

func (c *reading) opt(f *fields) {
	m := c.Model
	c.common(f, true)
	m.NumLayers = c.size("num_hidden_layers", maxLayers, f.Layers)
	m.HiddenSize = c.size("hidden_size", maxSize, f.HiddenSize)
	c.evenHeads("num_attention_heads", c.size("num_attention_heads", maxSize, f.Heads))
	m.FFNHiddenSize = c.optional("ffn_dim", f.FFNDim, 3072)
	m.MaxPositions = c.size("max_position_embeddings", maxSize, f.MaxPositions)
	c.MaxPositions = m.MaxPositions
	m.Position, m.PositionOffset = spec.PositionLearned, 2
	m.Normalization, m.NormEpsilon = spec.LayerNorm, 1e-5
	m.Activation = c.activation("activation_function", f.Activation, "relu", false)
	bias := given(f.EnableBias, true)
	c.separateBiases(bias, bias, bias)
	m.NormBehindSum = !given(f.NormBefore, true)
	if f.EmbedProj != nil && int(*f.EmbedProj) != m.HiddenSize {
		c.fail("word_embed_proj_dim %d with hidden_size %d: projections of embeddings are not supported", *f.EmbedProj, m.HiddenSize)
	}
	c.refuse("layer_norm_elementwise_affine", f.NormAffine, false)
	c.refuse("_remove_final_layer_norm", f.NoFinalNorm, true)
}

func miniMaxAbsent(f *fields) {
	f.KVHeads, f.HeadDim, f.MaxPositions, f.ExpertsPerTok, f.RopeTheta = number(8), number(128), number(196608), number(8), decimal(5e6)
}

func (c *reading) miniMax(f *fields) {
	m := c.Model
	if f.RotaryDim != nil && f.HeadDim != nil && *f.HeadDim > 0 && f.PartialRotary == nil {
		f.PartialRotary = decimal(float64(*f.RotaryDim) / float64(*f.HeadDim))
	}
	c.decoder(f, false)
	m.QKNorm, m.QKNormFull = true, true
	c.experts(f)
	e := m.Experts
	e.ScoreFunction, e.ExpertBias, e.BiasUpdateRate, e.RouterDtype = spec.ScoreSigmoid, true, 0.001, "fp32"
	if e.TopK == 1 {
		c.fail("num_experts_per_tok 1 is not supported: this family divides the weights of a token's experts by their sum, so that a single expert always has the weight 1")
	}
}

func llama4Absent(f *fields) {
	f.KVHeads, f.HeadDim, f.MaxPositions, f.RMSNormEps, f.RopeTheta = number(8), number(128), number(131072), decimal(1e-5), decimal(500000)
	f.ChunkSize, f.QueryKeyNorm, f.Temperature, f.FloorScale, f.AttnScale, f.NoRopeInterval = number(8192), yes(true), yes(true), decimal(8192), decimal(0.1), number(4)
}

// llama4 reads models whose layers all have an MLP.
func (c *reading) llama4(f *fields) {
	m := c.Model
	c.decoder(f, false)
	m.FFNHiddenSize = c.size("intermediate_size_mlp", maxSize, f.DenseFFN)
	m.RotaryInterleaved = true
	if len(f.MoELayers) > 0 || f.MoELayers == nil {
		c.fail("layers with experts are not supported in this family; only models with \"moe_layers\": [] are supported")
	}
	attention := given(f.AttentionBias, false)
	c.separateBiases(attention, attention, false)
	if len(f.NoRope) == 0 {
		f.NoRope = nil
	}
	c.noRope(f)
	m.QKL2Norm = given(f.QueryKeyNorm, true)
	if given(f.Temperature, true) {
		m.QueryGrowth = c.positive("attn_scale", f.AttnScale, 0.1)
		if m.QueryGrowthFrom = int(*f.FloorScale); float64(m.QueryGrowthFrom) != *f.FloorScale || m.QueryGrowthFrom < 1 {
			c.fail("floor_scale is %v; it must be an integer of at least 1", *f.FloorScale)
		}
		if m.NoRope == nil {
			m.QueryGrowth, m.QueryGrowthFrom = 0, 0
		}
	}
	c.chunks(f)
}

// chunks reads which layers attend within chunks: layer_types, or those that rotate.
func (c *reading) chunks(f *fields) {
	m := c.Model
	on := make([]bool, m.NumLayers)
	for i := range on {
		on[i] = m.NoRope == nil || !m.NoRope[i]
	}
	if len(f.LayerTypes) > 0 {
		if len(f.LayerTypes) != m.NumLayers {
			c.fail("layer_types has %d entries for %d layers", len(f.LayerTypes), m.NumLayers)
			return
		}
		for i, kind := range f.LayerTypes {
			if on[i] = kind == "chunked_attention"; !on[i] && kind != "full_attention" {
				c.fail("layer_types: %q is not supported", kind)
			}
		}
	}
	if f.ChunkSize == nil || !slices.Contains(on, true) {
		return
	}
	if m.Chunk = c.size("attention_chunk_size", math.MaxInt32, f.ChunkSize); slices.Contains(on, false) {
		m.Windowed = on
	}
}
