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
	Geglu       = activations.Geglu.String()
)

// RopeScaling is the Llama-3 rule: wavelengths above OriginalMax/LowFreq are
// slowed Factor times, those below OriginalMax/HighFreq stay, smooth between.
type RopeScaling struct {
	Factor, LowFreq, HighFreq float64
	OriginalMax               int // positions
}

// Llama 3's range, which --use-rope-scaling has.
const (
	Llama3LowFreq     = 1
	Llama3HighFreq    = 4
	Llama3OriginalMax = 8192
)

// IsLlama3 reports whether the range is Llama 3's, whatever the factor.
func (s *RopeScaling) IsLlama3() bool {
	return s.LowFreq == Llama3LowFreq && s.HighFreq == Llama3HighFreq && s.OriginalMax == Llama3OriginalMax
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
	RopeRule            string       // JSON of a RopeRule that replaces RopeScaling and RotaryInterpolation; "": none
	WindowRope          string       // JSON of a RopeRule for layers with the window; "": they rotate as the others
	PositionOffset      int          // position p reads row p+PositionOffset of the learned positions (OPT: 2)

	Normalization    string
	NormEpsilon      float64
	LatentEpsilon    float64 // NormEpsilon of the norms of latents; 0: the same
	NormOnePlus      bool    // weights act as weight+1 (--apply-layernorm-1p)
	EmbedNorm        bool    // BLOOM: LayerNorm after the word embedding
	ParallelResidual bool    // GPT-NeoX: attention and MLP both take what the layer takes, and both add to it
	ParallelOneNorm  bool    // with ParallelResidual: attention and MLP share the layer's one norm (Falcon 7B, Cohere)
	NormSandwich     bool    // Gemma 2: a half's input and output are both normed
	NormBehindSum    bool    // OPT-350m: norms follow the residual sums, and the last layer has no further norm behind it
	NormNoBias       bool    // LayerNorm without its bias (Cohere)
	NormAfter        bool    // OLMo 2: norms of the outputs of attention and MLP, not of their inputs
	QKNorm           bool    // norms of queries and keys, of each head
	QKNormFull       bool    // of all heads of a token together (OLMo 2, OLMoE); with QKNorm
	QKNormAfterRope  bool    // queries and keys are normed when they have rotated (Hunyuan); with QKNorm
	ValueNorm        bool    // each head's values are divided by their root mean square (Gemma 4)
	// Values are the keys before norm and rotation, without a projection of their own; with Full, of layers
	// without a window alone.
	KeysAreValues bool
	QKL2Norm      bool // queries and keys of layers that rotate are divided by their root mean square afterwards (Llama 4)

	Activation string
	LinearBias bool    // proj, fc1, fc2
	QKVBias    bool    // as LinearBias; alone in Qwen2, missing in GPT-Neo
	ProjBias   bool    // attention's output has a bias though LinearBias is off
	NoProjBias bool    // it has none though LinearBias is on
	GateLimit  float64 // of a gated MLP: the gate is at most it, the other half within ±it; 0: no limit (GPT-OSS)
	GateOffset float64 // added to the other half
	Tied       bool    // output layer = word embedding

	WindowLeft   int     // keys to the left a query sees; -1: all
	Windowed     []bool  // [NumLayers], true where the window holds; nil: everywhere
	SoftmaxScale float64 // of the scores; 0: 1/√KVChannels
	ScoreCap     float64 // scores are cap·tanh(score/cap) (Gemma 2); 0: not
	OutputGate   bool    // attention's output is multiplied by sigmoid of a gate a channel, from the layer's input (Qwen3-Next)
	Sinks        bool    // a trained score a head joins the softmax without a value (GPT-OSS)
	// In the layers that Windowed names, or all: a query sees keys of its own chunk of so many positions
	// (Llama 4); 0: not.
	Chunk      int
	AlibiTable bool // ALiBi as Falcon-RW has it: slope·key, rounded to bf16, divided like the scores

	// Queries of layers without rotation, with QueryGrowthAll of all layers and with p in place of p+1 (Ministral 3), are
	// multiplied by 1 + QueryGrowth·ln(1 + ⌊(p+1)/QueryGrowthFrom⌋) at
	// position p (Llama 4); 0: not.
	QueryGrowth     float64
	QueryGrowthFrom int
	QueryGrowthAll  bool

	KVShared      int  // so many last layers have no keys and values, but read those of KeysFrom (Gemma 4 E2B and E4B); 0: none
	WideShared    bool // their MLPs are twice as wide; with KVShared
	PerLayerInput int  // each layer adds a gated embedding of the token of so many channels, of its own (Gemma 4 E2B and E4B); 0: none
	ParallelMLP   bool // a layer of experts has an MLP in parallel, each between norms of its own (Gemma 4 26B-A4B); with NormSandwich

	LayerScalar    bool    // what a layer gives is multiplied by a number that is not trained (Gemma 4)
	EmbeddingScale float64 // of the embeddings that enter the first layer; 0: 1
	ResidualScale  float64 // of the residual branches of attention and MLP; 0: 1
	LogitScale     float64 // of the logits; 0: 1
	LogitCap       float64 // logits are cap·tanh(logit/cap) (Gemma 2); 0: not

	Sublayers []Sublayers `json:",omitempty"` // [NumLayers]: which of its two sublayers a layer has; nil: both

	Full    *FullAttention `json:",omitempty"` // attention of layers without a window; nil: as of the others
	Latent  *Latent        // multi-latent attention; nil: queries, keys and values come from the layer's input
	Delta   *Delta         `json:",omitempty"` // layers with a gated delta net; nil: none
	Conv    *ShortConv     `json:",omitempty"` // layers with a short convolution; nil: none
	Mamba   *Mamba         `json:",omitempty"` // layers with a state-space scan; nil: none
	Experts *Experts       // nil: dense
	MTP     *MTP           `json:",omitempty"` // multi-token prediction; nil: the next token alone

	Adapters  []Adapter  `json:",omitempty"` // low-rank additions that are trained or kept apart; nil: none
	Retrained *Retrained `json:",omitempty"` // weights that are trained with the adapters; nil: none

	HiddenDropout    float64
	AttentionDropout float64

	InitStd           float64
	EmbeddingInitStd  float64
	PaddedVocabCounts bool // padded columns stay in the softmax (--padded-vocab-in-softmax)
	ApplyQKLayerScale bool // no change in exact maths; kept for the record
}

// Gated reports whether fc1 holds gate and up, gate rows first.
func (m *Model) Gated() bool {
	a, err := activations.Of(m.Activation)
	return err == nil && a.Gated()
}

// QKVRows is the number of rows of linear_qkv.weight: per query group its
// query heads, with OutputGate as many gates, one key and, but with KeysAreValues, one value head.
func (m *Model) QKVRows() int {
	heads := m.NumAttentionHeads
	if m.OutputGate {
		heads *= 2
	}
	return (heads + m.KeyValues()*m.NumQueryGroups) * m.KVChannels
}

// KeyValues is how many heads of a group linear_qkv makes in addition to queries: a key and a value, the key alone, or
// none (see AttentionOf).
func (m *Model) KeyValues() int {
	switch {
	case m.KVShared == queriesAlone:
		return 0
	case m.KeysAreValues:
		return 1
	}
	return 2
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
	if m.Windowed != nil && !m.Windowed[m.decoderLayer(layer)] {
		return -1
	}
	return m.WindowLeft
}

// ChunkAt is how many positions a chunk of a layer (0-based, global) has; 0: no chunks.
func (m *Model) ChunkAt(layer int) int {
	if m.Windowed != nil && !m.Windowed[m.decoderLayer(layer)] {
		return 0
	}
	return m.Chunk
}

// HasProjBias reports whether attention's output projection has a bias.
func (m *Model) HasProjBias() bool { return m.LinearBias && !m.NoProjBias || m.ProjBias }

// HasNormBias reports whether norms have a bias.
func (m *Model) HasNormBias() bool { return m.Normalization == LayerNorm && !m.NormNoBias }

// PositionRows is how many rows the learned position embedding has; 0 without one.
func (m *Model) PositionRows() int {
	if m.Position != PositionLearned {
		return 0
	}
	return m.MaxPositions + m.PositionOffset
}

// ScoreScale is what queries times keys are multiplied by before the softmax.
func (m *Model) ScoreScale() float64 {
	if m.SoftmaxScale != 0 {
		return m.SoftmaxScale
	}
	if m.Latent != nil {
		return m.Latent.scoreScale()
	}
	return 1 / math.Sqrt(float64(m.KVChannels))
}

// QKNormWidths are how many channels the norms of queries and of keys have weights for.
func (m *Model) QKNormWidths() (q, k int) {
	if m.QKNormFull {
		return m.NumAttentionHeads * m.KVChannels, m.NumQueryGroups * m.KVChannels
	}
	return m.KVChannels, m.KVChannels
}

// RotaryDims is how many channels of a head rotate.
func (m *Model) RotaryDims() int {
	if m.Latent != nil {
		return m.Latent.RopeDim
	}
	return int(float64(m.KVChannels) * m.RotaryPercent)
}

// RopeAt reports whether layer (0-based, global) rotates its queries and keys.
func (m *Model) RopeAt(layer int) bool {
	return m.Position == PositionRope && (m.NoRope == nil || !m.NoRope[m.decoderLayer(layer)])
}
