package arguments

const (
	ownModel = "model"
	ownMoE   = "experts"
)

const (
	fusion   = "which operations run as one is this device's choice; results do not depend on it"
	notBuilt = "this program does not build such models"
)

// modelFlags say what is trained.
var modelFlags = owned(ownModel,
	works("num-layers", Int, "", "Model.NumLayers", "transformer layers").alias("encoder-num-layers"),
	works("hidden-size", Int, "", "Model.HiddenSize", "width of the residual stream"),
	works("num-attention-heads", Int, "", "Model.NumAttentionHeads", "query heads"),
	works("max-position-embeddings", Int, "", "Model.Context", "longest sequence the model knows; rows of learned positions"),
	works("ffn-hidden-size", Int, "", "Model.FFNHiddenSize", "intermediate width of the MLP (4h; with --swiglu 8h/3 down to a multiple of 64)"),
	works("kv-channels", Int, "", "Model.KVChannels", "width of one head (hidden-size / heads)"),
	works("group-query-attention", Switch, "", "Raw.GroupQueryAttention", "fewer key and value heads than query heads"),
	works("num-query-groups", Int, "1", "Raw.QueryGroups", "key and value heads; read with --group-query-attention"),
	works("position-embedding-type", String, "learned_absolute", "Model.Position", "how positions enter").
		choices("learned_absolute", "rope", "alibi", "none").same("absolute", "learned_absolute").same("rotary", "rope").
		but(notBuilt+"; use rope", "yarn", "mrope", "relative"),
	works("use-rotary-position-embeddings", Switch, "", "Raw.UseRotary", "older spelling of --position-embedding-type rope"),
	works("rotary-base", Float, "10000", "Model.RotaryBase", "base of the RoPE wavelengths"),
	works("rotary-percent", Float, "1.0", "Model.RotaryPercent", "share of a head's channels that rotate"),
	works("rotary-interleaved", Switch, "", "Model.RotaryInterleaved", "rotate pairs (2i, 2i+1) instead of (i, i+d/2)"),
	works("rotary-seq-len-interpolation-factor", Float, "", "Model.RotaryInterpolation", "positions are divided by it"),
	works("use-rope-scaling", Switch, "", "Raw.RopeScaling", "Llama-3 scaling of long wavelengths"),
	works("rope-scaling-factor", Float, "8.0", "Raw.RopeScalingFactor", "factor of --use-rope-scaling (Megatron-LM d98e8a64 reads it and stays at 8)"),
	works("no-rope-freq", Int, "", "Model.NoRopeFreq", "every Nth layer has no RoPE"),
	works("normalization", String, "LayerNorm", "Model.Normalization", "kind of norm").choices("LayerNorm", "RMSNorm"),
	works("norm-epsilon", Float, "1e-5", "Model.NormEpsilon", "epsilon inside the norm's root").alias("layernorm-epsilon"),
	works("apply-layernorm-1p", Switch, "", "Model.NormOnePlus", "norm weights act as weight+1"),
	works("disable-bias-linear", Switch, "", "!Model.LinearBias", "no biases in linear layers"),
	works("add-qkv-bias", Switch, "", "Model.QKVBias", "biases of Q, K and V alone (Qwen2)"),
	works("qk-layernorm", Switch, "", "Model.QKNorm", "norm of each query and key head"),
	refused("qk-l2-norm", Switch, notBuilt+"; use --qk-layernorm"),
	works("swiglu", Switch, "", "Raw.Swiglu", "gated MLP silu(gate)*up"),
	works("squared-relu", Switch, "", "Raw.SquaredRelu", "MLP with relu(x)^2"),
	works("quick-geglu", Switch, "", "Raw.QuickGeglu", "gated MLP x*sigmoid(1.702x)"),
	works("glu-activation", String, "", "Raw.GLU", "Megatron-DeepSpeed's spelling of --swiglu").choices("swiglu").
		but(notBuilt+"; use --swiglu", "geglu", "liglu", "reglu"),
	works("no-bias-gelu-fusion", Switch, "", "!Raw.BiasGelu", "exact erf GELU instead of the tanh form (also with --disable-bias-linear)"),
	works("untie-embeddings-and-output-weights", Switch, "", "!Model.Tied", "output layer with weights of its own"),
	works("hidden-dropout", Float, "0.1", "Model.HiddenDropout", "dropout on embeddings and before residuals"),
	works("attention-dropout", Float, "0.1", "Model.AttentionDropout", "dropout on attention probabilities"),
	works("window-size", String, "", "Raw.Window", "sliding window LEFT,RIGHT: query i sees keys i-LEFT..i (RIGHT 0)"),
	refused("window-attn-skip-freq", String, "the sliding window is the same in all layers here; leave it out"),
	accepted("softmax-type", String, "vanilla", "there is one softmax here").choices("vanilla").but(notBuilt, "off-by-one", "learnable"),
	refused("attention-output-gate", Switch, notBuilt),
	works("init-method-std", Float, "0.02", "Model.InitStd", "standard deviation of initial weights"),
	works("embedding-init-method-std", Float, "", "Model.EmbeddingInitStd", "the same for embeddings (--init-method-std)"),
	refused("init-method-xavier-uniform", Switch, "Megatron-LM dropped it too; use --init-method-std"),
	refused("use-mup", Switch, "muP is not built in; set --init-method-std and --lr per size instead"),
	refused("multi-latent-attention", Switch, notBuilt),
	refused("mtp-num-layers", Int, "multi-token prediction is not built in"),
	works("make-vocab-size-divisible-by", Int, "128", "VocabDivisor", "the vocabulary is padded to a multiple of this times the tensor-parallel size"),
	works("vocab-size", Int, "", "Tokenizer.VocabSize", "ids of a tokenizer without files"),
	works("padded-vocab-size", Int, "", "PaddedVocab", "rows of the embedding, instead of padding").alias("pad-vocab-size-to"),
	works("padded-vocab-in-softmax", Switch, "", "Model.PaddedVocabCounts", "padding rows take part in the softmax, as in Megatron-LM; masked out otherwise"),
	works("embed-layernorm", Switch, "", "Model.EmbedNorm", "LayerNorm after the word embedding (BLOOM)"),
	accepted("fp32-residual-connection", Switch, "", "the residual stream has the type of the activations"),
	works("apply-query-key-layer-scaling", Switch, "", "Model.ApplyQKLayerScale", "scores divided by the layer number before, multiplied after: recorded, the maths is the same"),
	accepted("attention-softmax-in-fp32", Switch, "", "scores and softmax are f32 here in every precision"),
	accepted("transformer-impl", String, "transformer_engine", "there is one implementation of a layer here").choices("transformer_engine", "local", "inference_optimized"),
	works("attention-backend", String, "auto", "AttentionBackend", "kernels of attention on --device cuda: fused is cuDNN's, flash our own; auto takes cuDNN's where it is found, suits and proves equal").choices("auto", "flash", "fused", "unfused", "local"),
	refused("spec", Strings, "layer specs are Python modules; describe the model by flags"),
	accepted("no-masked-softmax-fusion", Switch, "", fusion),
	accepted("no-bias-swiglu-fusion", Switch, "", fusion),
	accepted("no-bias-dropout-fusion", Switch, "", fusion),
	accepted("no-rope-fusion", Switch, "", fusion),
	accepted("no-gradient-accumulation-fusion", Switch, "", "weight gradients always go straight into the f32 main gradient"),
	accepted("no-persist-layer-norm", Switch, "", fusion),
	accepted("cross-entropy-loss-fusion", Switch, "", "head and cross entropy are always one chunked operation"),
	accepted("cross-entropy-fusion-impl", String, "native", "there is one implementation").choices("native").but("Transformer Engine is not used here; use native", "te"),
	accepted("disable-bf16-reduced-precision-matmul", Switch, "", "matmuls accumulate in f32"),
	accepted("deterministic-mode", Switch, "", "runs always repeat bit for bit on one device and layout"),
)

// oldModelFlags are names of earlier versions.
var oldModelFlags = owned(ownModel,
	accepted("use-mcore-models", Switch, "", "there is one model here"),
	accepted("use-flash-attn", Switch, "", "attention never stores scores"),
	accepted("openai-gelu", Switch, "", "the GELU is the tanh form unless --no-bias-gelu-fusion"),
	accepted("onnx-safe", String, "", "nothing is exported to ONNX"),
	accepted("apply-residual-connection-post-layernorm", Switch, "", "Megatron-LM ignores it as well: the residual is taken before the norm"),
	accepted("fp16-lm-cross-entropy", Switch, "", "the loss is always f32"),
	accepted("no-query-key-layer-scaling", Switch, "", "the scaling is off unless --apply-query-key-layer-scaling"),
	accepted("bert-no-binary-head", Switch, "", "it concerns BERT"),
	refused("use-legacy-models", Switch, "there is one model here; leave it out"),
	refused("no-position-embedding", Switch, "use --position-embedding-type none"),
)

// expertFlags describe mixtures of experts.
var expertFlags = owned(ownMoE,
	works("num-experts", Int, "", "Raw.Experts.Num", "experts of a mixture layer"),
	works("moe-layer-freq", String, "1", "Raw.LayerFreq", "N: layers 0, N, 2N, .. are mixtures; or a list such as ([0]*1+[1]*3)"),
	works("moe-ffn-hidden-size", Int, "", "Raw.Experts.FFNHiddenSize", "intermediate width of an expert (--ffn-hidden-size)"),
	works("moe-router-topk", Int, "2", "Raw.Experts.TopK", "experts a token goes to"),
	works("moe-router-pre-softmax", Switch, "", "Raw.Experts.PreSoftmax", "softmax over all experts before the choice"),
	works("moe-router-score-function", String, "softmax", "Raw.Experts.ScoreFunction", "scores from logits").choices("softmax", "sigmoid", "sqrtsoftplus"),
	works("moe-router-topk-scaling-factor", Float, "", "Raw.Experts.ScalingFactor", "weights are multiplied by it"),
	works("moe-router-num-groups", Int, "", "Raw.Experts.NumGroups", "experts are chosen by group first"),
	works("moe-router-group-topk", Int, "", "Raw.Experts.GroupTopK", "groups a token may use"),
	works("moe-router-dtype", String, "", "Raw.Experts.RouterDtype", "type of the router's logits").choices("fp32", "fp64"),
	works("moe-router-enable-expert-bias", Switch, "", "Raw.Experts.ExpertBias", "balance by a bias per expert instead of a loss"),
	works("moe-router-bias-update-rate", Float, "1e-3", "Raw.Experts.BiasUpdateRate", "step of that bias"),
	works("moe-router-load-balancing-type", Strings, "aux_loss", "Raw.Experts.Balancing", "how load is balanced").
		choices("aux_loss", "seq_aux_loss", "global_aux_loss", "none").but(notBuilt+"; use aux_loss", "sinkhorn", "quantile_balancing"),
	works("moe-aux-loss-coeff", Floats, "0", "Raw.Experts.AuxLossCoeff", "weight of the balancing loss, one per type"),
	works("moe-z-loss-coeff", Float, "", "Raw.Experts.ZLossCoeff", "weight of the router's z-loss"),
	works("moe-input-jitter-eps", Float, "", "Raw.Experts.JitterEps", "noise on the router's input"),
	works("moe-token-dispatcher-type", String, "allgather", "Raw.Experts.Dispatcher", "how tokens reach experts on other ranks").
		choices("allgather", "alltoall").but("it needs NVIDIA's DeepEP; use alltoall", "flex"),
	works("moe-expert-capacity-factor", Float, "", "Raw.Experts.CapacityFactor", "tokens an expert takes at most, times the mean; none: all"),
	works("moe-pad-expert-input-to-capacity", Switch, "", "Raw.Experts.PadToCapacity", "pad each expert's input to its capacity"),
	works("moe-token-drop-policy", String, "probs", "Raw.Experts.DropPolicy", "which tokens go when an expert is full").choices("probs", "position"),
	works("moe-shared-expert-intermediate-size", Int, "", "Raw.Experts.SharedFFN", "width of an expert that sees every token"),
	works("moe-shared-expert-gate", Switch, "", "Raw.Experts.SharedGate", "gate on the shared expert"),
	works("moe-per-layer-logging", Switch, "", "Log.MoEPerLayer", "balancing losses layer by layer"),
	accepted("moe-grouped-gemm", Switch, "", fusion),
	accepted("moe-permute-fusion", Switch, "", fusion),
	accepted("moe-router-fusion", Switch, "", fusion),
	accepted("moe-shared-expert-overlap", Switch, "", "the order of communication and compute is the executor's choice"),
)
