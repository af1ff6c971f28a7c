package table

const (
	GraphsOff   = "none"
	wholeGraphs = "a graph holds a whole micro-batch, forward and backward, or the update"
	noFP8       = "there is no fp8 or fp4 arithmetic here; use --bf16"
	collector   = "it concerns Python's collector"
	noInjection = "use --inject, as in kill:rank=3:step=7 (docs/failures.md)"
	noOffload   = "activations stay on their device; use --recompute-granularity full"
)

// trainingFlags say how long and in what portions.
var trainingFlags = owned(Training,
	works("micro-batch-size", Int, "", "MicroBatchSize", "sequences a rank takes at a time").from(1, sizes),
	works("global-batch-size", Int, "", "GlobalBatchSize", "sequences a step (micro-batch-size * data-parallel size)").from(1, sizes),
	works("rampup-batch-size", Ints, "", "RampupBatchSize", "START INCREMENT SAMPLES: grow from START to --global-batch-size over SAMPLES").from(0, samples).count(3),
	works("step-batch-size-schedule", String, "", "StepBatchSizeSchedule", `batch sizes by consumed tokens, as in "0:768 250B:1536"`),
	works("decrease-batch-size-if-needed", Switch, "", "DecreaseBatchSizeIfNeeded", "round a batch that does not divide down"),
	works("train-iters", Int, "", "TrainIters", "steps in all").from(0, sizes),
	works("train-samples", Int, "", "TrainSamples", "sequences in all, instead of --train-iters").from(0, samples),
	works("seq-length", Int, "", "SeqLength", "tokens of a sequence").from(2, sizes).alias("encoder-seq-length"),
	works("seed", Int, "1234", "Seed", "of weights, dropout and data order").from(0, 1<<32-1),
	works("calculate-per-token-loss", Switch, "", "CalculatePerTokenLoss", "weight gradients by tokens instead of by micro-batches"),
	works("iterations-to-skip", Ints, "", "IterationsToSkip", "steps whose data is read but not learned from").from(1, sizes),
	works("exit-interval", Int, "", "ExitInterval", "leave after a step that this divides").from(0, sizes),
	works("exit-duration-in-mins", Int, "", "ExitDurationMins", "save and leave after so many minutes").from(0, year),
	works("no-check-for-nan-in-loss-and-grad", Switch, "", "!CheckForNaN", "go on when a loss or gradient is not finite"),
	works("eval-iters", Int, "100", "EvalIters", "batches of an evaluation").from(0, sizes),
	works("eval-interval", Int, "1000", "EvalInterval", "steps between evaluations").from(1, sizes).differs("no default there, where a run without it ends in an error"),
	works("eval-global-batch-size", Int, "", "EvalGlobalBatchSize", "batch of an evaluation (--global-batch-size)").from(1, sizes),
	works("eval-micro-batch-size", Int, "", "EvalMicroBatchSize", "micro-batch of an evaluation (--micro-batch-size)").from(1, sizes),
	works("skip-train", Switch, "", "SkipTrain", "evaluate only"),
	works("cuda-graph-impl", String, GraphsOff, "Raw.GraphImpl", "local: one rank on a GPU enqueues a micro-batch, and the update, as one call each").choices(GraphsOff, "local").
		same("transformer_engine", "local").same("full_iteration", "local"),
	works("enable-cuda-graph", Switch, "", "Raw.EnableGraph", "--cuda-graph-impl local").alias("external-cuda-graph"),
	works("full-validation", Switch, "", "FullValidation", "evaluate on the whole validation set"),
	accepted("rerun-mode", String, "validate_results", "steps repeat bit for bit; `replay` runs one again").choices("disabled", "validate_results", "report_stats"),
	accepted("no-manual-gc-eval", Switch, "", "it concerns Python's collector").alias("disable-manual-gc-eval"),
	accepted("empty-unused-memory-level", Int, "0", "memory comes from one arena, nothing is cached"),
	accepted("exit-signal", String, "SIGTERM", "SIGTERM and SIGINT are handled").choices("SIGTERM", "SIGINT").same("15", "SIGTERM").same("2", "SIGINT").
		differs("every signal there; here SIGTERM and SIGINT make a run save and leave"),
	accepted("train-sync-interval", Int, "", "the loop waits for the device only to read numbers"),
	accepted("check-weight-hash-across-dp-replicas-interval", Int, "", "replicas stay equal bit for bit; `monotron inspect checkpoint --verify` prints the hash"),
	refused("start-eval-at-iter", Int, "evaluations come every --eval-interval steps from the first on"),
	refused("phase-transition-iterations", String, "use --step-batch-size-schedule"),
	refused("batch-size", Int, "use --micro-batch-size").instead("micro-batch-size"),
	refused("decoder-seq-length", Int, oneStack).instead("seq-length"),
)

// precisionFlags choose number formats.
var precisionFlags = owned(Precision,
	works("bf16", Switch, "", "Raw.BF16", "bf16 parameters and activations, f32 everywhere else"),
	works("fp16", Switch, "", "Raw.FP16", "fp16 parameters and activations with a loss scale"),
	works("loss-scale", Float, "", "Optimizer.LossScale", "constant loss scale; without it dynamic").from(0, 1<<48),
	works("initial-loss-scale", Float, "4294967296", "Optimizer.InitialLossScale", "where the dynamic scale starts").above(0, 1<<48),
	works("min-loss-scale", Float, "1", "Optimizer.MinLossScale", "where it stops shrinking").above(0, 1<<48),
	works("loss-scale-window", Float, "1000", "Raw.LossScaleWindow", "clean steps until it doubles").from(1, sizes),
	works("hysteresis", Int, "2", "Optimizer.LossHysteresis", "overflows until it shrinks").from(1, sizes),
)

// recomputeFlags trade time for memory.
var recomputeFlags = owned(Recompute,
	works("recompute-activations", Switch, "", "Raw.RecomputeActivations", "short for --recompute-granularity selective"),
	works("recompute-granularity", String, "", "Recompute.Granularity", "whole layers, or the costly parts").choices("full", "selective"),
	works("recompute-method", String, "", "Recompute.Method", "full: chunks of N layers, or the first N").choices("uniform", "block"),
	works("recompute-num-layers", Int, "", "Recompute.NumLayers", "that N").from(1, lists).alias("activations-checkpoint-num-layers", "checkpoint-num-layers"),
	works("recompute-modules", Strings, "core_attn", "Recompute.Modules", "selective: what is made again").
		choices("core_attn", "mlp", "moe", "shared_experts", "layernorm", "moe_act").
		differs("any text there, and core_attn is filled in later").but("there is no latent attention here", "mla_up_proj"),
	works("distribute-saved-activations", Switch, "", "Layout.DistributeSavedActivation", "saved inputs of recomputed layers are cut over tensor-parallel ranks").
		alias("distribute-checkpointed-activations", "partition-activations"),
	works("checkpoint-activations", Switch, "", "Raw.CheckpointActivations", "older spelling of --recompute-granularity full --recompute-method uniform"),
	works("activations-checkpoint-method", String, "", "Raw.CheckpointMethod", "older spelling of --recompute-granularity full --recompute-method").choices("uniform", "block"),
)

// otherTrainingFlags steer what needs no steering here, or are not trained with.
var otherTrainingFlags = families(Training,
	allAccepted(wholeGraphs,
		switches("optimizer-cuda-graph"),
		ints("cuda-graph-warmup-steps"),
		several("cuda-graph-scope cuda-graph-modules")),
	allAccepted(collector,
		switches("manual-gc"),
		ints("manual-gc-interval")),
	allAccepted("SIGTERM and SIGINT always save and leave",
		switches("exit-signal-handler exit-signal-handler-for-training exit-signal-handler-for-dataloader")),
	allAccepted("steps repeat bit for bit; `monotron replay` runs one again", texts("result-rejected-tracker-filename")),
	allAccepted("`monotron doctor` and the checks before step 1 look at the machine",
		switches("run-workload-inspector-server test-mode"),
		ints("gpu-sniff-test-interval")),
	allRefused("gradients that are not finite end the run; --log-jsonl shows the norm of each step", switches("check-for-large-grads")),
	allRefused(noInjection,
		ints("error-injection-rate fault-injector-num-ranks fault-injector-delay-start-iteration fault-injector-seed"),
		floats("fault-injector-fault-delay fault-injector-mtti-seconds fault-injector-offset-seconds"),
		texts("error-injection-type fault-injector-ranks fault-injector-fault-types fault-injector-fault-probabilities")),
	allRefused("distillation is not built in; `monotron logits` writes the numbers for a prompt",
		switches("logits-load-ignore-errors"),
		ints("logits-save-top-k logits-save-top-p-min-k logits-load-decode-threads logits-load-prefetch-factor "+
			"logits-load-msc-prefetch-depth"),
		floats("logits-save-top-p logits-load-kd-loss-alpha"),
		texts("logits-save-dir logits-save-dtype logits-load-dir")),
	allRefused("gradients and activations of a step are not kept; --save-interval keeps parameters, `monotron replay` runs a recorded step again",
		ints("save-params-interval save-activations-interval save-tokens-per-expert-interval save-wgrads-interval save-dgrads-interval"),
		texts("dump-param-to-param-group-map")))

// noFP8Flags choose number formats that are not computed with.
var noFP8Flags = families(Precision,
	allRefused(noFP8,
		switches("no-fp8-wgrad/disable-fp8-wgrad fp8-output-proj fp4-param-gather fp8-param-gather first-last-layers-bf16 "+
			"keep-fp8-transpose-cache reuse-grad-buf-for-mxfp8-param-ag use-kitchen-attention"),
		ints("fp8-margin fp8-interval fp8-amax-history-len num-layers-at-start-in-bf16 num-layers-at-end-in-bf16"),
		texts("fp8-format fp8-recipe fp8-quantizer-factory fp8-amax-compute-algo fp4-format fp4-recipe fp4-quantizer-factory "+
			"te-precision-config-file kitchen-attention-backend")))

// offloadFlags move activations to the host.
var offloadFlags = allNotYet(families(Recompute,
	allRefused(noOffload,
		switches("cpu-offloading-retain-pinned-cpu-buffers fine-grained-activation-offloading delay-offload-until-cuda-graph"),
		ints("cpu-offloading-num-layers min-offloaded-tensor-size delta-offload-bytes-across-pp-ranks "+
			"fine-grained-offloading-max-inflight-offloads"),
		floats("activation-offload-fraction"),
		several("offload-modules")))...)
