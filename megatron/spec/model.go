package spec

import "monotron/csrc/device/activations"

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
	NoRopeFreq          int          // layers N, 2N, .. (1-based) have no RoPE; 0: all have

	Normalization string
	NormEpsilon   float64
	NormOnePlus   bool // weights act as weight+1 (--apply-layernorm-1p)
	EmbedNorm     bool // BLOOM: LayerNorm after the word embedding
	QKNorm        bool // norm of each query and key head

	Activation string
	LinearBias bool // proj, fc1, fc2 (and QKV)
	QKVBias    bool // QKV alone, as in Qwen2; true where LinearBias is
	Tied       bool // output layer = word embedding

	WindowLeft int // keys to the left a query sees; -1: all

	Experts *Experts // nil: dense

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

// RotaryDims is how many channels of a head rotate.
func (m *Model) RotaryDims() int { return int(float64(m.KVChannels) * m.RotaryPercent) }

// RopeAt tells whether layer (0-based, global) rotates its queries and keys.
func (m *Model) RopeAt(layer int) bool {
	return m.Position == PositionRope && (m.NoRopeFreq == 0 || (layer+1)%m.NoRopeFreq != 0)
}
