package hf

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"monotron/csrc/device/activations"
	"monotron/fault"
	"monotron/megatron/spec"
)

// Families, as config.json's model_type spells them.
const (
	GPT2    = "gpt2"
	Llama   = "llama"
	Mistral = "mistral"
	Qwen2   = "qwen2"
	Qwen3   = "qwen3"
	Bloom   = "bloom"
	Mixtral = "mixtral"
	Olmo2   = "olmo2"
	GPTNeo  = "gpt_neo"

	GPTNeoX    = "gpt_neox"
	Phi3       = "phi3"
	SmolLM3    = "smollm3"
	Starcoder2 = "starcoder2"

	Qwen2MoE   = "qwen2_moe"
	Qwen3MoE   = "qwen3_moe"
	OLMoE      = "olmoe"
	GLM4MoE    = "glm4_moe"
	DeepSeekV2 = "deepseek_v2" // without latent attention: read alone
	DeepSeekV3 = "deepseek_v3" // as DeepSeekV2
)

// Known names all families.
const Known = "gpt2, gpt_neo, gpt_neox, llama, mistral, mixtral, olmo2, olmoe, phi3, qwen2, qwen2_moe, qwen3, qwen3_moe, smollm3, starcoder2, glm4_moe, bloom"

// unheld are families that are known well enough to say what of them is lacking here.
var unheld = map[string]string{
	"gpt_oss":       "sinks in its attention, a clamped activation, biases of experts in gated pairs",
	"llama4":        "attention in chunks, a norm of queries and keys without weights, weights that multiply what goes into a shared and a routed expert",
	"llama4_text":   "attention in chunks, a norm of queries and keys without weights, weights that multiply what goes into a shared and a routed expert",
	"qwen3_next":    "linear attention, gated attention",
	"deepseek_v32":  "latent attention, sparse attention",
	"kimi_k2":       "latent attention",
	"glm4_moe_lite": "latent attention",
}

// Config is what a config.json says. Dropouts of the model are 0: they belong
// to a training run, not to weights.
type Config struct {
	Family       string
	Model        *spec.Model
	Further      int // layers behind the model's that predict further tokens, and are not read
	MaxPositions int // longest sequence; also where positions are computed and Model has no rows for them
}

const (
	maxConfig = 16 << 20 // bytes of a config.json
	maxLayers = 10_000
	maxSize   = 1 << 24 // of any width or count; vocabularies and positions are below it too
	maxMixed  = 1 << 17 // experts of all layers
)

// fields is the part of a config.json that shapes a model. Pointers tell absent
// (and null) from zero.
type fields struct {
	ModelType string `json:"model_type"`

	VocabSize    *int64 `json:"vocab_size"`
	HiddenSize   *int64 `json:"hidden_size"`
	Layers       *int64 `json:"num_hidden_layers"`
	Heads        *int64 `json:"num_attention_heads"`
	KVHeads      *int64 `json:"num_key_value_heads"`
	HeadDim      *int64 `json:"head_dim"`
	Intermediate *int64 `json:"intermediate_size"`
	MaxPositions *int64 `json:"max_position_embeddings"`

	NEmbd      *int64 `json:"n_embd"` // GPT-2 and BLOOM
	NEmbed     *int64 `json:"n_embed"`
	NLayer     *int64 `json:"n_layer"`
	NHead      *int64 `json:"n_head"`
	NInner     *int64 `json:"n_inner"`
	NPositions *int64 `json:"n_positions"`
	SeqLength  *int64 `json:"seq_length"`

	NumLayers      *int64           `json:"num_layers"` // GPT-Neo
	NumHeads       *int64           `json:"num_heads"`
	WindowSize     *int64           `json:"window_size"`
	AttentionTypes []attentionTypes `json:"attention_types"`

	HiddenAct        *string  `json:"hidden_act"`
	Activation       *string  `json:"activation_function"`
	RMSNormEps       *float64 `json:"rms_norm_eps"`
	LayerNormEps     *float64 `json:"layer_norm_epsilon"`
	NeoXEps          *float64 `json:"layer_norm_eps"`
	NormEps          *float64 `json:"norm_epsilon"` // Starcoder 2
	InitializerRange *float64 `json:"initializer_range"`
	Tie              *bool    `json:"tie_word_embeddings"`
	AttentionBias    *bool    `json:"attention_bias"`
	MLPBias          *bool    `json:"mlp_bias"`
	UseBias          *bool    `json:"use_bias"`
	Parallel         *bool    `json:"use_parallel_residual"`

	RopeTheta      *float64 `json:"rope_theta"`
	RopeScaling    *rope    `json:"rope_scaling"`    // transformers 4
	RopeParameters *rope    `json:"rope_parameters"` // transformers 5
	PartialRotary  *float64 `json:"partial_rotary_factor"`
	NeoXTheta      *float64 `json:"rotary_emb_base"`
	NeoXPartial    *float64 `json:"rotary_pct"`
	NoRope         []int64  `json:"no_rope_layers"` // 1: the layer rotates
	NoRopeInterval *int64   `json:"no_rope_layer_interval"`

	SlidingWindow    *int64   `json:"sliding_window"`
	UseSlidingWindow *bool    `json:"use_sliding_window"`
	MaxWindowLayers  *int64   `json:"max_window_layers"`
	LayerTypes       []string `json:"layer_types"`

	ScaleAttention *bool `json:"scale_attn_weights"`
	ScaleByLayer   *bool `json:"scale_attn_by_inverse_layer_idx"`
	CrossAttention *bool `json:"add_cross_attention"`
	PostNorm       *bool `json:"apply_residual_connection_post_layernorm"`

	Experts            *int64   `json:"num_experts"`
	LocalExperts       *int64   `json:"num_local_experts"`
	RoutedExperts      *int64   `json:"n_routed_experts"`
	ExpertsPerTok      *int64   `json:"num_experts_per_tok"`
	MoEIntermediate    *int64   `json:"moe_intermediate_size"`
	SharedIntermediate *int64   `json:"shared_expert_intermediate_size"`
	SharedExperts      *int64   `json:"n_shared_experts"`
	NormTopK           *bool    `json:"norm_topk_prob"`
	SparseStep         *int64   `json:"decoder_sparse_step"`
	DenseLayers        []int64  `json:"mlp_only_layers"`
	FirstDense         *int64   `json:"first_k_dense_replace"`
	LayerFreq          *int64   `json:"moe_layer_freq"`
	Groups             *int64   `json:"n_group"`
	GroupTopK          *int64   `json:"topk_group"`
	RoutedScaling      *float64 `json:"routed_scaling_factor"`
	ScoringFunc        *string  `json:"scoring_func"`
	TopKMethod         *string  `json:"topk_method"`
	RouterAuxLoss      *float64 `json:"router_aux_loss_coef"`
	RouterJitter       *float64 `json:"router_jitter_noise"`

	QueryKeyBias *bool    `json:"qkv_bias"`
	QueryKeyNorm *bool    `json:"use_qk_norm"`
	ClipQKV      *float64 `json:"clip_qkv"`
	Latent       *bool    `json:"use_mla"`
	NextTokens   *int64   `json:"num_nextn_predict_layers"`

	Quantization any `json:"quantization_config"`
}

type rope struct {
	Type          *string  `json:"rope_type"`
	OldType       *string  `json:"type"`
	Theta         *float64 `json:"rope_theta"`
	PartialRotary *float64 `json:"partial_rotary_factor"`
	Factor        *float64 `json:"factor"`
	LowFreq       *float64 `json:"low_freq_factor"`
	HighFreq      *float64 `json:"high_freq_factor"`
	OriginalMax   *int64   `json:"original_max_position_embeddings"`
}

// absent is what transformers' class of a family has where a key is absent, and
// not another family's; null is another thing, and takes it away.
func absent(family string) (f fields) {
	decimal := func(x float64) *float64 { return &x }
	word := func(s string) *string { return &s }
	switch family {
	case Mistral:
		f.KVHeads, f.SlidingWindow, f.MaxPositions = number(8), number(4096), number(131072)
	case Olmo2:
		f.RMSNormEps = decimal(1e-5)
	case GPTNeo:
		f.MaxPositions, f.WindowSize = number(2048), number(256)
	case GPTNeoX:
		f.MaxPositions, f.NeoXPartial = number(2048), decimal(0.25)
	case Phi3:
		f.MaxPositions, f.RMSNormEps = number(4096), decimal(1e-5)
	case SmolLM3:
		f.KVHeads, f.MaxPositions, f.RopeTheta, f.NoRopeInterval = number(4), number(32768), decimal(2e6), number(4)
	case Starcoder2:
		f.KVHeads, f.MaxPositions = number(2), number(4096)
	case Mixtral:
		f.KVHeads, f.RopeTheta, f.RMSNormEps, f.MaxPositions, f.ExpertsPerTok = number(8), decimal(1e6), decimal(1e-5), number(131072), number(2)
	case OLMoE:
		f.RMSNormEps, f.MaxPositions, f.ExpertsPerTok, f.RouterAuxLoss = decimal(1e-5), number(4096), number(8), decimal(0.01)
	case Qwen2MoE:
		f.KVHeads, f.SlidingWindow, f.MaxWindowLayers, f.MaxPositions, f.ExpertsPerTok = number(16), number(4096), number(28), number(32768), number(4)
		f.MoEIntermediate, f.SharedIntermediate = number(1408), number(5632)
	case Qwen3MoE:
		f.KVHeads, f.SlidingWindow, f.MaxPositions, f.ExpertsPerTok, f.MoEIntermediate = number(4), number(4096), number(32768), number(8), number(768)
	case GLM4MoE:
		f.KVHeads, f.RMSNormEps, f.MaxPositions, f.PartialRotary, f.ExpertsPerTok = number(8), decimal(1e-5), number(131072), decimal(0.5), number(8)
		f.MoEIntermediate, f.SharedExperts, f.FirstDense = number(1408), number(1), number(1)
		f.ScoringFunc, f.TopKMethod = word("sigmoid"), word("noaux_tc")
	case DeepSeekV2:
		f.FirstDense, f.ScoringFunc, f.TopKMethod = number(0), word("softmax"), word("greedy")
	case DeepSeekV3:
		f.FirstDense, f.ScoringFunc, f.TopKMethod = number(3), word("sigmoid"), word("noaux_tc")
	case Qwen2, Qwen3:
		f.KVHeads, f.SlidingWindow, f.MaxWindowLayers, f.MaxPositions = number(32), number(4096), number(28), number(32768)
		if family == Qwen3 {
			f.HeadDim = number(128)
		}
	}
	return f
}

func number(n int64) *int64 { return &n }

// ReadConfig reads a config.json. What it says and monotron cannot do is
// refused, never dropped.
func ReadConfig(path string) (*Config, error) {
	raw, err := fault.ReadFile(path, maxConfig)
	if err != nil {
		return nil, err
	}
	return ParseConfig(path, raw)
}

// ParseConfig is ReadConfig on the text of a config.json; path is for messages.
func ParseConfig(path string, raw []byte) (*Config, error) {
	var named struct {
		ModelType string `json:"model_type"`
	}
	_ = json.Unmarshal(raw, &named) // the next line says what is wrong with it
	f := absent(named.ModelType)
	if err := json.Unmarshal(raw, &f); err != nil {
		var syntax *json.SyntaxError
		var kind *json.UnmarshalTypeError
		switch {
		case errors.As(err, &syntax):
			err = fmt.Errorf("byte %d: %w", syntax.Offset, err)
		case errors.As(err, &kind) && kind.Field != "":
			err = fmt.Errorf("byte %d: %s cannot be this %s", kind.Offset, kind.Field, kind.Value)
		case errors.As(err, &kind):
			err = fmt.Errorf("it is an %s, not an object", kind.Value)
		}
		return nil, fault.Errorf(fault.BadData, "%s is not the JSON of a model: %w", path, err)
	}
	c := &reading{Config: Config{Family: f.ModelType, Model: &spec.Model{WindowLeft: -1}}}
	switch f.ModelType {
	case GPT2:
		c.gpt2(&f)
	case Bloom:
		c.bloom(&f)
	case GPTNeo:
		c.gptNeo(&f)
	case GPTNeoX:
		c.gptNeoX(&f)
	case Starcoder2:
		c.starcoder2(&f)
	case Llama, Mistral, Phi3, SmolLM3, Qwen2, Qwen3, Mixtral, Olmo2, Qwen2MoE, Qwen3MoE, OLMoE, GLM4MoE:
		c.llama(&f)
	case DeepSeekV2, DeepSeekV3:
		c.deepSeek(&f)
	case "":
		c.fail("model_type is missing")
	default:
		c.unknown(f.ModelType)
	}
	if f.Quantization != nil {
		c.fail("quantization_config: quantized weights are not read; convert them to float first (transformers: model.dequantize())")
	}
	if err := errors.Join(c.problems...); err != nil {
		return nil, fault.Errorf(fault.BadData, "%s: %w", path, err)
	}
	return &c.Config, nil
}

// reading collects every problem of a config.
type reading struct {
	Config
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
			c.fail("%s is %d; 1 to %d can be", name, *v, limit)
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
		c.fail("%s is %v; a number above 0 is needed", name, *v)
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
	m.LinearBias, m.QKVBias = true, true
	m.Activation = c.activation("hidden_act", f.HiddenAct, "gelu", false)
	f.RopeTheta, f.PartialRotary = f.NeoXTheta, f.NeoXPartial
	c.rotary(f)
	c.refuse("attention_bias", f.AttentionBias, false) // beside an MLP with biases
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
}

// unknown refuses a family.
func (c *reading) unknown(family string) {
	if lacks := unheld[family]; lacks != "" {
		c.fail("model_type %q is not held: it has %s; known are %s", family, lacks, Known)
		return
	}
	c.fail("model_type %q is not known; known are %s", family, Known)
}

// deepSeek reads DeepSeek's shapes where their config says that attention is Llama's, as
// some do (use_mla, of DeepSeek's own code; transformers' classes have latent attention).
func (c *reading) deepSeek(f *fields) {
	if given(f.Latent, true) {
		c.fail("a %s model has latent attention (kv_lora_rank), which is not built here; one whose config.json says \"use_mla\": false is read", c.Family)
		return
	}
	c.llama(f)
}

// llama reads the family of RMSNorm, RoPE and SwiGLU.
func (c *reading) llama(f *fields) {
	m := c.Model
	c.common(f, c.Family == SmolLM3)
	m.NumLayers = c.size("num_hidden_layers", maxLayers, f.Layers)
	m.HiddenSize = c.size("hidden_size", maxSize, f.HiddenSize)
	m.FFNHiddenSize = c.size("intermediate_size", maxSize, f.Intermediate)
	c.groupedHeads(f)
	c.MaxPositions = c.optional("max_position_embeddings", f.MaxPositions, 2048)
	m.Normalization, m.Activation = spec.RMSNorm, c.activation("hidden_act", f.HiddenAct, "silu", true)
	m.NormEpsilon = c.positive("rms_norm_eps", f.RMSNormEps, 1e-6)
	c.rotary(f)
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
	case hasExperts(c.Family):
		c.experts(f)
	case f.Experts != nil || f.LocalExperts != nil:
		c.fail("num_experts or num_local_experts in a %s model, which has none", c.Family)
	}
}

// noRope reads which layers of SmolLM 3 do not rotate: every fourth, if nothing is said.
func (c *reading) noRope(f *fields) {
	m := c.Model
	on := f.NoRope
	if on == nil {
		every := c.optional("no_rope_layer_interval", f.NoRopeInterval, 4)
		for i := range m.NumLayers {
			on = append(on, 1)
			if (i+1)%every == 0 {
				on[i] = 0
			}
		}
	}
	if len(on) != m.NumLayers {
		c.fail("no_rope_layers has %d entries for %d layers", len(on), m.NumLayers)
		return
	}
	if slices.Contains(on, 0) {
		m.NoRope = make([]bool, m.NumLayers)
		for i, rotates := range on {
			m.NoRope[i] = rotates == 0
		}
	}
}

// queryKeyNorms reads the norms of queries and keys: of each head, or of the whole row.
func (c *reading) queryKeyNorms(f *fields) {
	m := c.Model
	switch c.Family {
	case Qwen3, Qwen3MoE:
		m.QKNorm = true
	case GLM4MoE:
		m.QKNorm = given(f.QueryKeyNorm, false)
	case Olmo2, OLMoE:
		m.QKNorm, m.QKNormWhole, m.NormAfter = true, true, c.Family == Olmo2
	}
	if c.Family == OLMoE {
		if m.NumAttentionHeads*m.KVChannels != m.HiddenSize {
			c.fail("head_dim %d with %d heads in a hidden size of %d: this class norms rows of the hidden size", m.KVChannels, m.NumAttentionHeads, m.HiddenSize)
		}
		if f.ClipQKV != nil {
			c.fail("clip_qkv %v is not supported", *f.ClipQKV)
		}
	}
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
	case Qwen3, Olmo2, Qwen3MoE, OLMoE, DeepSeekV2, DeepSeekV3:
		c.refuse("attention_bias", f.AttentionBias, true) // without one of the MLP
	case Llama, SmolLM3:
		attention, mlp := given(f.AttentionBias, false), given(f.MLPBias, false)
		if attention != mlp {
			c.fail("attention_bias %v with mlp_bias %v: all linear layers or none can have biases", attention, mlp)
		}
		m.LinearBias, m.QKVBias = attention, attention
	}
}

// rotary reads both spellings: rope_parameters (transformers 5) wins over
// rope_theta and rope_scaling.
func (c *reading) rotary(f *fields) {
	m := c.Model
	m.Position = spec.PositionRope
	theta, partial, r := f.RopeTheta, f.PartialRotary, f.RopeScaling
	if p := f.RopeParameters; p != nil {
		r = p
		if p.Theta != nil {
			theta = p.Theta
		}
		if p.PartialRotary != nil {
			partial = p.PartialRotary
		}
	}
	m.RotaryBase = c.positive("rope_theta", theta, 10000)
	if m.KVChannels%2 != 0 {
		c.fail("head_dim %d gives as many rotating channels; an even number is needed", m.KVChannels)
	}
	if r != nil {
		c.ropeScaling(r)
	}
	c.partialRotary(c.positive("partial_rotary_factor", partial, 1))
}

// turnsPart are the families whose classes look at partial_rotary_factor.
var turnsPart = []string{GLM4MoE, Phi3, GPTNeoX}

// partialRotary: the classes of the other families turn whole heads, whatever
// partial_rotary_factor says; a scaling that takes it makes them fail.
func (c *reading) partialRotary(factor float64) {
	m := c.Model
	if slices.Contains(turnsPart, c.Family) {
		m.RotaryPercent = factor
		if n := m.RotaryDims(); n < 2 || n%2 != 0 || factor > 1 {
			c.fail("partial_rotary_factor %v lets %d of a head's %d channels rotate; an even number is needed", factor, n, m.KVChannels)
		}
		return
	}
	scaled := m.RopeScaling != nil || m.RotaryInterpolation > 0
	if scaled && int(float64(m.KVChannels)*factor) != m.KVChannels {
		c.fail("partial_rotary_factor %v with a scaled rope: transformers' %s cannot run this, as it rotates whole heads", factor, c.Family)
	}
}

func (c *reading) ropeScaling(r *rope) {
	kind := "default"
	if r.OldType != nil {
		kind = *r.OldType
	}
	if r.Type != nil {
		kind = *r.Type
	}
	switch kind {
	case "default":
	case "linear":
		if r.Factor == nil {
			c.fail("rope_type linear needs factor")
		}
		c.Model.RotaryInterpolation = c.positive("rope factor", r.Factor, 1)
	case "llama3":
		if r.Factor == nil || r.LowFreq == nil || r.HighFreq == nil || r.OriginalMax == nil {
			c.fail("rope_type llama3 needs factor, low_freq_factor, high_freq_factor and original_max_position_embeddings")
			return
		}
		s := &spec.RopeScaling{
			Factor:      c.positive("rope factor", r.Factor, 1),
			LowFreq:     c.positive("low_freq_factor", r.LowFreq, 1),
			HighFreq:    c.positive("high_freq_factor", r.HighFreq, 4),
			OriginalMax: c.size("original_max_position_embeddings", math.MaxInt32, r.OriginalMax),
		}
		if s.HighFreq <= s.LowFreq {
			c.fail("high_freq_factor %v is not above low_freq_factor %v", s.HighFreq, s.LowFreq)
		}
		c.Model.RopeScaling = s
	default:
		c.fail("rope_type %q is not supported; default, linear and llama3 are", kind)
	}
}
