package table

const (
	fusion    = "which operations run as one is this device's choice; results do not depend on it"
	notBuilt  = "this program does not build such models"
	oneStack  = "GPT has one stack of layers; use --num-layers and --seq-length"
	noYarn    = "YaRN is not built in; use --position-embedding-type rope, with --use-rope-scaling or --rotary-base for long texts"
	noLatent  = "multi-latent attention (DeepSeek) is not built in; use --group-query-attention"
	noMTP     = "multi-token prediction is not built in; train on the next token alone"
	noMuP     = "muP is not built in; set --init-method-std and --lr per size instead"
	noSparse  = "sparse and linear attention are not built in; use --window-size for long texts"
	noHyper   = "hyper-connections are not built in; the residual stream is one"
	noGLU     = "it changes what the activation computes, which is fixed here (--swiglu, --quick-geglu, --squared-relu, GELU)"
	noQKClip  = "clipping query and key weights is not built in; use --qk-layernorm against large logits"
	layersAre = "all layers are alike here but for --moe-layer-freq, --no-rope-freq and --window-attn-skip-freq"
)

// modelFlags say what is trained.
var modelFlags = owned(Model,
	works("num-layers", Int, "", "Model.NumLayers", "transformer layers").from(1, lists).alias("encoder-num-layers"),
	works("hidden-size", Int, "", "Model.HiddenSize", "width of the residual stream").from(1, sizes),
	works("num-attention-heads", Int, "", "Model.NumAttentionHeads", "query heads").from(1, sizes),
	works("max-position-embeddings", Int, "", "Model.Context", "longest sequence the model knows; rows of learned positions").from(1, sizes),
	works("ffn-hidden-size", Int, "", "Model.FFNHiddenSize", "intermediate width of the MLP (4h; with --swiglu 8h/3 down to a multiple of 64)").from(1, sizes),
	works("kv-channels", Int, "", "Model.KVChannels", "width of one head (hidden-size / heads)").from(1, sizes),
	works("group-query-attention", Switch, "", "Raw.GroupQueryAttention", "fewer key and value heads than query heads"),
	works("num-query-groups", Int, "1", "Raw.QueryGroups", "key and value heads; read with --group-query-attention").from(1, sizes),
	works("position-embedding-type", String, "learned_absolute", "Model.Position", "how positions enter").
		choices("learned_absolute", "rope", "alibi", "none").same("absolute", "learned_absolute").same("rotary", "rope").
		but(noYarn, "yarn").but(notBuilt+"; use rope", "mrope", "relative").
		differs("alibi, absolute and rotary are Megatron-DeepSpeed's"),
	works("use-rotary-position-embeddings", Switch, "", "Raw.UseRotary", "older spelling of --position-embedding-type rope"),
	works("no-position-embedding", Switch, "", "Raw.NoPositionEmbedding", "older spelling of --position-embedding-type none; beside rope or alibi it says that no positions are learned"),
	works("rotary-base", Float, "10000", "Model.RotaryBase", "base of the RoPE wavelengths").above(0, 1e12).differs("whole numbers alone there"),
	works("rotary-percent", Float, "1.0", "Model.RotaryPercent", "share of a head's channels that rotate").above(0, 1),
	works("rotary-interleaved", Switch, "", "Model.RotaryInterleaved", "rotate pairs (2i, 2i+1) instead of (i, i+d/2)"),
	works("rotary-seq-len-interpolation-factor", Float, "", "Model.RotaryInterpolation", "positions are divided by it").above(0, 1e6).differs("whole numbers alone there"),
	works("use-rope-scaling", Switch, "", "Raw.RopeScaling", "Llama-3 scaling of long wavelengths"),
	works("rope-scaling-factor", Float, "8.0", "Raw.RopeScalingFactor", "factor of --use-rope-scaling (Megatron-LM d98e8a64 reads it and stays at 8)").from(1, 1e6),
	works("no-rope-freq", String, "", "Raw.NoRope", "N: layers N, 2N, .. have no RoPE; or a list such as ([0]*3+[1]), 1 where none is"),
	works("normalization", String, "LayerNorm", "Model.Normalization", "kind of norm").choices("LayerNorm", "RMSNorm"),
	works("norm-epsilon", Float, "1e-5", "Model.NormEpsilon", "epsilon inside the norm's root").from(0, 1).alias("layernorm-epsilon"),
	works("apply-layernorm-1p", Switch, "", "Model.NormOnePlus", "norm weights act as weight+1"),
	works("disable-bias-linear", Switch, "", "!Model.LinearBias", "no biases in linear layers"),
	works("disable-qkv-bias", Switch, "", "Raw.NoQKVBias", "no biases of Q, K and V beside those of the other linear layers (GPT-Neo)"),
	works("add-qkv-bias", Switch, "", "Model.QKVBias", "biases of Q, K and V alone (Qwen2)"),
	works("qk-layernorm", Switch, "", "Model.QKNorm", "norm of each query and key head"),
	works("qk-layernorm-whole", Switch, "", "Model.QKNormWhole", "with --qk-layernorm: one norm of all query heads of a token, one of its key heads (OLMo 2, OLMoE)"),
	works("parallel-residual", Switch, "", "Model.ParallelResidual", "attention and MLP both take what the layer takes, each through its norm, and both are added to it (GPT-NeoX)"),
	works("norm-after", Switch, "", "Model.NormAfter", "norms of what attention and MLP give, before it joins the residual stream, not of what they take (OLMo 2)"),
	refused("qk-l2-norm", Switch, "a norm without weights is not built in; --qk-layernorm has weights, which start at 1"),
	works("untie-embeddings-and-output-weights", Switch, "", "!Model.Tied", "output layer with weights of its own"),
	works("hidden-dropout", Float, "0.1", "Model.HiddenDropout", "dropout on embeddings and before residuals").below(0, 1),
	works("attention-dropout", Float, "0.1", "Model.AttentionDropout", "dropout on attention probabilities").below(0, 1),
	works("window-size", String, "", "Raw.Window", "sliding window LEFT,RIGHT: query i sees keys i-LEFT..i (RIGHT 0)").differs("a pair of numbers there; RIGHT is 0 in a causal model"),
	works("window-attn-skip-freq", String, "", "Raw.WindowSkip", "which layers --window-size leaves out: every Nth, or a list with 1 where the window holds"),
	works("softmax-scale", Float, "", "Model.SoftmaxScale", "what scores are multiplied by (1/sqrt(kv-channels))").above(0, 1000),
	accepted("softmax-type", String, "vanilla", "there is one softmax here").choices("vanilla").but(notBuilt, "off-by-one", "learnable"),
	works("init-method-std", Float, "0.02", "Model.InitStd", "standard deviation of initial weights").from(0, 1000),
	works("embedding-init-method-std", Float, "", "Model.EmbeddingInitStd", "the same for embeddings (--init-method-std)").from(0, 1000),
	refused("init-method-xavier-uniform", Switch, "Megatron-LM dropped it too; use --init-method-std, near sqrt(2/(5h)) for a width of h"),
	works("make-vocab-size-divisible-by", Int, "128", "VocabDivisor", "the vocabulary is padded to a multiple of this times the tensor-parallel size").from(1, sizes),
	works("vocab-size", Int, "", "Tokenizer.VocabSize", "ids of a tokenizer without files").from(1, sizes),
	works("padded-vocab-size", Int, "", "PaddedVocab", "rows of the embedding, instead of padding").from(1, sizes).alias("pad-vocab-size-to"),
	works("no-pad-vocab-size", Switch, "", "Raw.NoVocabPadding", "no more rows of the embedding than the tensor-parallel size asks for").alias("disable-pad-vocab-size"),
	works("padded-vocab-in-softmax", Switch, "", "Model.PaddedVocabCounts", "padding rows take part in the softmax, as in Megatron-LM; masked out otherwise"),
	works("embed-layernorm", Switch, "", "Model.EmbedNorm", "LayerNorm after the word embedding (BLOOM)"),
	accepted("fp32-residual-connection", Switch, "", "the residual stream has the type of the activations; without --bf16 and --fp16 that is f32"),
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
	accepted("output-logit-dtype", String, "", "logits are f32").choices("fp32").but("logits are f32 here, a few rows at a time; leave it out", "bf16"),
	accepted("disable-bf16-reduced-precision-matmul", Switch, "", "matmuls accumulate in f32"),
)

// oldModelFlags are names of earlier versions.
var oldModelFlags = owned(Model,
	accepted("use-mcore-models", Switch, "", "there is one model here"),
	accepted("use-flash-attn", Switch, "", "attention never stores scores"),
	accepted("openai-gelu", Switch, "", "the GELU is the tanh form unless --no-bias-gelu-fusion"),
	accepted("onnx-safe", String, "", "nothing is exported to ONNX"),
	accepted("apply-residual-connection-post-layernorm", Switch, "", "Megatron-LM ignores it as well: the residual is taken before the norm"),
	accepted("fp16-lm-cross-entropy", Switch, "", "the loss is always f32"),
	accepted("no-query-key-layer-scaling", Switch, "", "the scaling is off unless --apply-query-key-layer-scaling"),
	accepted("bert-no-binary-head", Switch, "", "it concerns BERT"),
	refused("decoder-num-layers", Int, oneStack).instead("num-layers"),
	refused("use-legacy-models", Switch, "there is one model here; leave it out"),
)

// otherModelFlags are of models, and parts of models, that are not built here.
var otherModelFlags = families(Model,
	allAccepted(fusion,
		switches("fused-residual-rmsnorm use-fused-weighted-squared-relu use-transformer-engine-op-fuser use-te-activation-func "+
			"disable-jit-fuser use-grouped-gemm-for-dense-mlp "+
			"no-clone-scatter-output-in-embedding/disable-clone-scatter-output-in-embedding"),
		ints("mlp-chunks-for-training flash-attention-version")),
	allAccepted("initial weights are always made, on the host, and a checkpoint replaces them", switches("no-initialization init-model-with-meta-device")),
	allAccepted("a row's result never depends on the rest of its batch",
		switches("batch-invariant-mode"),
		texts("batch-invariant-backend")),
	allRefused(notBuilt, switches("attention-output-gate freeze-all-layers")),
	allRefused(noGLU, floats("glu-linear-offset activation-func-clamp-value")),
	allRefused(noLatent,
		switches("multi-latent-attention cache-mla-latents mla-down-proj-fusion"),
		ints("q-lora-rank kv-lora-rank qk-head-dim qk-pos-emb-head-dim v-head-dim"),
		floats("rotary-scaling-factor mscale mscale-all-dim"),
		texts("rope-type")),
	allRefused(noYarn,
		switches("yarn-correction-range-round-to-int no-yarn-correction-range-round-to-int"),
		ints("yarn-original-max-position-embeddings"),
		floats("yarn-beta-fast yarn-beta-slow")),
	allRefused("position ids have one dimension here; use --position-embedding-type rope", several("mrope-section")),
	allRefused(noMTP,
		switches("mtp-standalone mtp-use-repeated-layer mtp-detach-heads mtp-hsm"),
		ints("mtp-num-layers"),
		floats("mtp-loss-scaling-factor"),
		texts("mtp-hybrid-override-pattern")),
	allRefused(noMuP,
		switches("use-mup"),
		ints("mup-base-hidden-size"),
		floats("mup-width-mult mup-embedding-mult mup-output-mult mup-base-head-dim mup-attn-scale-power")),
	allRefused(noSparse,
		switches("dsa-indexer-use-sparse-loss dsa-indexer-rope-interleaved "+
			"no-dsa-indexer-rotate-activation/disable-dsa-indexer-rotate-activation "+
			"no-dsa-indexer-scoring-relu/disable-dsa-indexer-scoring-relu dsa-indexer-k-norm-fp32"),
		ints("dsa-indexer-n-heads dsa-indexer-head-dim dsa-indexer-topk dsa-indexer-topk-freq dsa-indexer-skip-topk-offset "+
			"linear-conv-kernel-dim linear-key-head-dim linear-value-head-dim linear-num-key-heads linear-num-value-heads"),
		floats("dsa-indexer-loss-coeff dsa-indexer-k-norm-epsilon"),
		texts("experimental-attention-variant dsa-kernel-backend linear-attention-freq")),
	allRefused(noHyper,
		switches("enable-mhc-connections"),
		ints("mhc-num-residual-streams mhc-sinkhorn-iterations mhc-recompute-layer-num"),
		floats("mhc-init-gating-factor")),
	allRefused(noQKClip,
		switches("qk-clip log-max-attention-logit"),
		floats("qk-clip-alpha qk-clip-threshold")),
	allRefused(layersAre, texts("heterogeneous-layers-config-path heterogeneous-layers-config-encoded-json")))
