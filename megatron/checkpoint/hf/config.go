package hf

import (
	"encoding/json"
	"errors"
	"strings"

	"monotron/internal/exitcode"
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

	Qwen2MoE = "qwen2_moe"
	Qwen3MoE = "qwen3_moe"
	OLMoE    = "olmoe"
	GLM4MoE  = "glm4_moe"
	Granite  = "granite"
	Gemma2   = "gemma2"
	Gemma3   = "gemma3_text"
	Olmo3    = "olmo3"
	Exaone4  = "exaone4"
	SeedOSS  = "seed_oss"
	Hunyuan  = "hunyuan_v1_dense"
	Ernie45  = "ernie4_5"
	Cohere   = "cohere"
	Falcon   = "falcon"
	OPT      = "opt"
	Llama4   = "llama4_text"
	MiniMax2 = "minimax_m2"
	GPTOSS   = "gpt_oss"

	DeepSeekV2  = "deepseek_v2"
	DeepSeekV3  = "deepseek_v3"
	KimiK2      = "kimi_k2"
	GLM4MoELite = "glm4_moe_lite"
	Qwen3Next   = "qwen3_next"
	Qwen35      = "qwen3_5_text"
	Qwen35MoE   = "qwen3_5_moe_text"
	LFM2        = "lfm2"
	Gemma4      = "gemma4_text"
	Ministral3  = "ministral3"

	GraniteHybrid = "granitemoehybrid"
	NemotronH     = "nemotron_h"
	Mamba2        = "mamba2"
)

// Known names all families.
var Known = strings.Join(order, ", ")

// unheld are families that are known well enough to say what of them is lacking here.
var unheld = map[string]string{
	"deepseek_v32": "sparse attention",
	"falcon_h1":    "both attention and a state-space scan",
}

// Config is what a config.json says. Dropouts of the model are 0: they belong
// to a training run, not to weights.
type Config struct {
	Family       string
	Model        *spec.Model
	Wrapped      bool    // it is the text_config of a model that takes images too
	Further      int     // layers behind the model's that predict further tokens, and are not read
	Quantization string  // NF4, Int8, FP8 or MXFP4: how weights are quantised; "": they are not
	DType        string  // that quantised weights are read as, as safetensors spells it; "": not said
	MaxPositions int     // longest sequence; also where positions are computed and Model has no rows for them
	Blocks       []int64 // of FP8: rows and columns that share a scale; nil: all of a weight do
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
	MLPTypes           []string `json:"mlp_layer_types"` // GLM-4.7-Flash: dense or sparse, of each layer
	LayerFreq          *int64   `json:"moe_layer_freq"`
	Groups             *int64   `json:"n_group"`
	GroupTopK          *int64   `json:"topk_group"`
	RoutedScaling      *float64 `json:"routed_scaling_factor"`
	ScoringFunc        *string  `json:"scoring_func"`
	TopKMethod         *string  `json:"topk_method"`
	RouterAuxLoss      *float64 `json:"router_aux_loss_coef"`
	RouterJitter       *float64 `json:"router_jitter_noise"`

	QueryKeyBias   *bool    `json:"qkv_bias"`
	QueryKeyNorm   *bool    `json:"use_qk_norm"`
	ClipQKV        *float64 `json:"clip_qkv"`
	UseLatent      *bool    `json:"use_mla"`
	QueryRank      *int64   `json:"q_lora_rank"`
	KeyValueRank   *int64   `json:"kv_lora_rank"`
	PlainHeadDim   *int64   `json:"qk_nope_head_dim"`
	RotaryHeadDim  *int64   `json:"qk_rope_head_dim"`
	QueryHeadDim   *int64   `json:"qk_head_dim"` // the sum of both
	ValueHeadDim   *int64   `json:"v_head_dim"`
	RopeInterleave *bool    `json:"rope_interleave"`
	NextTokens     *int64   `json:"num_nextn_predict_layers"`

	EmbeddingMultiplier *float64 `json:"embedding_multiplier"` // Granite
	LogitsScaling       *float64 `json:"logits_scaling"`
	ResidualMultiplier  *float64 `json:"residual_multiplier"`
	AttentionMultiplier *float64 `json:"attention_multiplier"`

	HiddenActivation *string  `json:"hidden_activation"` // Gemma
	QueryScalar      *float64 `json:"query_pre_attn_scalar"`
	ScoreCap         *float64 `json:"attn_logit_softcapping"`
	LogitCap         *float64 `json:"final_logit_softcapping"`
	Bidirectional    any      `json:"use_bidirectional_attention"`
	RopeLocalBase    *float64 `json:"rope_local_base_freq"`
	WindowPattern    any      `json:"sliding_window_pattern"`

	OutBias         *bool    `json:"attention_out_bias"` // Seed-OSS
	ResidualDropout *float64 `json:"residual_dropout"`

	LogitScale *float64 `json:"logit_scale"` // Cohere

	NumKVHeads *int64  `json:"num_kv_heads"` // Falcon
	Alibi      *bool   `json:"alibi"`
	NewDecoder *bool   `json:"new_decoder_architecture"`
	MultiQuery *bool   `json:"multi_query"`
	ParAttn    *bool   `json:"parallel_attn"`
	Bias       *bool   `json:"bias"`
	FFNHidden  *int64  `json:"ffn_hidden_size"`
	FalconAct  *string `json:"activation"`
	ParNorms   *int64  `json:"num_ln_in_parallel_attn"`

	FFNDim      *int64   `json:"ffn_dim"` // OPT
	NormBefore  *bool    `json:"do_layer_norm_before"`
	EmbedProj   *int64   `json:"word_embed_proj_dim"`
	EnableBias  *bool    `json:"enable_bias"`
	NormAffine  *bool    `json:"layer_norm_elementwise_affine"`
	NoFinalNorm *bool    `json:"_remove_final_layer_norm"`
	OriginalMax *int64   `json:"original_max_position_embeddings"` // Phi-3
	RotaryDim   *int64   `json:"rotary_dim"`                       // MiniMax
	SwigluLimit *float64 `json:"swiglu_limit"`                     // GPT-OSS
	SwigluAlpha *float64 `json:"swiglu_alpha"`

	ChunkSize   *int64   `json:"attention_chunk_size"` // Llama 4
	Temperature *bool    `json:"attn_temperature_tuning"`
	FloorScale  *float64 `json:"floor_scale"`
	AttnScale   *float64 `json:"attn_scale"`
	DenseFFN    *int64   `json:"intermediate_size_mlp"`
	MoELayers   []int64  `json:"moe_layers"`
	MoEStep     *int64   `json:"interleave_moe_layer_step"`

	ConvTaps        *int64 `json:"linear_conv_kernel_dim"` // Qwen3-Next
	DeltaKeyDim     *int64 `json:"linear_key_head_dim"`
	DeltaValueDim   *int64 `json:"linear_value_head_dim"`
	DeltaKeyHeads   *int64 `json:"linear_num_key_heads"`
	DeltaValueHeads *int64 `json:"linear_num_value_heads"`
	FullInterval    *int64 `json:"full_attention_interval"` // Qwen3.5
	OwnNextTokens   *int64 `json:"mtp_num_hidden_layers"`
	QueryGate       *bool  `json:"attn_output_gate"`

	GlobalHeadDim *int64                      `json:"global_head_dim"` // Gemma 4
	GlobalKVHeads *int64                      `json:"num_global_key_value_heads"`
	KeysAreValues *bool                       `json:"attention_k_eq_v"`
	PerLayer      map[string]map[string]int64 `json:"per_layer_config"`
	SharedKV      *int64                      `json:"num_kv_shared_layers"`
	PerLayerInput *int64                      `json:"hidden_size_per_layer_input"`
	DoubleWide    *bool                       `json:"use_double_wide_mlp"`
	PerLayerVocab *int64                      `json:"vocab_size_per_layer_input"`
	TopKExperts   *int64                      `json:"top_k_experts"`
	MixtureBlock  *bool                       `json:"enable_moe_block"`

	PlainEps        *float64 `json:"norm_eps"` // LFM2
	ConvBias        *bool    `json:"conv_bias"`
	ConvCache       *int64   `json:"conv_L_cache"`
	BlockMultiple   *int64   `json:"block_multiple_of"`
	BlockMultiplier *float64 `json:"block_ffn_dim_multiplier"`
	BlockAdjust     *bool    `json:"block_auto_adjust_ff_dim"`
	BlockFF         *int64   `json:"block_ff_dim"`
	FullLayers      []int64  `json:"full_attn_idxs"`
	TieEmbedding    *bool    `json:"tie_embedding"`

	SharedMLP      *int64     `json:"shared_intermediate_size"` // Granite 4
	PositionKind   *string    `json:"position_embedding_type"`
	NormFunction   *string    `json:"normalization_function"`
	MambaHeads     *int64     `json:"mamba_n_heads"`
	MambaGroups    *int64     `json:"mamba_n_groups"`
	MambaState     *int64     `json:"mamba_d_state"`
	MambaHeadDim   any        `json:"mamba_d_head"`
	MambaTaps      *int64     `json:"mamba_d_conv"`
	MambaExpand    *int64     `json:"mamba_expand"`
	MambaConvBias  *bool      `json:"mamba_conv_bias"`
	MambaProjBias  *bool      `json:"mamba_proj_bias"`
	TimeStepLimits timeLimits `json:"time_step_limit"`

	BlockTypes    []string `json:"layers_block_type"` // Nemotron-H
	HybridPattern *string  `json:"hybrid_override_pattern"`
	MLPAct        *string  `json:"mlp_hidden_act"`
	ScanAct       *string  `json:"mamba_hidden_act"`
	ScanHeads     *int64   `json:"mamba_num_heads"`
	ScanGroups    *int64   `json:"n_groups"`
	ScanState     *int64   `json:"ssm_state_size"`
	ScanHeadDim   *int64   `json:"mamba_head_dim"`
	ScanTaps      *int64   `json:"conv_kernel"`
	ScanConvBias  *bool    `json:"use_conv_bias"`
	ScanStateSize *int64   `json:"state_size"` // Mamba-2
	ScanExpand    *int64   `json:"expand"`
	ScanNorm      *bool    `json:"rms_norm"`
	SharedWidth   *int64   `json:"moe_shared_expert_intermediate_size"`
	LatentExperts *int64   `json:"moe_latent_size"`
	ResidualF32   *bool    `json:"residual_in_fp32"`

	Quantization *quantization   `json:"quantization_config"`
	DType        json.RawMessage `json:"dtype"`
	TorchDType   json.RawMessage `json:"torch_dtype"`
}

// What a class has where a key is absent.
func number(n int64) *int64      { return &n }
func decimal(x float64) *float64 { return &x }
func yes(b bool) *bool           { return &b }
func word(s string) *string      { return &s }

// ReadConfig reads a config.json. What it says and monotron cannot do is
// refused, never dropped.
func ReadConfig(path string) (*Config, error) {
	raw, err := exitcode.ReadFile(path, maxConfig)
	if err != nil {
		return nil, err
	}
	return ParseConfig(path, raw)
}

// ParseConfig is ReadConfig on the text of a config.json; path is for messages.
func ParseConfig(path string, raw []byte) (*Config, error) {
	raw, wrapped, err := textConfig(raw)
	if err != nil {
		return nil, exitcode.Errorf(exitcode.BadData, "%s: %w", path, err)
	}
	// The family first: its defaults for absent fields must be set before the fields are read.
	var named struct {
		ModelType string `json:"model_type"`
	}
	_ = json.Unmarshal(raw, &named) // the next line says what is wrong with it
	var f fields
	row := rows[named.ModelType]
	if row != nil && row.absent != nil {
		row.absent(&f)
	}
	if err := exitcode.JSON(path, raw, &f); err != nil {
		return nil, err
	}
	// The family's own reader, then the quantisation that its weights may have.
	c := &reading{Config: Config{Family: f.ModelType, Wrapped: wrapped, Model: &spec.Model{WindowLeft: -1}}, row: row}
	if row == nil {
		c.unknown(f.ModelType)
	} else {
		c.understood(raw)
		row.read(c, &f)
	}
	c.quantization(&f)
	if err := errors.Join(c.problems...); err != nil {
		return nil, exitcode.Errorf(exitcode.BadData, "%s: %w", path, err)
	}
	return &c.Config, nil
}

// turnsPart are the families whose classes read partial_rotary_factor.
var turnsPart = []string{GLM4MoE, Phi3, GPTNeoX, MiniMax2, Qwen3Next, Qwen35, Qwen35MoE}
