package table

const (
	noDeepEP  = "NVIDIA's DeepEP and HybridEP are not supported; use --moe-token-dispatcher-type alltoall"
	noGrouped = "expert weights have a single layout; leave the flag out"
	noTrace   = "routing is not recorded; use --moe-per-layer-logging to see the load balance"
)

// expertFlags describe mixtures of experts.
var expertFlags = owned(Experts,
	works("num-experts", Int, "", "Raw.Experts.Num", "set the number of experts in a mixture layer (default: a dense model)").from(1, lists),
	works("moe-layer-freq", String, "1", "Raw.LayerFreq", "choose the layers with experts: N means layers 0, N, 2N, ..; a list such as ([0]*1+[1]*3) has a 1 for each such layer"),
	works("moe-ffn-hidden-size", Int, "", "Raw.Experts.FFNHiddenSize", "set the intermediate width of an expert (default: --ffn-hidden-size)").from(1, sizes),
	works("moe-router-topk", Int, "2", "Raw.Experts.TopK", "set the number of experts per token").from(1, lists),
	works("moe-router-pre-softmax", Switch, "", "Raw.Experts.PreSoftmax", "apply the softmax over all experts before the top-k selection"),
	works("moe-router-score-function", String, "softmax", "Raw.Experts.ScoreFunction", "choose the function that turns router logits into scores").choices("softmax", "sigmoid", "sqrtsoftplus"),
	works("moe-router-topk-scaling-factor", Float, "", "Raw.Experts.ScalingFactor", "multiply the weights of the experts chosen for a token by this factor (default: 1)").above(0, 1e6),
	works("moe-router-num-groups", Int, "", "Raw.Experts.NumGroups", "divide the experts into N groups; the router first selects groups, and then experts of these groups").from(1, lists),
	works("moe-router-group-topk", Int, "", "Raw.Experts.GroupTopK", "set the number of groups that a token may use").from(1, lists),
	works("moe-router-group-best", Int, "", "Raw.Experts.GroupBest", "let the score of a group be the sum of the N best scores of its experts; DeepSeek V3 uses 2, and V2 uses 1 (default: --moe-router-topk / --moe-router-group-topk)").from(1, lists),
	works("moe-router-dtype", String, "", "Raw.Experts.RouterDtype", "set the data type of the router's logits (default: that of the activations)").choices("fp32", "fp64"),
	works("moe-router-enable-expert-bias", Switch, "", "Raw.Experts.ExpertBias", "balance the load by a bias per expert instead of a loss"),
	works("moe-router-bias-update-rate", Float, "1e-3", "Raw.Experts.BiasUpdateRate", "set the step size of the expert bias").from(0, 1),
	works("moe-router-load-balancing-type", Strings, "aux_loss", "Raw.Experts.Balancing", "choose the method of load balancing; several may be given").
		choices("aux_loss", "seq_aux_loss", "global_aux_loss", "sinkhorn", "quantile_balancing", "none"),
	works("moe-aux-loss-coeff", Floats, "0", "Raw.Experts.AuxLossCoeff", "set the weight of the balancing loss; give one weight per value of --moe-router-load-balancing-type").from(0, 1000),
	works("moe-global-aux-exact", Switch, "", "Raw.Experts.GlobalExact", "give global_aux_loss the same gradient as on one rank; Megatron-LM divides that gradient by the data-parallel size"),
	works("moe-router-quantile-balancing-ema", Float, "0", "Raw.Experts.QuantileEMA", "with quantile_balancing, set the weight of the previous quantiles in their moving average").from(0, 1),
	works("moe-z-loss-coeff", Float, "", "Raw.Experts.ZLossCoeff", "set the weight of the router's z-loss (default: no z-loss)").from(0, 1000),
	works("moe-input-jitter-eps", Float, "", "Raw.Experts.JitterEps", "multiply the router's input, in training, by a random factor between 1-X and 1+X, where X is this number (default: no jitter)").from(0, 1),
	works("moe-token-dispatcher-type", String, "allgather", "Raw.Experts.Dispatcher", "choose the collective that brings tokens to experts on other ranks").
		choices("allgather", "alltoall").but("NVIDIA's DeepEP is not supported; use alltoall", "flex"),
	works("moe-expert-capacity-factor", Float, "", "Raw.Experts.CapacityFactor", "set the per-expert capacity on each rank as a multiple of the mean load (default: unlimited)").above(0, 1e6),
	works("moe-pad-expert-input-to-capacity", Switch, "", "Raw.Experts.PadToCapacity", "pad each expert's input to its capacity"),
	works("moe-token-drop-policy", String, "probs", "Raw.Experts.DropPolicy", "choose the tokens to drop when an expert is full: those of lowest probability (probs), or the last ones (position)").choices("probs", "position"),
	works("moe-latent-size", Int, "", "Raw.Experts.LatentSize", "set the width of the inputs and outputs of experts; two projections per layer convert from and to --hidden-size, which is still the width of the shared expert (default: --hidden-size)").from(1, sizes),
	works("moe-shared-expert-intermediate-size", Int, "", "Raw.Experts.SharedFFN", "set the intermediate width of the shared expert, which processes every token (default: no shared expert)").from(1, sizes),
	works("moe-shared-expert-gate", Switch, "", "Raw.Experts.SharedGate", "add a gate to the shared expert"),
	works("moe-shared-expert-overlap", Switch, "", "Raw.Experts.SharedOverlap", "compute the shared expert while tokens are exchanged; needs --moe-token-dispatcher-type alltoall"),
	works("moe-per-layer-logging", Switch, "", "Log.MoEPerLayer", "log balancing losses layer by layer"),
	works("moe-imbalance-limit", Float, "4", "Log.ImbalanceLimit", "warn, once per expert, when an expert gets more than this multiple of the mean load (0 disables the warning)").from(0, 1e6),
	works("log-moe-exchanges", Switch, "", "Log.Exchanges", "log how many tokens each rank sends to and receives from other ranks, per micro-batch and layer"),
	works("moe-apply-probs-on-input", Switch, "", "Raw.Experts.ProbsOnInput", "multiply an expert's input, not its output, by the token's weight; needs --moe-router-topk 1"),
	refused("moe-layer-recompute", Switch, "use --recompute-granularity selective --recompute-modules moe"),
	works("moe-router-force-load-balancing", Switch, "", "Raw.Experts.ForceBalance", "route tokens at random; use this for benchmarks only"),
	refused("moe-router-force-biased", Float, "use --moe-router-force-load-balancing, which routes tokens at random"),
)

// otherExpertFlags are ways to train mixtures of experts that are not here.
var otherExpertFlags = families(Experts,
	allAccepted(fusion, switches("moe-grouped-gemm moe-permute-fusion moe-router-fusion use-grouped-gemm-for-shared-expert moe-use-grouped-tensor moe-single-grouped-weight moe-single-grouped-bias")),
	allAccepted("monotron itself decides the order of communication and computation",
		switches("overlap-moe-expert-parallel-comm overlap-dispatch-backward-with-experts-wgrad ep-overlap-early-attn-memory-release "+
			"high-priority-a2a-comm-stream")),
	allRefused(noDeepEP,
		switches("moe-enable-deepep moe-permute-fusion-into-hybridep moe-hybridep-pad-uneven-dispatch-inputs moe-ncclep-zero-copy"),
		ints("moe-flex-dispatcher-num-sms moe-deepep-num-sms moe-hybridep-num-sms moe-hybridep-num-blocks-permute "+
			"moe-hybridep-num-blocks-unpermute moe-hybridep-num-sms-preprocessing"),
		texts("moe-flex-dispatcher-backend")),
	allRefused(noGrouped, ints("moe-shared-expert-glu-interleave-size moe-mlp-glu-interleave-size")),
	allRefused("tokens are exchanged in the data type of the activations; leave the flag out", texts("moe-dispatch-fwd-dtype moe-combine-bwd-dtype")),
	allRefused(noFP8, switches("moe-router-padding-for-quantization moe-router-padding-for-fp8")),
	allRefused("use --moe-expert-capacity-factor", floats("moe-expert-rank-capacity-factor")),
	allRefused("routing decisions are not stored; leave the flag out", switches("moe-enable-routing-replay")),
	allRefused(noTrace,
		switches("moe-routing-trace-capture-logits moe-routing-trace-capture-hidden-states moe-routing-trace-dump-weights"),
		ints("moe-routing-trace-max-training-iters"),
		texts("moe-routing-trace-path")),
	allRefused("activations are not offloaded; use --recompute-granularity full to save memory",
		switches("moe-paged-stash"),
		ints("moe-paged-stash-page-size"),
		floats("moe-paged-stash-buffer-size-factor-cuda moe-paged-stash-buffer-size-factor-cpu")))
