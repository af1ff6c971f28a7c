package hf

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"monotron/csrc/device/activations"
	"monotron/internal/exitcode"
	"monotron/megatron/spec"
)

// FamilyOf names the family that can express m: what a model trained here is
// exported as. The error says what the nearest family lacks.
func FamilyOf(m *spec.Model) (string, error) {
	var family string
	switch {
	case m.Experts != nil:
		family = mixtureFamily(m)
	case m.NormAfter:
		family = Olmo2
	case m.Position == spec.PositionLearned && m.LinearBias && !m.QKVBias:
		family = GPTNeo
	case m.Position == spec.PositionLearned:
		family = GPT2
	case m.Position == spec.PositionAlibi:
		family = Bloom
	case m.ParallelResidual || m.Normalization == spec.LayerNorm && m.NumQueryGroups == m.NumAttentionHeads && m.LinearBias && m.WindowLeft < 0:
		family = GPTNeoX
	case m.Normalization == spec.LayerNorm:
		family = Starcoder2
	case m.NoRope != nil:
		family = SmolLM3
	case m.RotaryDims() != m.KVChannels:
		family = Phi3
	case m.QKNorm:
		family = Qwen3
	case m.QKVBias && !m.LinearBias:
		family = Qwen2
	case m.WindowLeft >= 0:
		family = Mistral
	default:
		family = Llama
	}
	err := Expresses(family, m)
	if err != nil {
		if other := rowOf(m); other != "" {
			return other, nil
		}
	}
	return family, err
}

// mixtureFamily is FamilyOf for a model with experts.
func mixtureFamily(m *spec.Model) string {
	switch e := m.Experts; {
	case m.Delta != nil:
		return Qwen3Next
	case m.Latent != nil && e.ScoreFunction == spec.ScoreSigmoid:
		return DeepSeekV3
	case m.Latent != nil:
		return DeepSeekV2
	case e.ExpertBias || e.ScoreFunction != spec.ScoreSoftmax:
		return GLM4MoE
	case m.QKNormWhole:
		return OLMoE
	case m.QKNorm:
		return Qwen3MoE
	case e.SharedFFN > 0:
		return Qwen2MoE
	}
	return Mixtral
}

// Expresses tells whether family's architecture can hold m; the error lists
// everything that it cannot.
func Expresses(family string, m *spec.Model) error {
	if row, ok := rows[family]; ok {
		return row.expresses(family, m)
	}
	var lacks []string
	need := func(ok bool, format string, args ...any) {
		if !ok {
			lacks = append(lacks, fmt.Sprintf(format, args...))
		}
	}
	need(m.Latent == nil, "multi-latent attention (--multi-latent-attention)")
	need(m.Full == nil, "other heads in layers without a window (--full-attention-kv-channels, --full-attention-query-groups)")
	need(m.Conv == nil, "short convolutions (--short-conv-freq)")
	need(m.Delta == nil, "gated delta nets (--experimental-attention-variant)")
	need(!m.ParallelResidual || family == GPTNeoX, "attention and MLP in parallel (--parallel-residual; only gpt_neox supports it)")
	need(m.NormAfter == (family == Olmo2), "norms after attention and MLP: %v", m.NormAfter)
	need(m.QKNormWhole == (family == Olmo2 || family == OLMoE), "norms of all heads' queries and keys together: %v", m.QKNormWhole)
	need(m.Windowed == nil || slices.Contains([]string{GPTNeo, SmolLM3, Qwen2, Qwen3, Qwen2MoE}, family), "a window in some layers only")
	if family == GPTNeo {
		need(m.ScoreScale() == 1, "scores times %g (--softmax-scale)", m.ScoreScale())
	} else {
		need(m.ScoreScale() == 1/math.Sqrt(float64(m.KVChannels)), "scores times %g (--softmax-scale)", m.ScoreScale())
	}
	for _, p := range spec.Parts() {
		if _, given := p.Value(m); p.Field != "RopeRule" {
			need(!given, "%s (--%s)", p.What, p.Flag)
		} else {
			need(!given || slices.Contains(llamas, family) && family != GPTNeoX && family != Starcoder2, "%s (--%s)", p.What, p.Flag)
		}
	}
	need(!m.NormOnePlus, "norm weights stored as weight-1 (--apply-layernorm-1p)")
	switch family {
	case GPT2, GPTNeo, Bloom:
		plain(family, m, need)
	case GPTNeoX, Starcoder2, Llama, Mistral, Phi3, SmolLM3, Qwen2, Qwen3, Mixtral, Olmo2, Qwen2MoE, Qwen3MoE, OLMoE, GLM4MoE:
		rotary(family, m, need)
	default:
		return exitcode.Errorf(exitcode.Usage, "unknown family %q; choose from %s", family, Known)
	}
	mixture(family, m, need)
	if len(lacks) > 0 {
		return exitcode.With(exitcode.Usage, &inexpressible{fmt.Sprintf("the %s architecture of Hugging Face", family), lacks})
	}
	return nil
}

// inexpressible is what a model has and those who should hold it have not.
type inexpressible struct {
	holder string
	lacks  []string
}

func (e *inexpressible) Error() string {
	return e.holder + " cannot represent: " + strings.Join(e.lacks, "; ")
}

type needs func(ok bool, format string, args ...any)

// activationName is what Hugging Face's configs call the activation; "" where they have no word.
func activationName(m *spec.Model) string {
	a, err := activations.Of(m.Activation)
	if err != nil || len(a.Row().HF) == 0 {
		return ""
	}
	return a.Row().HF[0]
}

func plain(family string, m *spec.Model, need needs) {
	position, activation := spec.PositionLearned, !m.Gated() && activationName(m) != ""
	if family == Bloom {
		position, activation = spec.PositionAlibi, m.Activation == spec.GeluTanh
		need(m.FFNHiddenSize == 4*m.HiddenSize, "an MLP of width %d with hidden size %d", m.FFNHiddenSize, m.HiddenSize)
		need(m.Tied, "a separate output layer")
	}
	need(m.Position == position, "%s positions", m.Position)
	need(activation, "the %s activation", m.Activation)
	need(m.EmbedNorm == (family == Bloom), "embedding norm: %v", m.EmbedNorm)
	need(m.Normalization == spec.LayerNorm, "%s", m.Normalization)
	need(m.LinearBias, "linear layers without biases")
	need(m.QKVBias == (family != GPTNeo), "biases of QKV: %v", m.QKVBias)
	need(m.NumQueryGroups == m.NumAttentionHeads, "grouped queries")
	need(m.NumAttentionHeads*m.KVChannels == m.HiddenSize, "%d heads of width %d in a hidden size of %d", m.NumAttentionHeads, m.KVChannels, m.HiddenSize)
	need(!m.QKNorm, "norms of queries and keys")
	need(m.WindowLeft < 0 || family == GPTNeo, "a sliding window")
}

func rotary(family string, m *spec.Model, need needs) {
	need(m.Position == spec.PositionRope, "%s positions", m.Position)
	need(m.NoRope == nil || family == SmolLM3, "layers without rotation (--no-rope-freq; smollm3 has them)")
	need(m.RotaryDims() == m.KVChannels || slices.Contains(turnsPart, family), "rotation of %d of a head's %d channels (--rotary-percent %v; supported by phi3, gpt_neox, glm4_moe, Megatron's formats and the native one)",
		m.RotaryDims(), m.KVChannels, m.RotaryPercent)
	need(!m.RotaryInterleaved, "interleaved rotary channels")
	need(m.RotaryInterpolation <= 1 || m.RopeScaling == nil, "rotary interpolation together with Llama-3 scaling")
	plainMLP := family == GPTNeoX || family == Starcoder2
	need(m.Gated() != plainMLP && activationName(m) != "", "the %s activation", m.Activation)
	need(!m.EmbedNorm, "an embedding norm")
	need(m.Normalization == map[bool]string{false: spec.RMSNorm, true: spec.LayerNorm}[plainMLP], "%s", m.Normalization)
	if family == GPTNeoX {
		need(m.NumQueryGroups == m.NumAttentionHeads, "grouped queries")
		need(m.NumAttentionHeads*m.KVChannels == m.HiddenSize, "%d heads of width %d in a hidden size of %d", m.NumAttentionHeads, m.KVChannels, m.HiddenSize)
	}
	normed := slices.Contains([]string{Qwen3, Olmo2, Qwen3MoE, OLMoE}, family)
	need(m.QKNorm == normed || family == GLM4MoE, "norms of queries and keys: %v", m.QKNorm)
	need(rotaryBiases(family, m.QKVBias, m.LinearBias), "biases of QKV: %v, of the other linear layers: %v", m.QKVBias, m.LinearBias)
	need(m.WindowLeft < 0 || slices.Contains([]string{Mistral, Mixtral, Phi3, SmolLM3, Starcoder2, Qwen2, Qwen3, Qwen2MoE, Qwen3MoE}, family), "a sliding window")
}

// rotaryBiases tells whether a family has these biases.
func rotaryBiases(family string, qkv, others bool) bool {
	switch family {
	case Llama, SmolLM3, Starcoder2:
		return qkv == others
	case GPTNeoX:
		return qkv && others
	case Qwen2:
		return qkv && !others
	case Qwen2MoE, GLM4MoE:
		return !others
	}
	return !qkv && !others
}
