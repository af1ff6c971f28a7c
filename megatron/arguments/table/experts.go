package table

const (
	noDeepEP  = "it needs NVIDIA's DeepEP or HybridEP; use --moe-token-dispatcher-type alltoall"
	noGrouped = "weights of experts have one layout here; leave it out"
	noTrace   = "which expert takes which token is not recorded; --moe-per-layer-logging shows the balance"
)

// expertFlags describe mixtures of experts.
var expertFlags = owned(Experts,
	works("num-experts", Int, "", "Raw.Experts.Num", "experts of a mixture layer").from(1, lists),
	works("moe-layer-freq", String, "1", "Raw.LayerFreq", "N: layers 0, N, 2N, .. are mixtures; or a list such as ([0]*1+[1]*3)"),
	works("moe-ffn-hidden-size", Int, "", "Raw.Experts.FFNHiddenSize", "intermediate width of an expert (--ffn-hidden-size)").from(1, sizes),
	works("moe-router-topk", Int, "2", "Raw.Experts.TopK", "experts a token goes to").from(1, lists),
	works("moe-router-pre-softmax", Switch, "", "Raw.Experts.PreSoftmax", "softmax over all experts before the choice"),
	works("moe-router-score-function", String, "softmax", "Raw.Experts.ScoreFunction", "scores from logits").choices("softmax", "sigmoid", "sqrtsoftplus"),
	works("moe-router-topk-scaling-factor", Float, "", "Raw.Experts.ScalingFactor", "weights are multiplied by it").above(0, 1e6),
	works("moe-router-num-groups", Int, "", "Raw.Experts.NumGroups", "experts are chosen by group first").from(1, lists),
	works("moe-router-group-topk", Int, "", "Raw.Experts.GroupTopK", "groups a token may use").from(1, lists),
	works("moe-router-dtype", String, "", "Raw.Experts.RouterDtype", "type of the router's logits").choices("fp32", "fp64"),
	works("moe-router-enable-expert-bias", Switch, "", "Raw.Experts.ExpertBias", "balance by a bias per expert instead of a loss"),
	works("moe-router-bias-update-rate", Float, "1e-3", "Raw.Experts.BiasUpdateRate", "step of that bias").from(0, 1),
	works("moe-router-load-balancing-type", Strings, "aux_loss", "Raw.Experts.Balancing", "how load is balanced").
		choices("aux_loss", "seq_aux_loss", "global_aux_loss", "sinkhorn", "quantile_balancing", "none"),
	works("moe-aux-loss-coeff", Floats, "0", "Raw.Experts.AuxLossCoeff", "weight of the balancing loss, one per type").from(0, 1000),
	works("moe-global-aux-exact", Switch, "", "Raw.Experts.GlobalExact", "the gradient of global_aux_loss is as strong as on one rank; Megatron's is 1/dp of it"),
	works("moe-router-quantile-balancing-ema", Float, "0", "Raw.Experts.QuantileEMA", "with quantile_balancing: share of the quantiles so far in the next ones").from(0, 1),
	works("moe-z-loss-coeff", Float, "", "Raw.Experts.ZLossCoeff", "weight of the router's z-loss").from(0, 1000),
	works("moe-input-jitter-eps", Float, "", "Raw.Experts.JitterEps", "in training the router's input is multiplied by 1 ± so much").from(0, 1),
	works("moe-token-dispatcher-type", String, "allgather", "Raw.Experts.Dispatcher", "how tokens reach experts on other ranks").
		choices("allgather", "alltoall").but("it needs NVIDIA's DeepEP; use alltoall", "flex"),
	works("moe-expert-capacity-factor", Float, "", "Raw.Experts.CapacityFactor", "of those a rank routes, tokens an expert takes at most, times the mean; none: all").above(0, 1e6),
	works("moe-pad-expert-input-to-capacity", Switch, "", "Raw.Experts.PadToCapacity", "pad each expert's input to its capacity"),
	works("moe-token-drop-policy", String, "probs", "Raw.Experts.DropPolicy", "which tokens go when an expert is full").choices("probs", "position"),
	works("moe-shared-expert-intermediate-size", Int, "", "Raw.Experts.SharedFFN", "width of an expert that sees every token").from(1, sizes),
	works("moe-shared-expert-gate", Switch, "", "Raw.Experts.SharedGate", "gate on the shared expert"),
	works("moe-shared-expert-overlap", Switch, "", "Raw.Experts.SharedOverlap", "the shared expert computes while tokens travel; needs --moe-token-dispatcher-type alltoall"),
	works("moe-per-layer-logging", Switch, "", "Log.MoEPerLayer", "balancing losses layer by layer"),
	works("moe-imbalance-limit", Float, "4", "Log.ImbalanceLimit", "an expert that gets more than so many times an even part is told of, once; 0: not").from(0, 1e6),
	works("log-moe-exchanges", Switch, "", "Log.Exchanges", "tell how many tokens each rank sends to the experts of others, and gets, in every micro-batch and layer"),
	works("moe-apply-probs-on-input", Switch, "", "Raw.Experts.ProbsOnInput", "a token's weight multiplies what goes into an expert; needs --moe-router-topk 1"),
	refused("moe-layer-recompute", Switch, "use --recompute-granularity selective --recompute-modules moe"),
	works("moe-router-force-load-balancing", Switch, "", "Raw.Experts.ForceBalance", "random choices: for benchmarks alone"),
	refused("moe-router-force-biased", Float, notBuilt),
)

// otherExpertFlags are ways to train mixtures of experts that are not here.
var otherExpertFlags = families(Experts,
	allAccepted(fusion, switches("moe-grouped-gemm moe-permute-fusion moe-router-fusion use-grouped-gemm-for-shared-expert moe-use-grouped-tensor moe-single-grouped-weight moe-single-grouped-bias")),
	allAccepted("the order of communication and compute is the executor's choice",
		switches("overlap-moe-expert-parallel-comm overlap-dispatch-backward-with-experts-wgrad ep-overlap-early-attn-memory-release "+
			"high-priority-a2a-comm-stream")),
	allRefused(noDeepEP,
		switches("moe-enable-deepep moe-permute-fusion-into-hybridep moe-hybridep-pad-uneven-dispatch-inputs moe-ncclep-zero-copy"),
		ints("moe-flex-dispatcher-num-sms moe-deepep-num-sms moe-hybridep-num-sms moe-hybridep-num-blocks-permute "+
			"moe-hybridep-num-blocks-unpermute moe-hybridep-num-sms-preprocessing"),
		texts("moe-flex-dispatcher-backend")),
	allRefused(noGrouped, ints("moe-shared-expert-glu-interleave-size moe-mlp-glu-interleave-size")),
	allRefused("tokens travel in the type of the activations", texts("moe-dispatch-fwd-dtype moe-combine-bwd-dtype")),
	allRefused(noFP8, switches("moe-router-padding-for-quantization moe-router-padding-for-fp8")),
	allRefused("experts work on the whole width; use --moe-ffn-hidden-size for smaller ones", ints("moe-latent-size")),
	allRefused("use --moe-expert-capacity-factor", floats("moe-expert-rank-capacity-factor")),
	allRefused("the choice of a step is not kept for another program", switches("moe-enable-routing-replay")),
	allRefused(noTrace,
		switches("moe-routing-trace-capture-logits moe-routing-trace-capture-hidden-states moe-routing-trace-dump-weights"),
		ints("moe-routing-trace-max-training-iters"),
		texts("moe-routing-trace-path")),
	allRefused("activations stay on their device; use --recompute-granularity full",
		switches("moe-paged-stash"),
		ints("moe-paged-stash-page-size"),
		floats("moe-paged-stash-buffer-size-factor-cuda moe-paged-stash-buffer-size-factor-cpu")))
