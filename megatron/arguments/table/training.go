package table

const (
	GraphsOff   = "none"
	fullGraphs  = "a CUDA graph always contains the forward and backward pass of a complete micro-batch, or the update"
	noFP8       = "fp4 and this option of fp8 are not supported; see docs/fp8.md"
	collector   = "Python's garbage collector is not used"
	noInjection = "use --inject, as in kill:rank=3:step=7 (docs/failures.md)"
	noOffload   = "activations are not offloaded; use --recompute-granularity full to save memory"
)

// trainingFlags say how long and in what portions.
var trainingFlags = owned(Training,
	works("micro-batch-size", Int, "", "MicroBatchSize", "set the number of sequences per micro-batch and rank").from(1, sizes),
	works("global-batch-size", Int, "", "GlobalBatchSize", "set the number of sequences per step over all ranks (default: micro-batch-size * data-parallel size)").from(1, sizes),
	works("rampup-batch-size", Ints, "", "RampupBatchSize", "increase the global batch size in equal steps; the three values are the initial size, the size of a step, and the number of samples after which --global-batch-size is reached").from(0, samples).count(3),
	works("step-batch-size-schedule", String, "", "StepBatchSizeSchedule", "set the global batch size by the number of consumed tokens, as in \"0:768 250B:1536\""),
	works("decrease-batch-size-if-needed", Switch, "", "DecreaseBatchSizeIfNeeded", "round down a global batch size that is not a multiple of micro-batch size times data-parallel size"),
	works("train-iters", Int, "", "TrainIters", "train for this number of steps").from(0, sizes),
	works("train-samples", Int, "", "TrainSamples", "set the number of sequences to train on, instead of --train-iters").from(0, samples),
	works("seq-length", Int, "", "SeqLength", "set the number of tokens per sequence").from(2, sizes).alias("encoder-seq-length"),
	works("seed", Int, "1234", "Seed", "set the seed of weights, dropout and data order").from(0, 1<<32-1),
	works("calculate-per-token-loss", Switch, "", "CalculatePerTokenLoss", "average the loss over all tokens of the global batch instead of over micro-batches"),
	works("loss-mean-per-context-rank", Switch, "", "LossMeanPerContextRank", "average the loss of a micro-batch over each context-parallel rank's own tokens, as Megatron-LM does (default: over the tokens of all ranks that share the sequences)"),
	works("iterations-to-skip", Ints, "", "IterationsToSkip", "read the data of these steps, but do not train on it").from(1, sizes),
	works("exit-interval", Int, "", "ExitInterval", "exit after a step whose number is a multiple of N").from(0, sizes),
	works("exit-duration-in-mins", Int, "", "ExitDurationMins", "save and exit after N minutes").from(0, year),
	works("no-check-for-nan-in-loss-and-grad", Switch, "", "!CheckForNaN", "continue when a loss or gradient is not finite"),
	works("eval-iters", Int, "100", "EvalIters", "use N batches per evaluation").from(0, sizes),
	works("eval-interval", Int, "1000", "EvalInterval", "evaluate every N steps").from(1, sizes).differs("has no default and requires the flag"),
	works("eval-global-batch-size", Int, "", "EvalGlobalBatchSize", "set the global batch size of an evaluation (default: --global-batch-size)").from(1, sizes),
	works("eval-micro-batch-size", Int, "", "EvalMicroBatchSize", "set the micro-batch size of an evaluation (default: --micro-batch-size)").from(1, sizes),
	works("skip-train", Switch, "", "SkipTrain", "evaluate the model without training"),
	works("cuda-graph-impl", String, GraphsOff, "Raw.GraphImpl", "choose whether CUDA graphs are used: local runs each micro-batch and each update as one graph, and needs a run of one rank on a GPU").choices(GraphsOff, "local").
		same("transformer_engine", "local").same("full_iteration", "local"),
	works("enable-cuda-graph", Switch, "", "Raw.EnableGraph", "use CUDA graphs; the same as --cuda-graph-impl local").alias("external-cuda-graph"),
	works("full-validation", Switch, "", "FullValidation", "evaluate on the complete validation set"),
	accepted("rerun-mode", String, "validate_results", "a repeated step gives the same bits, so nothing has to be validated; `monotron replay` repeats a recorded step").choices("disabled", "validate_results", "report_stats"),
	accepted("no-manual-gc-eval", Switch, "", "Python's garbage collector is not used").alias("disable-manual-gc-eval"),
	accepted("empty-unused-memory-level", Int, "0", "memory comes from one arena without a cache"),
	accepted("exit-signal", String, "SIGTERM", "SIGTERM and SIGINT are handled").choices("SIGTERM", "SIGINT").same("15", "SIGTERM").same("2", "SIGINT").
		differs("accepts every signal; monotron accepts only SIGTERM and SIGINT"),
	accepted("train-sync-interval", Int, "", "the training loop waits for the device only to read results"),
	accepted("check-weight-hash-across-dp-replicas-interval", Int, "", "replicas stay equal bit for bit; `monotron inspect checkpoint --verify` prints the hash"),
	refused("start-eval-at-iter", Int, "evaluations run every --eval-interval steps from the start; leave the flag out"),
	refused("phase-transition-iterations", String, "use --step-batch-size-schedule"),
	refused("batch-size", Int, "use --micro-batch-size").instead("micro-batch-size"),
	refused("decoder-seq-length", Int, oneStack).instead("seq-length"),
)

// precisionFlags choose number formats.
var precisionFlags = owned(Precision,
	works("bf16", Switch, "", "Raw.BF16", "use bf16 parameters and activations, and f32 for everything else"),
	works("fp16", Switch, "", "Raw.FP16", "use fp16 parameters and activations with a loss scale"),
	works("loss-scale", Float, "", "Optimizer.LossScale", "set the constant loss scale (default: dynamic)").from(0, 1<<48),
	works("initial-loss-scale", Float, "4294967296", "Optimizer.InitialLossScale", "set the initial dynamic loss scale").above(0, 1<<48),
	works("min-loss-scale", Float, "1", "Optimizer.MinLossScale", "set the minimum dynamic loss scale").above(0, 1<<48),
	works("loss-scale-window", Float, "1000", "Raw.LossScaleWindow", "double the loss scale after this number of successive steps without overflow").from(1, sizes),
	works("hysteresis", Int, "2", "Optimizer.LossHysteresis", "set the number of overflows after which the loss scale is halved").from(1, sizes),
)

// recomputeFlags trade time for memory.
var recomputeFlags = owned(Recompute,
	works("recompute-activations", Switch, "", "Raw.RecomputeActivations", "recompute selected modules; the same as --recompute-granularity selective"),
	works("recompute-granularity", String, "", "Recompute.Granularity", "choose what is recomputed: complete layers (full) or some modules (selective) (default: nothing)").choices("full", "selective"),
	works("recompute-method", String, "", "Recompute.Method", "with --recompute-granularity full, recompute all layers in groups of N layers (uniform), or only the first N layers of each model chunk (block), where N is --recompute-num-layers").choices("uniform", "block"),
	works("recompute-num-layers", Int, "", "Recompute.NumLayers", "set N, the number of layers that --recompute-method refers to").from(1, lists).alias("activations-checkpoint-num-layers", "checkpoint-num-layers"),
	works("recompute-modules", Strings, "core_attn", "Recompute.Modules", "choose the modules to recompute with --recompute-granularity selective").
		choices("core_attn", "mlp", "moe", "shared_experts", "layernorm", "moe_act").
		differs("accepts any text; the parser has no default, and core_attn is set later").but("products of multi-latent attention are kept; leave this value out", "mla_up_proj"),
	works("distribute-saved-activations", Switch, "", "Layout.DistributeSavedActivation", "shard the saved inputs of recomputed layers over tensor-parallel ranks").
		alias("distribute-checkpointed-activations", "partition-activations"),
	works("checkpoint-activations", Switch, "", "Raw.CheckpointActivations", "recompute all layers; this is an older spelling of --recompute-granularity full --recompute-method uniform"),
	works("activations-checkpoint-method", String, "", "Raw.CheckpointMethod", "choose how layers are recomputed; this is an older spelling of --recompute-granularity full --recompute-method").choices("uniform", "block"),
)

// otherTrainingFlags steer what needs no steering here, or are not trained with.
var otherTrainingFlags = families(Training,
	allAccepted(fullGraphs,
		switches("optimizer-cuda-graph"),
		ints("cuda-graph-warmup-steps"),
		several("cuda-graph-scope cuda-graph-modules")),
	allAccepted(collector,
		switches("manual-gc"),
		ints("manual-gc-interval")),
	allAccepted("SIGTERM and SIGINT always save and exit",
		switches("exit-signal-handler exit-signal-handler-for-training exit-signal-handler-for-dataloader")),
	allAccepted("a repeated step gives the same bits, so nothing has to be validated; `monotron replay` repeats a recorded step", texts("result-rejected-tracker-filename")),
	allAccepted("`monotron doctor` and the checks before step 1 test the machine",
		switches("run-workload-inspector-server test-mode"),
		ints("gpu-sniff-test-interval")),
	allRefused("gradients that are not finite end the run; use --log-jsonl for the norm of each step", switches("check-for-large-grads")),
	allRefused(noInjection,
		ints("error-injection-rate fault-injector-num-ranks fault-injector-delay-start-iteration fault-injector-seed"),
		floats("fault-injector-fault-delay fault-injector-mtti-seconds fault-injector-offset-seconds"),
		texts("error-injection-type fault-injector-ranks fault-injector-fault-types fault-injector-fault-probabilities")),
	allRefused("distillation is not supported; use `monotron logits` to write the logits of a prompt",
		switches("logits-load-ignore-errors"),
		ints("logits-save-top-k logits-save-top-p-min-k logits-load-decode-threads logits-load-prefetch-factor "+
			"logits-load-msc-prefetch-depth"),
		floats("logits-save-top-p logits-load-kd-loss-alpha"),
		texts("logits-save-dir logits-save-dtype logits-load-dir")),
	allRefused("gradients and activations are not stored; use --save-interval for parameters, and `monotron replay` to repeat a recorded step",
		ints("save-params-interval save-activations-interval save-tokens-per-expert-interval save-wgrads-interval save-dgrads-interval"),
		texts("dump-param-to-param-group-map")))

// fp8Flags are of products whose operands are rounded to 8 bits.
var fp8Flags = owned(Precision,
	works("fp8-format", String, "", "FP8.Format", "round the operands of linear layers to 8 bits: e4m3 rounds all of them to E4M3; hybrid rounds gradients to E5M2 instead (docs/fp8.md)").choices("e4m3", "hybrid"),
	works("fp8-recipe", String, "delayed", "FP8.Recipe", "choose which values share a scale with --fp8-format: those of a complete tensor, with a scale from its largest magnitudes in earlier steps (delayed) or in this step (tensorwise); those of a block of 1x128 values, or 128x128 for weights (blockwise); or those of a block of 1x32 (mxfp8)").
		choices("delayed", "tensorwise", "blockwise", "mxfp8").but("use delayed, tensorwise, blockwise or mxfp8", "custom"),
	works("fp8-amax-history-len", Int, "1", "FP8.Delayed.Length", "with --fp8-recipe delayed, keep the largest magnitude of each tensor for this many steps").from(1, 1<<20),
	works("fp8-amax-compute-algo", String, "most_recent", "FP8.Delayed.Algo", "choose the magnitude from which --fp8-recipe delayed computes a scale: the latest one (most_recent), or the largest one that is kept (max)").choices("most_recent", "max"),
	works("fp8-margin", Int, "0", "FP8.Delayed.Margin", "with --fp8-recipe delayed, divide the scales by 2^N").from(0, 64),
	works("no-fp8-wgrad", Switch, "", "FP8.Delayed.NoWGrad", "with --fp8-recipe delayed, do not round the operands of the products that compute gradients of weights").alias("disable-fp8-wgrad"),
	accepted("fp8-interval", Int, "1", "scales change after every step, as in Megatron-LM, which ignores the flag"),
	accepted("fp8-param-gather", Switch, "", "weights keep the precision of the run and are rounded to 8 bits when they are used, while Megatron-LM keeps them in 8 bits"),
	works("first-last-layers-bf16", Switch, "", "FP8.FirstLastBF16", "do not round the operands of the first and last layers to 8 bits"),
	works("num-layers-at-start-in-bf16", Int, "1", "FP8.AtStart", "set the number of first layers that --first-last-layers-bf16 does not round").from(0, sizes),
	works("num-layers-at-end-in-bf16", Int, "1", "FP8.AtEnd", "set the number of last layers that --first-last-layers-bf16 does not round").from(0, sizes),
)

// noFP8Flags choose number formats that are not computed with.
var noFP8Flags = families(Precision,
	allRefused(noFP8,
		switches("fp8-output-proj fp4-param-gather "+
			"keep-fp8-transpose-cache reuse-grad-buf-for-mxfp8-param-ag use-kitchen-attention"),
		texts("fp8-quantizer-factory fp4-format fp4-recipe fp4-quantizer-factory "+
			"te-precision-config-file kitchen-attention-backend")))

// offloadFlags move activations to the host.
var offloadFlags = allNotYet(families(Recompute,
	allRefused(noOffload,
		switches("cpu-offloading-retain-pinned-cpu-buffers fine-grained-activation-offloading delay-offload-until-cuda-graph"),
		ints("cpu-offloading-num-layers min-offloaded-tensor-size delta-offload-bytes-across-pp-ranks "+
			"fine-grained-offloading-max-inflight-offloads"),
		floats("activation-offload-fraction"),
		several("offload-modules")))...)
