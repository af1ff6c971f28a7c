package spec

import (
	"math"

	"monotron/csrc/device/activations"
)

// Position embeddings (--position-embedding-type).
const (
	PositionLearned = "learned_absolute"
	PositionRope    = "rope"
	PositionAlibi   = "alibi"
	PositionNone    = "none"
)

// Normalizations (--normalization).
const (
	LayerNorm = "LayerNorm"
	RMSNorm   = "RMSNorm"
)

// Activations of the MLP that code speaks of, by name; package activations has them all.
var (
	GeluTanh    = activations.GeluTanh.String()
	GeluErf     = activations.GeluErf.String()
	SquaredRelu = activations.SquaredRelu.String()
	Swiglu      = activations.Swiglu.String()
	QuickGeglu  = activations.QuickGeglu.String()
)

// RopeScaling is the Llama-3 rule: wavelengths above OriginalMax/LowFreq are
// slowed Factor times, those below OriginalMax/HighFreq stay, smooth between.
type RopeScaling struct {
	Factor, LowFreq, HighFreq float64
	OriginalMax               int // positions
}

// Model is the shape of a GPT model. Zero is not a default: arguments and the
// readers of foreign checkpoints fill every field.
type Model struct {
	NumLayers         int
	HiddenSize        int
	FFNHiddenSize     int
	NumAttentionHeads int
	NumQueryGroups    int // KV heads; = NumAttentionHeads without GQA
	KVChannels        int // width of one head

	VocabSize       int // of the tokenizer
	PaddedVocabSize int // rows of the embedding
	MaxPositions    int // rows of the learned position embedding; 0 without one
	Context         int // longest sequence the model is meant for (--max-position-embeddings); 0: not said

	Position            string
	RotaryBase          float64
	RotaryPercent       float64
	RotaryInterleaved   bool
	RotaryInterpolation float64      // positions are divided by it; 0 or 1: not
	RopeScaling         *RopeScaling // nil: none
	NoRope              []bool       // [NumLayers], true where queries and keys do not rotate; nil: nowhere

	Normalization    string
	NormEpsilon      float64
	NormOnePlus      bool // weights act as weight+1 (--apply-layernorm-1p)
	EmbedNorm        bool // BLOOM: LayerNorm after the word embedding
	ParallelResidual bool // GPT-NeoX: attention and MLP both take what the layer takes, and both add to it
	NormAfter        bool // OLMo 2: norms of what attention and MLP give, not of what they take
	QKNorm           bool // norms of queries and keys, of each head
	QKNormWhole      bool // of all heads of a token together (OLMo 2, OLMoE); with QKNorm

	Activation string
	LinearBias bool // proj, fc1, fc2
	QKVBias    bool // as LinearBias; alone in Qwen2, missing in GPT-Neo
	Tied       bool // output layer = word embedding

	WindowLeft   int     // keys to the left a query sees; -1: all
	Windowed     []bool  // [NumLayers], true where the window holds; nil: everywhere
	SoftmaxScale float64 // of the scores; 0: 1/√KVChannels

	Experts *Experts // nil: dense

	Adapters []Adapter `json:",omitempty"` // low-rank additions that are trained or kept apart; nil: none

	HiddenDropout    float64
	AttentionDropout float64

	InitStd           float64
	EmbeddingInitStd  float64
	PaddedVocabCounts bool // padded columns stay in the softmax (--padded-vocab-in-softmax)
	ApplyQKLayerScale bool // no change in exact maths; kept for the record
}

// Gated tells whether fc1 holds gate and up, gate rows first.
func (m *Model) Gated() bool {
	a, err := activations.Of(m.Activation)
	return err == nil && a.Gated()
}

// QKVRows is the number of rows of linear_qkv.weight: per query group its
// query heads, one key and one value head.
func (m *Model) QKVRows() int {
	return (m.NumAttentionHeads + 2*m.NumQueryGroups) * m.KVChannels
}

// FC1Rows is the number of rows of linear_fc1.weight.
func (m *Model) FC1Rows() int {
	if m.Gated() {
		return 2 * m.FFNHiddenSize
	}
	return m.FFNHiddenSize
}

// WindowAt is how many keys to the left a query of a layer (0-based, global) sees; -1: all.
func (m *Model) WindowAt(layer int) int {
	if m.Windowed != nil && !m.Windowed[layer] {
		return -1
	}
	return m.WindowLeft
}

// ScoreScale is what queries times keys are multiplied by before the softmax.
func (m *Model) ScoreScale() float64 {
	if m.SoftmaxScale != 0 {
		return m.SoftmaxScale
	}
	return 1 / math.Sqrt(float64(m.KVChannels))
}

// QKNormWidths are how many channels the norms of queries and of keys have weights for.
func (m *Model) QKNormWidths() (q, k int) {
	if m.QKNormWhole {
		return m.NumAttentionHeads * m.KVChannels, m.NumQueryGroups * m.KVChannels
	}
	return m.KVChannels, m.KVChannels
}

// RotaryDims is how many channels of a head rotate.
func (m *Model) RotaryDims() int { return int(float64(m.KVChannels) * m.RotaryPercent) }

// RopeAt tells whether layer (0-based, global) rotates its queries and keys.
func (m *Model) RopeAt(layer int) bool {
	return m.Position == PositionRope && (m.NoRope == nil || !m.NoRope[layer])
}
