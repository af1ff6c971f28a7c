package table

const (
	fusion    = "the device decides which operations to fuse; results do not depend on it"
	notBuilt  = "models of this kind are not supported"
	oneStack  = "GPT has one stack of layers; use --num-layers and --seq-length"
	noYarn    = "use --position-embedding-type rope with --rope-parameters, as in {\"rope_type\": \"yarn\", ...}"
	noMTP     = "layers of multi-token prediction are like the decoder's last layer, and are on the last pipeline stage; leave the flag out"
	noMuP     = "the value follows from --hidden-size and --mup-base-hidden-size; leave the flag out"
	noSparse  = "sparse attention with an indexer (DSA) is not supported; use --window-size for long texts"
	noHyper   = "hyper-connections are not supported; leave the flag out"
	noQKClip  = "clipping of query and key weights is not supported; use --qk-layernorm against large logits"
	layersAre = "layers cannot be described one by one; use flags such as --moe-layer-freq, --window-attn-skip-freq and --hybrid-layer-pattern"
)

// modelFlags say what is trained.
var modelFlags = owned(Model,
	works("num-layers", Int, "", "Model.NumLayers", "set the number of transformer layers").from(1, lists).alias("encoder-num-layers"),
	works("hidden-size", Int, "", "Model.HiddenSize", "set the width of the residual stream").from(1, sizes),
	works("num-attention-heads", Int, "", "Model.NumAttentionHeads", "set the number of query heads").from(1, sizes),
	works("max-position-embeddings", Int, "", "Model.Context", "set the length of the longest sequence, and the number of learned positions").from(1, sizes),
	works("ffn-hidden-size", Int, "", "Model.FFNHiddenSize", "set the intermediate width of the MLP (default: 4 times --hidden-size; with --swiglu, 8/3 times --hidden-size, rounded down to a multiple of 64)").from(1, sizes),
	works("kv-channels", Int, "", "Model.KVChannels", "set the width of one head (default: hidden-size / heads)").from(1, sizes),
	works("group-query-attention", Switch, "", "Raw.GroupQueryAttention", "use fewer key and value heads than query heads; see --num-query-groups"),
	works("num-query-groups", Int, "1", "Raw.QueryGroups", "set the number of key and value heads; needs --group-query-attention").from(1, sizes),
	works("position-embedding-type", String, "learned_absolute", "Model.Position", "choose the position encoding").
		choices("learned_absolute", "rope", "alibi", "none").same("absolute", "learned_absolute").same("rotary", "rope").
		but(noYarn, "yarn").but(notBuilt+"; use rope", "mrope", "relative").
		differs("does not have alibi, absolute and rotary, which are names of Megatron-DeepSpeed"),
	works("use-rotary-position-embeddings", Switch, "", "Raw.UseRotary", "use RoPE; this is an older spelling of --position-embedding-type rope"),
	works("no-position-embedding", Switch, "", "Raw.NoPositionEmbedding", "learn no position embeddings; this is an older spelling of --position-embedding-type none, and is also accepted with rope and alibi"),
	works("rotary-base", Float, "10000", "Model.RotaryBase", "set the base of the RoPE wavelengths").above(0, 1e12).differs("accepts integers only"),
	works("rotary-percent", Float, "1.0", "Model.RotaryPercent", "set the fraction of a head's channels that rotate").above(0, 1),
	works("rotary-interleaved", Switch, "", "Model.RotaryInterleaved", "let RoPE rotate channels 2i and 2i+1 as a pair, instead of channels i and i+d/2 of the d rotating channels"),
	works("rotary-seq-len-interpolation-factor", Float, "", "Model.RotaryInterpolation", "divide positions by this number before RoPE (default: 1)").above(0, 1e6).differs("accepts integers only"),
	works("use-rope-scaling", Switch, "", "Raw.RopeScaling", "scale long RoPE wavelengths as Llama 3 does"),
	works("rope-scaling-factor", Float, "8.0", "Raw.RopeScalingFactor", "set the factor of --use-rope-scaling (Megatron-LM d98e8a64 reads this flag but always uses 8)").from(1, 1e6),
	works("rope-parameters", String, "", "Model.RopeRule", "set the rule of the RoPE frequencies as JSON, with the keys that rope_parameters has in a Hugging Face config.json; rope_type is default, linear, llama3, yarn, longrope, dynamic or proportional"),
	works("window-rope-parameters", String, "", "Model.WindowRope", "set the rule of the RoPE frequencies in layers with --window-size or --attention-chunk-size, as JSON like that of --rope-parameters; rope_theta is the base in these layers (default: the same rule as in the other layers)"),
	works("position-offset", Int, "", "Model.PositionOffset", "let position 0 read row N of the learned positions, position 1 row N+1, and so on (OPT uses 2; default: 0)").from(0, sizes),
	works("no-rope-freq", String, "", "Raw.NoRope", "choose the layers without RoPE: N means layers N, 2N, ..; a list such as ([0]*3+[1]) has a 1 for each layer without RoPE"),
	works("normalization", String, "LayerNorm", "Model.Normalization", "choose the kind of norm").choices("LayerNorm", "RMSNorm"),
	works("norm-epsilon", Float, "1e-5", "Model.NormEpsilon", "set the epsilon inside the norm's square root").from(0, 1).alias("layernorm-epsilon"),
	works("apply-layernorm-1p", Switch, "", "Model.NormOnePlus", "use weight+1 as the norm's weight"),
	works("disable-bias-linear", Switch, "", "!Model.LinearBias", "omit biases of linear layers"),
	works("disable-qkv-bias", Switch, "", "Raw.NoQKVBias", "omit the biases of Q, K and V only; other linear layers keep theirs (GPT-Neo)"),
	works("add-qkv-bias", Switch, "", "Model.QKVBias", "add biases to Q, K and V only (Qwen2)"),
	works("qk-layernorm", Switch, "", "Model.QKNorm", "normalize each query and key head"),
	works("qk-layernorm-whole", Switch, "", "Model.QKNormFull", "with --qk-layernorm, apply one norm to all query heads of a token and one to all its key heads (OLMo 2, OLMoE)"),
	works("parallel-residual", Switch, "", "Model.ParallelResidual", "run attention and MLP in parallel on the layer input (GPT-NeoX)"),
	works("norm-after", Switch, "", "Model.NormAfter", "normalize the outputs of attention and MLP before the residual addition, instead of their inputs (OLMo 2)"),
	works("qk-l2-norm", Switch, "", "Model.QKL2Norm", "divide the queries and keys of each head, after RoPE, by their root mean square (Llama 4)"),
	works("qk-layernorm-after-rope", Switch, "", "Model.QKNormAfterRope", "with --qk-layernorm, normalize queries and keys after RoPE instead of before it (Hunyuan)"),
	works("norm-sandwich", Switch, "", "Model.NormSandwich", "normalize both the inputs and the outputs of attention and MLP (Gemma 2 and 3)"),
	works("norm-behind-sum", Switch, "", "Model.NormBehindSum", "normalize the residual sums instead of the inputs of attention and MLP; the norm of the last layer is also the final norm (OPT-350m)"),
	works("norm-without-bias", Switch, "", "Model.NormNoBias", "omit the biases of LayerNorm (Cohere)"),
	works("parallel-one-norm", Switch, "", "Model.ParallelOneNorm", "with --parallel-residual, give attention and MLP the output of one norm (Falcon 7B, Cohere)"),
	works("embedding-multiplier", Float, "", "Model.EmbeddingScale", "multiply the embeddings by this factor, which is rounded to the data type of the activations (Gemma uses sqrt(hidden-size); default: 1)").above(0, 1e6),
	works("residual-multiplier", Float, "", "Model.ResidualScale", "multiply the outputs of attention and MLP by this factor before they are added to the residual stream (Granite; default: 1)").above(0, 1e6),
	works("logit-multiplier", Float, "", "Model.LogitScale", "multiply the logits by this factor (Cohere, Granite; default: 1)").above(0, 1e6),
	works("logit-softcap", Float, "", "Model.LogitCap", "replace each logit x by C*tanh(x/C), where C is this number (Gemma 2; default: no bound)").above(0, 1e6),
	works("attention-softcap", Float, "", "Model.ScoreCap", "replace each attention score x by C*tanh(x/C), where C is this number; not supported on --device cuda (Gemma 2; default: no bound)").above(0, 1e6),
	works("add-proj-bias", Switch, "", "Model.ProjBias", "with --disable-bias-linear, add a bias to the output projection of attention"),
	works("disable-proj-bias", Switch, "", "Model.NoProjBias", "omit only the bias of the output projection of attention; other linear layers keep theirs"),
	works("activation-func-clamp-value", Float, "", "Model.GateLimit", "clamp the gate of a gated MLP to at most C and its linear half to between -C and C, where C is this number (GPT-OSS uses 7; default: no bound)").above(0, 1e6),
	works("glu-linear-offset", Float, "0.0", "Model.GateOffset", "add this number to the linear half of a gated MLP (GPT-OSS uses 1)").from(-1e6, 1e6),
	works("untie-embeddings-and-output-weights", Switch, "", "!Model.Tied", "give the output layer its own weights"),
	works("hidden-dropout", Float, "0.1", "Model.HiddenDropout", "set the dropout probability on embeddings and before residual additions").below(0, 1),
	works("attention-dropout", Float, "0.1", "Model.AttentionDropout", "set the dropout probability on attention probabilities").below(0, 1),
	works("window-size", String, "", "Raw.Window", "set the sliding window LEFT,RIGHT: query i sees keys i-LEFT to i, and RIGHT must be 0 (default: no window)").differs("accepts any pair of numbers; in monotron RIGHT must be 0, as models are causal"),
	works("window-attn-skip-freq", String, "", "Raw.WindowSkip", "choose the layers without the window of --window-size: N means every Nth layer; a list has a 1 for each layer with the window and a 0 for each layer without it"),
	works("softmax-scale", Float, "", "Model.SoftmaxScale", "multiply attention scores by this factor (default: 1/sqrt(kv-channels))").above(0, 1000),
	works("softmax-type", String, "vanilla", "Raw.SoftmaxType", "choose the softmax of attention: learnable adds one trained score per head to the denominator (attention sink, GPT-OSS)").choices("vanilla", "learnable").but(notBuilt, "off-by-one"),
	works("attention-chunk-size", Int, "", "Model.Chunk", "divide sequences into chunks of N positions, and let a query see only the keys of its own chunk; --window-attn-skip-freq chooses the layers (Llama 4; default: no chunks)").from(1, sizes),
	works("query-growth", Float, "", "Model.QueryGrowth", "multiply the query at position p by 1 + G*ln(1 + floor((p+1)/F)) in layers without RoPE, where G is this number and F is --query-growth-from (Llama 4; default: no growth)").above(0, 1e6),
	works("query-growth-everywhere", Switch, "", "Model.QueryGrowthAll", "apply --query-growth in all layers, with p instead of p+1 (Ministral 3)"),
	works("query-growth-from", Int, "", "Model.QueryGrowthFrom", "set the number of positions F in the formula of --query-growth").from(1, sizes),
	works("alibi-by-key", Switch, "", "Model.AlibiTable", "with --position-embedding-type alibi, add slope * key position, rounded to bf16, to the scores before these are scaled; not supported on --device cuda (Falcon-RW)"),
	works("init-method-std", Float, "0.02", "Model.InitStd", "set the standard deviation of initial weights").from(0, 1000),
	works("embedding-init-method-std", Float, "", "Model.EmbeddingInitStd", "set the standard deviation of initial embeddings (default: --init-method-std)").from(0, 1000),
	refused("init-method-xavier-uniform", Switch, "Megatron-LM no longer has this flag; use --init-method-std with about sqrt(2/(5h)) for hidden size h"),
	works("make-vocab-size-divisible-by", Int, "128", "VocabDivisor", "pad the vocabulary to a multiple of this number times the tensor-parallel size").from(1, sizes),
	works("vocab-size", Int, "", "Tokenizer.VocabSize", "set the number of token ids, for a tokenizer without files").from(1, sizes),
	works("padded-vocab-size", Int, "", "PaddedVocab", "set the number of rows of the embedding, instead of padding by --make-vocab-size-divisible-by").from(1, sizes).alias("pad-vocab-size-to"),
	works("no-pad-vocab-size", Switch, "", "Raw.NoVocabPadding", "pad the vocabulary only as far as the tensor-parallel size needs").alias("disable-pad-vocab-size"),
	works("padded-vocab-in-softmax", Switch, "", "Model.PaddedVocabCounts", "include the padding rows of the vocabulary in the softmax, as Megatron-LM does (default: mask them out)"),
	works("embed-layernorm", Switch, "", "Model.EmbedNorm", "add a LayerNorm after the word embedding (BLOOM)"),
	accepted("fp32-residual-connection", Switch, "", "the residual stream has the data type of the activations: f32 without --bf16 and --fp16"),
	works("apply-query-key-layer-scaling", Switch, "", "Model.ApplyQKLayerScale", "divide attention scores by the layer number and multiply them by the same number in the softmax; the flag is recorded but has no effect, because the result is the same"),
	accepted("attention-softmax-in-fp32", Switch, "", "scores and softmax are f32 in every precision"),
	accepted("transformer-impl", String, "transformer_engine", "layers have a single implementation").choices("transformer_engine", "local", "inference_optimized"),
	works("attention-backend", String, "auto", "AttentionBackend", "choose the attention kernels on --device cuda: fused uses those of cuDNN, and flash those of monotron; auto uses cuDNN if it is installed, supports the shape and gives equal results").choices("auto", "flash", "fused", "unfused", "local"),
	works("spec", Strings, "", "Raw.Spec", "name the Python module that describes the layers; only Megatron's module for --hybrid-layer-pattern is accepted; naming it has no further effect").differs("accepts any module; monotron accepts only the module of those models, and describes other models by flags"),
	accepted("no-masked-softmax-fusion", Switch, "", fusion),
	accepted("no-bias-swiglu-fusion", Switch, "", fusion),
	accepted("no-bias-dropout-fusion", Switch, "", fusion),
	accepted("no-rope-fusion", Switch, "", fusion),
	accepted("no-gradient-accumulation-fusion", Switch, "", "weight gradients are always accumulated directly in the f32 main gradient"),
	accepted("no-persist-layer-norm", Switch, "", fusion),
	accepted("cross-entropy-loss-fusion", Switch, "", "output layer and cross entropy are always one chunked operation"),
	accepted("cross-entropy-fusion-impl", String, "native", "cross entropy has a single implementation").choices("native").but("Transformer Engine is not used here; use native", "te"),
	accepted("output-logit-dtype", String, "", "logits are f32").choices("fp32").but("logits are always f32, computed a few rows at a time; leave the flag out", "bf16"),
	accepted("disable-bf16-reduced-precision-matmul", Switch, "", "matmuls accumulate in f32"),
)

// latentFlags are of multi-latent attention.
var latentFlags = owned(Model,
	works("multi-latent-attention", Switch, "", "Raw.MultiLatent", "compute keys and values of all heads from one latent vector per token (DeepSeek); --qk-layernorm then normalizes the latent vectors"),
	works("q-lora-rank", Int, "", "Raw.Latent.QRank", "with --multi-latent-attention, set the width of the latent vector of queries (default: none; queries are computed from the layer input)").from(1, sizes),
	works("kv-lora-rank", Int, "32", "Raw.Latent.KVRank", "with --multi-latent-attention, set the width of the latent vector of keys and values").from(1, sizes),
	works("qk-head-dim", Int, "128", "Raw.Latent.QKDim", "with --multi-latent-attention, set the number of channels of each query and key head that RoPE does not rotate").from(1, 1<<20),
	works("qk-pos-emb-head-dim", Int, "64", "Raw.Latent.RopeDim", "with --multi-latent-attention, set the number of channels of each query and key head that RoPE rotates; the number must be even").from(2, 1<<20),
	works("v-head-dim", Int, "128", "Raw.Latent.VDim", "with --multi-latent-attention, set the number of channels of a value head").from(1, 1<<20),
	works("latent-norm-epsilon", Float, "", "Model.LatentEpsilon", "with --multi-latent-attention, set the epsilon of the norms of latent vectors (default: that of --norm-epsilon)").above(0, 1),
	works("rope-type", String, "", "Raw.RopeType", "choose the kind of RoPE with --multi-latent-attention (default: yarn)").choices("rope", "yarn"),
	works("rotary-scaling-factor", Float, "1.0", "Raw.Latent.Factor", "with --multi-latent-attention, set the factor by which YaRN lengthens the model's 4096 positions (for another length, use --rope-parameters with rope_type yarn)").from(1, 1e6),
	works("mscale", Float, "1.0", "Raw.Latent.MScale", "with --rope-type yarn, multiply the channels that RoPE rotates by (0.1*M*ln(S)+1) / (0.1*A*ln(S)+1), where M is this number, S is --rotary-scaling-factor and A is --mscale-all-dim").from(0, 1000),
	works("mscale-all-dim", Float, "0.0", "Raw.Latent.MScaleAllDim", "with --multi-latent-attention, multiply the attention scores by the square of 0.1*A*ln(S)+1, where A is this number and S is --rotary-scaling-factor").from(0, 1000),
)

// mupFlags are of muP.
var mupFlags = owned(Model,
	works("use-mup", Switch, "", "Raw.MuP.On", "scale initial weights, learning rates, attention and logits with the width (muP), so that settings found at --mup-base-hidden-size hold at --hidden-size"),
	works("mup-base-hidden-size", Int, "0", "Raw.MuP.BaseHidden", "with --use-mup, set the width at which --lr and --init-method-std were found").from(0, sizes).differs("has no default; 0 here means that none is given"),
	works("mup-embedding-mult", Float, "1.0", "Raw.MuP.Embedding", "with --use-mup, set the factor on the embeddings").above(0, 1e6),
	works("mup-output-mult", Float, "1.0", "Raw.MuP.Output", "with --use-mup, multiply the logits by this factor; the value 1 is replaced by the base width divided by the width").above(0, 1e6),
	works("mup-base-head-dim", Float, "", "Raw.MuP.BaseHead", "with --use-mup, set the width of a head in the model of the base width; attention scores are multiplied by the square root of this number (default: 1)").above(0, 1e6),
	works("mup-attn-scale-power", Float, "1.0", "Raw.MuP.Power", "with --use-mup, divide attention scores by the head width raised to this power").from(0, 4),
)

// fullFlags are of attention that differs in layers without a window.
var fullFlags = owned(Model,
	works("full-attention-kv-channels", Int, "0", "Raw.Full.KVChannels", "set the width of one head in layers without a window (Gemma 4; 0 uses --kv-channels)").from(0, sizes),
	works("full-attention-query-groups", Int, "0", "Raw.Full.NumQueryGroups", "set the number of query groups in layers without a window (Gemma 4; 0 uses --num-query-groups)").from(0, 1<<20),
	works("v-layernorm", Switch, "", "Model.ValueNorm", "divide the values of each head by their root mean square (Gemma 4)"),
	works("keys-are-values", Switch, "", "Model.KeysAreValues", "use the keys, before norm and RoPE, also as values; with --full-attention-kv-channels or --full-attention-query-groups, do so only in layers without a window (Gemma 4)"),
	works("kv-shared-layers", Int, "0", "Model.KVShared", "let each of the last N layers use the keys and values of an earlier layer: a layer with a window uses those of the last layer before these N that has a window; a layer without a window, those of the last one that has none (Gemma 4 E2B and E4B)").from(0, 1<<20),
	works("double-wide-mlp", Switch, "", "Model.WideShared", "with --kv-shared-layers, double the MLP width of the layers that use the keys and values of another layer"),
	works("per-layer-input-size", Int, "0", "Model.PerLayerInput", "set the width of the additional token embedding that each layer reads through a gate (Gemma 4 E2B and E4B; 0 means none)").from(0, sizes),
	works("moe-parallel-mlp", Switch, "", "Model.ParallelMLP", "with --num-experts and --norm-sandwich, run a dense MLP in parallel with the experts, each with its own norms (Gemma 4 26B-A4B)"),
	works("layer-scalar", Switch, "", "Model.LayerScalar", "multiply each layer's output by a number that starts at 1 and is not trained (Gemma 4)"),
)

// convFlags are of short convolutions.
var convFlags = owned(Model,
	works("short-conv-freq", String, "", "Raw.ConvFreq", "choose the layers with a short convolution instead of attention (LFM2): N means all layers except N-1, 2N-1, ..; a list such as ([1]*2+[0]*1) has a 1 for each such layer (default: none)"),
	works("short-conv-kernel-dim", Int, "3", "Raw.ConvTaps", "with --short-conv-freq, set the number of positions that the convolution sees").from(1, 16),
)

// mambaFlags are of state-space scans, and of models whose layers are scans, attention, MLPs or experts.
var mambaFlags = owned(Model,
	works("hybrid-layer-pattern", String, "", "Raw.HybridPattern", "give each layer only one sublayer, chosen by one symbol per layer (Nemotron-H): M for a state-space scan (Mamba-2), * for attention, - for an MLP, E for experts; | divides pipeline stages (default: every layer has a mixer and an MLP)").alias("hybrid-override-pattern"),
	works("is-hybrid-model", Switch, "", "Raw.IsHybrid", "declare the model as hybrid, which --hybrid-layer-pattern already does; the flag needs --hybrid-layer-pattern and has no further effect"),
	works("mamba-layer-freq", String, "", "Raw.MambaFreq", "choose the layers with a state-space scan (Mamba-2) instead of attention: N means all layers except N-1, 2N-1, ..; a list such as ([1]*5+[0]*1) has a 1 for each such layer (default: none)"),
	works("mamba-state-dim", Int, "128", "Raw.Mamba.StateDim", "with state-space scans, set the number of rows of a head's state; B and C have this number of channels").from(1, 1<<20),
	works("mamba-head-dim", Int, "64", "Raw.Mamba.HeadDim", "with state-space scans, set the number of channels of a head").from(1, 1<<20),
	works("mamba-num-groups", Int, "8", "Raw.Mamba.Groups", "with state-space scans, set the number of groups of heads; the heads of a group, which are adjacent, share B and C; the number must be 1 or a multiple of --tensor-model-parallel-size").from(1, 1<<20),
	works("mamba-num-heads", Int, "", "Raw.Mamba.Heads", "with state-space scans, set the number of heads, which must be a multiple of --mamba-num-groups (default: 2 * --hidden-size / --mamba-head-dim)").from(1, 1<<20),
	works("mamba-conv-kernel-dim", Int, "4", "Raw.Mamba.Taps", "with state-space scans, set the number of positions that the convolution of x, B and C sees").from(1, 16),
	works("no-mamba-conv-bias", Switch, "", "Raw.NoMambaConvBias", "with state-space scans, leave out the biases of the convolution"),
	works("mamba-dt-min", Float, "0", "Raw.Mamba.DtMin", "with state-space scans, set the smallest time step").from(0, 1e6),
	works("mamba-dt-max", Float, "0", "Raw.Mamba.DtMax", "with state-space scans, set the largest time step (0 disables the limit)").from(0, 1e6),
	accepted("disable-mamba-mem-eff-path", Switch, "", "the scan has a single implementation"),
)

// deltaFlags are of gated delta nets, and of the gate of attention's output that models with them have.
var deltaFlags = owned(Model,
	works("experimental-attention-variant", String, "", "Raw.AttentionVariant", "choose the kind of linear attention in the layers that --linear-attention-freq chooses; gated_delta_net is that of Qwen3-Next (default: none)").choices("gated_delta_net").same("gdn", "gated_delta_net").but(noSparse, "dsa").but("this kind of linear attention is not supported; use gated_delta_net", "gdn2"),
	works("linear-attention-freq", String, "", "Raw.DeltaFreq", "with --experimental-attention-variant, choose the layers with linear attention: N means all layers except N-1, 2N-1, ..; a list such as ([1]*3+[0]*1) has a 1 for each such layer"),
	works("linear-conv-kernel-dim", Int, "4", "Raw.Delta.Taps", "with --experimental-attention-variant, set the number of positions that the convolution of queries, keys and values sees").from(1, 16),
	works("linear-key-head-dim", Int, "128", "Raw.Delta.KeyDim", "with --experimental-attention-variant, set the number of channels of a query and key head").from(1, 1<<20),
	works("linear-value-head-dim", Int, "128", "Raw.Delta.ValueDim", "with --experimental-attention-variant, set the number of channels of a value head").from(1, 1<<20),
	works("linear-num-key-heads", Int, "16", "Raw.Delta.KeyHeads", "with --experimental-attention-variant, set the number of query and key heads").from(1, 1<<20),
	works("linear-num-value-heads", Int, "32", "Raw.Delta.ValueHeads", "with --experimental-attention-variant, set the number of value heads, which must be a multiple of --linear-num-key-heads").from(1, 1<<20),
	works("attention-output-gate", Switch, "", "Model.OutputGate", "multiply each channel of attention's output by the sigmoid of a gate, which is computed from the layer's input in the same matrix product as the queries (Qwen3-Next)"),
)

// mtpFlags are of multi-token prediction.
var mtpFlags = owned(Model,
	works("mtp-num-layers", Int, "", "Raw.MTP.Depths", "predict N more tokens after the next one, each by an additional layer after those of the decoder (default: 0)").from(0, 64),
	works("mtp-loss-scaling-factor", Float, "0.1", "Raw.MTP.LossScale", "with --mtp-num-layers, set the weight of the mean loss of the additional tokens").from(0, 1e6),
	works("mtp-use-repeated-layer", Switch, "", "Raw.MTP.Repeated", "with --mtp-num-layers, use the same layer for all additional tokens"),
	works("mtp-detach-heads", Switch, "", "Raw.MTP.DetachHeads", "with --mtp-num-layers, let the losses of multi-token prediction train only the layers of multi-token prediction, and clip the gradients of these layers by a separate norm"),
)

// oldModelFlags are names of earlier versions.
var oldModelFlags = owned(Model,
	accepted("use-mcore-models", Switch, "", "the model has a single implementation"),
	accepted("use-flash-attn", Switch, "", "attention never stores its scores"),
	accepted("openai-gelu", Switch, "", "GELU has the tanh form unless --no-bias-gelu-fusion is given"),
	accepted("onnx-safe", String, "", "nothing is exported to ONNX"),
	accepted("apply-residual-connection-post-layernorm", Switch, "", "Megatron-LM also ignores this flag; the residual is taken before the norm"),
	accepted("fp16-lm-cross-entropy", Switch, "", "the loss is always f32"),
	accepted("no-query-key-layer-scaling", Switch, "", "the scaling is off unless --apply-query-key-layer-scaling is given"),
	accepted("bert-no-binary-head", Switch, "", "BERT models are not supported"),
	refused("decoder-num-layers", Int, oneStack).instead("num-layers"),
	refused("use-legacy-models", Switch, "the model has a single implementation; leave the flag out"),
)

// otherModelFlags are of models, and parts of models, that are not built here.
var otherModelFlags = families(Model,
	allAccepted(fusion,
		switches("fused-residual-rmsnorm use-fused-weighted-squared-relu use-transformer-engine-op-fuser use-te-activation-func "+
			"disable-jit-fuser use-grouped-gemm-for-dense-mlp "+
			"no-clone-scatter-output-in-embedding/disable-clone-scatter-output-in-embedding"),
		ints("mlp-chunks-for-training flash-attention-version")),
	allAccepted("weights are always initialized on the host and then replaced by those of the checkpoint", switches("no-initialization init-model-with-meta-device")),
	allAccepted("the result of a row never depends on the other rows of its batch",
		switches("batch-invariant-mode"),
		texts("batch-invariant-backend")),
	allRefused("a run must train some parameters; use --freeze-parameters to freeze a part of them, or --skip-train to evaluate the model", switches("freeze-all-layers")),
	allAccepted("the cache of generation always holds the latents", switches("cache-mla-latents")),
	allAccepted(fusion, switches("mla-down-proj-fusion")),
	allRefused(noYarn,
		switches("yarn-correction-range-round-to-int no-yarn-correction-range-round-to-int"),
		ints("yarn-original-max-position-embeddings"),
		floats("yarn-beta-fast yarn-beta-slow")),
	allRefused("position ids have one dimension; use --position-embedding-type rope", several("mrope-section")),
	allRefused(noMTP,
		switches("mtp-standalone mtp-hsm"),
		texts("mtp-hybrid-override-pattern")),
	allRefused(noMuP, floats("mup-width-mult")),
	allRefused(noSparse,
		switches("dsa-indexer-use-sparse-loss dsa-indexer-rope-interleaved "+
			"no-dsa-indexer-rotate-activation/disable-dsa-indexer-rotate-activation "+
			"no-dsa-indexer-scoring-relu/disable-dsa-indexer-scoring-relu dsa-indexer-k-norm-fp32"),
		ints("dsa-indexer-n-heads dsa-indexer-head-dim dsa-indexer-topk dsa-indexer-topk-freq dsa-indexer-skip-topk-offset"),
		floats("dsa-indexer-loss-coeff dsa-indexer-k-norm-epsilon"),
		texts("dsa-kernel-backend")),
	allRefused(noHyper,
		switches("enable-mhc-connections"),
		ints("mhc-num-residual-streams mhc-sinkhorn-iterations mhc-recompute-layer-num"),
		floats("mhc-init-gating-factor")),
	allRefused(noQKClip,
		switches("qk-clip log-max-attention-logit"),
		floats("qk-clip-alpha qk-clip-threshold")),
	allRefused(layersAre, texts("heterogeneous-layers-config-path heterogeneous-layers-config-encoded-json")))
