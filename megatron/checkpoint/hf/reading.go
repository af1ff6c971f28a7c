package hf

import (
	"fmt"
	"math"
	"slices"

	"monotron/csrc/device/activations"
	"monotron/megatron/spec"
)

// reading collects every problem of a config.
type reading struct {
	Config
	row      *row
	problems []error
}

func (c *reading) fail(format string, args ...any) {
	c.problems = append(c.problems, fmt.Errorf(format, args...))
}

// size is the first given value, which must be 1 to limit.
func (c *reading) size(name string, limit int64, values ...*int64) int {
	for _, v := range values {
		if v == nil {
			continue
		}
		if *v < 1 || *v > limit {
			c.fail("%s is %d; it must be from 1 to %d", name, *v, limit)
			return 1
		}
		return int(*v)
	}
	c.fail("%s is missing", name)
	return 1
}

func (c *reading) optional(name string, v *int64, otherwise int) int {
	if v == nil {
		return otherwise
	}
	return c.size(name, maxSize, v)
}

func (c *reading) positive(name string, v *float64, otherwise float64) float64 {
	if v == nil {
		return otherwise
	}
	if !(*v > 0) || math.IsInf(*v, 0) {
		c.fail("%s is %v; it must be above 0", name, *v)
	}
	return *v
}

func (c *reading) refuse(name string, v *bool, refused bool) {
	if v != nil && *v == refused {
		c.fail("%s = %v is not supported", name, *v)
	}
}

func given(v *bool, otherwise bool) bool {
	if v == nil {
		return otherwise
	}
	return *v
}

// common fills what every family says under the same name.
func (c *reading) common(f *fields, tied bool) {
	m := c.Model
	m.VocabSize = c.size("vocab_size", maxSize, f.VocabSize)
	m.PaddedVocabSize = m.VocabSize
	m.InitStd = c.positive("initializer_range", f.InitializerRange, 0.02)
	m.EmbeddingInitStd = m.InitStd
	m.Tied = given(f.Tie, tied)
	m.RotaryPercent = 1
}

// evenHeads sets the heads of a family without grouped queries.
func (c *reading) evenHeads(name string, heads int) {
	m := c.Model
	m.NumAttentionHeads, m.NumQueryGroups = heads, heads
	if m.HiddenSize%heads != 0 {
		c.fail("%s %d does not divide the hidden size %d", name, heads, m.HiddenSize)
	}
	m.KVChannels = max(1, m.HiddenSize/heads)
}

func (c *reading) groupedHeads(f *fields) {
	m := c.Model
	m.NumAttentionHeads = c.size("num_attention_heads", maxSize, f.Heads)
	m.NumQueryGroups = c.optional("num_key_value_heads", f.KVHeads, m.NumAttentionHeads)
	if m.NumAttentionHeads%m.NumQueryGroups != 0 {
		c.fail("num_key_value_heads %d does not divide num_attention_heads %d", m.NumQueryGroups, m.NumAttentionHeads)
	}
	if f.HeadDim != nil {
		m.KVChannels = c.size("head_dim", maxSize, f.HeadDim)
		return
	}
	if m.HiddenSize%m.NumAttentionHeads != 0 {
		c.fail("num_attention_heads %d does not divide hidden_size %d, and head_dim is not given", m.NumAttentionHeads, m.HiddenSize)
	}
	m.KVChannels = max(1, m.HiddenSize/m.NumAttentionHeads)
}

func (c *reading) biases(f *fields) {
	m := c.Model
	switch c.Family {
	case Qwen2:
		m.QKVBias = true
	case Qwen2MoE:
		m.QKVBias = given(f.QueryKeyBias, true)
	case GLM4MoE:
		m.QKVBias = given(f.AttentionBias, false) // the output has none
	case DeepSeekV2, DeepSeekV3, KimiK2, GLM4MoELite:
		c.refuse("attention_bias", f.AttentionBias, true)
	case Qwen3, Olmo2, Qwen3MoE, OLMoE:
		attention := given(f.AttentionBias, false)
		c.separateBiases(attention, attention, false)
	case Llama, SmolLM3:
		attention := given(f.AttentionBias, false)
		c.separateBiases(attention, attention, given(f.MLPBias, false))
	}
}

// activation reads the name of an activation; of a gated one that of its first half.
func (c *reading) activation(field string, given *string, otherwise string, gated bool) string {
	if given == nil {
		given = &otherwise
	}
	a, err := activations.OfHF(*given, gated)
	if err != nil {
		c.fail("%s %v", field, err)
		return ""
	}
	return a.String()
}

// queryKeyNorms reads the norms of queries and keys: of each head, or of the complete row.
func (c *reading) queryKeyNorms(f *fields) {
	m := c.Model
	switch c.Family {
	case Qwen3, Qwen3MoE:
		m.QKNorm = true
	case GLM4MoE:
		m.QKNorm = given(f.QueryKeyNorm, false)
	case Olmo2, OLMoE:
		m.QKNorm, m.QKNormFull, m.NormAfter = true, true, c.Family == Olmo2
	}
	if c.Family == OLMoE {
		if m.NumAttentionHeads*m.KVChannels != m.HiddenSize {
			c.fail("head_dim %d with %d heads and hidden size %d is not supported: in this class, the widths of the heads must add up to the hidden size", m.KVChannels, m.NumAttentionHeads, m.HiddenSize)
		}
		if f.ClipQKV != nil {
			c.fail("clip_qkv %v is not supported", *f.ClipQKV)
		}
	}
}

func (c *reading) gpt2(f *fields) {
	m := c.Model
	c.common(f, true)
	m.NumLayers = c.size("n_layer", maxLayers, f.NLayer, f.Layers)
	m.HiddenSize = c.size("n_embd", maxSize, f.NEmbd, f.HiddenSize)
	c.evenHeads("n_head", c.size("n_head", maxSize, f.NHead, f.Heads))
	m.FFNHiddenSize = c.optional("n_inner", f.NInner, 4*m.HiddenSize)
	m.MaxPositions = c.size("n_positions", maxSize, f.NPositions, f.MaxPositions)
	c.MaxPositions = m.MaxPositions
	m.Position, m.Normalization = spec.PositionLearned, spec.LayerNorm
	m.NormEpsilon = c.positive("layer_norm_epsilon", f.LayerNormEps, 1e-5)
	m.LinearBias, m.QKVBias = true, true
	m.Activation = c.activation("activation_function", f.Activation, "gelu_new", false)
	c.refuse("scale_attn_weights", f.ScaleAttention, false)
	c.refuse("scale_attn_by_inverse_layer_idx", f.ScaleByLayer, true)
	c.refuse("add_cross_attention", f.CrossAttention, true)
}

// gptNeo is GPT-2 with a window in every other layer, without biases of queries, keys
// and values, and with scores as they are.
func (c *reading) gptNeo(f *fields) {
	m := c.Model
	c.common(f, true)
	m.NumLayers = c.size("num_layers", maxLayers, f.NumLayers, f.Layers)
	m.HiddenSize = c.size("hidden_size", maxSize, f.HiddenSize)
	c.evenHeads("num_heads", c.size("num_heads", maxSize, f.NumHeads, f.Heads))
	m.FFNHiddenSize = c.optional("intermediate_size", f.Intermediate, 4*m.HiddenSize)
	m.MaxPositions = c.size("max_position_embeddings", maxSize, f.MaxPositions)
	c.MaxPositions = m.MaxPositions
	m.Position, m.Normalization = spec.PositionLearned, spec.LayerNorm
	m.NormEpsilon = c.positive("layer_norm_epsilon", f.LayerNormEps, 1e-5)
	m.LinearBias, m.SoftmaxScale = true, 1
	m.Activation = c.activation("activation_function", f.Activation, "gelu_new", false)
	if on := c.neoWindows(f); slices.Contains(on, true) {
		c.windows("window_size", f.WindowSize, on)
	}
}

// gptNeoX is GPT-2 with RoPE of some channels, and a matrix of its own at the end.
func (c *reading) gptNeoX(f *fields) {
	m := c.Model
	c.common(f, false)
	m.NumLayers = c.size("num_hidden_layers", maxLayers, f.Layers)
	m.HiddenSize = c.size("hidden_size", maxSize, f.HiddenSize)
	c.evenHeads("num_attention_heads", c.size("num_attention_heads", maxSize, f.Heads))
	m.FFNHiddenSize = c.size("intermediate_size", maxSize, f.Intermediate)
	c.MaxPositions = c.optional("max_position_embeddings", f.MaxPositions, 2048)
	m.Normalization, m.NormEpsilon = spec.LayerNorm, c.positive("layer_norm_eps", f.NeoXEps, 1e-5)
	attention := given(f.AttentionBias, true)
	c.separateBiases(attention, attention, true)
	m.Activation = c.activation("hidden_act", f.HiddenAct, "gelu", false)
	f.RopeTheta, f.PartialRotary = f.NeoXTheta, f.NeoXPartial
	c.rotary(f)
	m.ParallelResidual = given(f.Parallel, true)
}

// starcoder2 is Llama with LayerNorm, biases and a plain MLP.
func (c *reading) starcoder2(f *fields) {
	m := c.Model
	c.common(f, true)
	m.NumLayers = c.size("num_hidden_layers", maxLayers, f.Layers)
	m.HiddenSize = c.size("hidden_size", maxSize, f.HiddenSize)
	m.FFNHiddenSize = c.size("intermediate_size", maxSize, f.Intermediate)
	c.groupedHeads(f)
	c.MaxPositions = c.optional("max_position_embeddings", f.MaxPositions, 4096)
	m.Normalization, m.NormEpsilon = spec.LayerNorm, c.positive("norm_epsilon", f.NormEps, 1e-5)
	m.Activation = c.activation("hidden_act", f.HiddenAct, "gelu_pytorch_tanh", false)
	m.LinearBias = given(f.UseBias, true)
	m.QKVBias = m.LinearBias
	c.rotary(f)
	c.window(f)
}

func (c *reading) bloom(f *fields) {
	m := c.Model
	c.common(f, true)
	m.NumLayers = c.size("n_layer", maxLayers, f.NLayer, f.Layers)
	m.HiddenSize = c.size("hidden_size", maxSize, f.HiddenSize, f.NEmbed, f.NEmbd)
	c.evenHeads("n_head", c.size("n_head", maxSize, f.NHead, f.Heads))
	m.FFNHiddenSize = 4 * m.HiddenSize
	c.MaxPositions = c.optional("seq_length", f.SeqLength, 2048)
	m.Position, m.Normalization, m.EmbedNorm = spec.PositionAlibi, spec.LayerNorm, true
	m.NormEpsilon = c.positive("layer_norm_epsilon", f.LayerNormEps, 1e-5)
	m.LinearBias, m.QKVBias = true, true
	m.Activation = spec.GeluTanh // BloomGelu is the tanh form
	c.refuse("apply_residual_connection_post_layernorm", f.PostNorm, true)
	c.refuse("tie_word_embeddings", f.Tie, false)
}

// llama reads the family of RMSNorm, RoPE and SwiGLU.
func (c *reading) llama(f *fields) {
	c.decoder(f, c.Family == SmolLM3)
	c.biases(f)
	if c.Family == SmolLM3 {
		c.noRope(f)
	}
	c.window(f)
	c.queryKeyNorms(f)
	if f.NextTokens != nil && *f.NextTokens != 0 {
		c.Further = c.size("num_nextn_predict_layers", maxLayers, f.NextTokens)
	}
	switch {
	case c.row.mixture != nil:
		c.experts(f)
	case f.Experts != nil || f.LocalExperts != nil:
		c.fail("num_experts or num_local_experts is given, but a %s model has no experts", c.Family)
	}
}

// unknown refuses a family without a row.
func (c *reading) unknown(family string) {
	if family == "" {
		c.fail("model_type is missing")
		return
	}
	if lacks := unheld[family]; lacks != "" {
		c.fail("model_type %q is not supported: its layers use %s; the supported types are %s", family, lacks, Known)
		return
	}
	c.fail("model_type %q is unknown; the supported types are %s", family, Known)
}

// What classes have where a key is absent, and Llama's does not; null is another thing, and takes it away.

func mistralAbsent(f *fields) {
	f.KVHeads, f.SlidingWindow, f.MaxPositions = number(8), number(4096), number(131072)
}

func olmo2Absent(f *fields)      { f.RMSNormEps = decimal(1e-5) }
func gptNeoAbsent(f *fields)     { f.MaxPositions, f.WindowSize = number(2048), number(256) }
func gptNeoXAbsent(f *fields)    { f.MaxPositions, f.NeoXPartial = number(2048), decimal(0.25) }
func phi3Absent(f *fields)       { f.MaxPositions, f.RMSNormEps = number(4096), decimal(1e-5) }
func starcoder2Absent(f *fields) { f.KVHeads, f.MaxPositions = number(2), number(4096) }

func smolLM3Absent(f *fields) {
	f.KVHeads, f.MaxPositions, f.RopeTheta, f.NoRopeInterval = number(4), number(32768), decimal(2e6), number(4)
}

func mixtralAbsent(f *fields) {
	f.KVHeads, f.RopeTheta, f.RMSNormEps, f.MaxPositions, f.ExpertsPerTok = number(8), decimal(1e6), decimal(1e-5), number(131072), number(2)
}

func olmoeAbsent(f *fields) {
	f.RMSNormEps, f.MaxPositions, f.ExpertsPerTok, f.RouterAuxLoss = decimal(1e-5), number(4096), number(8), decimal(0.01)
}

func qwen2Absent(f *fields) {
	f.KVHeads, f.SlidingWindow, f.MaxWindowLayers, f.MaxPositions = number(32), number(4096), number(28), number(32768)
}

func qwen3Absent(f *fields) {
	qwen2Absent(f)
	f.HeadDim = number(128)
}

func qwen2MoEAbsent(f *fields) {
	f.KVHeads, f.SlidingWindow, f.MaxWindowLayers, f.MaxPositions, f.ExpertsPerTok = number(16), number(4096), number(28), number(32768), number(4)
	f.MoEIntermediate, f.SharedIntermediate = number(1408), number(5632)
}

func qwen3MoEAbsent(f *fields) {
	f.KVHeads, f.SlidingWindow, f.MaxPositions, f.ExpertsPerTok, f.MoEIntermediate = number(4), number(4096), number(32768), number(8), number(768)
}

func glm4MoEAbsent(f *fields) {
	f.KVHeads, f.RMSNormEps, f.MaxPositions, f.PartialRotary, f.ExpertsPerTok = number(8), decimal(1e-5), number(131072), decimal(0.5), number(8)
	f.MoEIntermediate, f.SharedExperts, f.FirstDense, f.NextTokens = number(1408), number(1), number(1), number(1)
	f.ScoringFunc, f.TopKMethod = word("sigmoid"), word("noaux_tc")
}
