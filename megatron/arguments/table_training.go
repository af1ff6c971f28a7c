package arguments

const (
	ownTraining   = "training"
	ownOptimizer  = "optimizer and schedule"
	ownPrecision  = "precision"
	ownRecompute  = "recomputation"
	ownCheckpoint = "checkpoint"
)

const (
	graphsOff   = "none"
	wholeGraphs = "a graph holds a whole micro-batch, forward and backward"
)

const noFP8 = "there is no fp8 arithmetic here; use --bf16"

// trainingFlags say how long and in what portions.
var trainingFlags = owned(ownTraining,
	works("micro-batch-size", Int, "", "MicroBatchSize", "sequences a rank takes at a time"),
	works("global-batch-size", Int, "", "GlobalBatchSize", "sequences a step (micro-batch-size * data-parallel size)"),
	works("rampup-batch-size", Ints, "", "RampupBatchSize", "START INCREMENT SAMPLES: grow from START to --global-batch-size over SAMPLES").count(3),
	works("step-batch-size-schedule", String, "", "StepBatchSizeSchedule", `batch sizes by consumed tokens, as in "0:768 250B:1536"`),
	works("decrease-batch-size-if-needed", Switch, "", "DecreaseBatchSizeIfNeeded", "round a batch that does not divide down"),
	works("train-iters", Int, "", "TrainIters", "steps in all"),
	works("train-samples", Int, "", "TrainSamples", "sequences in all, instead of --train-iters"),
	works("seq-length", Int, "", "SeqLength", "tokens of a sequence").alias("encoder-seq-length"),
	works("seed", Int, "1234", "Seed", "of weights, dropout and data order"),
	works("calculate-per-token-loss", Switch, "", "CalculatePerTokenLoss", "weight gradients by tokens instead of by micro-batches"),
	works("iterations-to-skip", Ints, "", "IterationsToSkip", "steps whose data is read but not learned from"),
	works("exit-interval", Int, "", "ExitInterval", "leave after a step that this divides"),
	works("exit-duration-in-mins", Int, "", "ExitDurationMins", "save and leave after so many minutes"),
	accepted("exit-signal-handler", Switch, "", "SIGTERM and SIGINT always save and leave"),
	works("no-check-for-nan-in-loss-and-grad", Switch, "", "!CheckForNaN", "go on when a loss or gradient is not finite"),
	works("eval-iters", Int, "100", "EvalIters", "batches of an evaluation"),
	works("eval-interval", Int, "1000", "EvalInterval", "steps between evaluations"),
	works("eval-global-batch-size", Int, "", "EvalGlobalBatchSize", "batch of an evaluation (--global-batch-size)"),
	works("eval-micro-batch-size", Int, "", "EvalMicroBatchSize", "micro-batch of an evaluation (--micro-batch-size)"),
	works("skip-train", Switch, "", "SkipTrain", "evaluate only"),
	works("cuda-graph-impl", String, graphsOff, "Raw.GraphImpl", "local: one rank on a GPU enqueues a micro-batch, and the update, as one call each").choices(graphsOff, "local").
		same("transformer_engine", "local").same("full_iteration", "local"),
	works("enable-cuda-graph", Switch, "", "Raw.EnableGraph", "--cuda-graph-impl local").alias("external-cuda-graph"),
	accepted("cuda-graph-scope", Strings, "", wholeGraphs),
	accepted("cuda-graph-modules", Strings, "", wholeGraphs),
	works("full-validation", Switch, "", "FullValidation", "evaluate on the whole validation set"),
	accepted("rerun-mode", String, "validate_results", "steps repeat bit for bit; `replay` runs one again").choices("disabled", "validate_results", "report_stats"),
	accepted("manual-gc", Switch, "", "it concerns Python's collector"),
	accepted("manual-gc-interval", Int, "0", "it concerns Python's collector"),
	accepted("no-manual-gc-eval", Switch, "", "it concerns Python's collector").alias("disable-manual-gc-eval"),
	accepted("empty-unused-memory-level", Int, "0", "memory comes from one arena, nothing is cached"),
	accepted("exit-signal", String, "SIGTERM", "SIGTERM and SIGINT are handled"),
	accepted("train-sync-interval", Int, "", "the loop waits for the device only to read numbers"),
	accepted("exit-signal-handler-for-dataloader", Switch, "", "data is read by goroutines of the run, which get no signals"),
	accepted("check-weight-hash-across-dp-replicas-interval", Int, "", "replicas stay equal bit for bit; `monotron inspect checkpoint --verify` prints the hash"),
	refused("check-for-large-grads", Switch, "gradients that are not finite end the run; --log-jsonl shows the norm of each step"),
	refused("start-eval-at-iter", Int, "evaluations come every --eval-interval steps from the first on"),
	refused("phase-transition-iterations", String, "use --step-batch-size-schedule"),
	refused("batch-size", Int, "use --micro-batch-size"),
	refused("decoder-seq-length", Int, "GPT has one stack; use --seq-length"),
)

// optimizerFlags say how parameters move.
var optimizerFlags = owned(ownOptimizer,
	works("optimizer", String, "adam", "Optimizer.Kind", "update rule").choices("adam", "sgd").
		but("not built in; use adam", "muon", "dist_muon", "lion", "soap", "adaptive_muon"),
	works("lr", Float, "", "Optimizer.LR", "peak learning rate"),
	works("min-lr", Float, "0", "Optimizer.MinLR", "learning rate at the end of the decay"),
	works("lr-decay-style", String, "linear", "Optimizer.DecayStyle", "curve from peak to minimum").
		choices("constant", "linear", "cosine", "inverse-square-root", "WSD"),
	works("lr-decay-iters", Int, "", "Optimizer.DecayIters", "steps until the minimum (--train-iters)"),
	works("lr-decay-samples", Int, "", "Optimizer.DecaySamples", "the same in samples (--train-samples)"),
	works("lr-warmup-iters", Int, "0", "Optimizer.WarmupIters", "steps of linear warm-up"),
	works("lr-warmup-samples", Int, "0", "Optimizer.WarmupSamples", "the same in samples"),
	works("lr-warmup-fraction", Float, "", "Optimizer.WarmupFraction", "the same as a share of the decay"),
	works("lr-warmup-init", Float, "0", "Optimizer.WarmupInit", "learning rate of the first step of a warm-up"),
	works("lr-wsd-decay-style", String, "exponential", "Optimizer.WSDDecayStyle", "final descent of WSD").
		choices("exponential", "linear", "cosine", "minus_sqrt"),
	works("lr-wsd-decay-iters", Int, "", "Optimizer.WSDDecayIters", "its length in steps"),
	works("lr-wsd-decay-samples", Int, "", "Optimizer.WSDDecaySamples", "its length in samples"),
	works("decoupled-lr", Float, "", "Optimizer.DecoupledLR", "peak learning rate of embedding and output layer"),
	works("decoupled-min-lr", Float, "", "Optimizer.DecoupledMinLR", "their minimum"),
	works("override-opt-param-scheduler", Switch, "", "Optimizer.OverrideScheduler", "resume with this schedule, not the checkpoint's").alias("override-lr-scheduler"),
	works("use-checkpoint-opt-param-scheduler", Switch, "", "Optimizer.UseCheckpointScheduler", "resume with the checkpoint's schedule").alias("use-checkpoint-lr-scheduler"),
	works("adam-beta1", Float, "0.9", "Optimizer.AdamBeta1", "decay of the first moment"),
	works("adam-beta2", Float, "0.999", "Optimizer.AdamBeta2", "decay of the second moment"),
	works("adam-eps", Float, "1e-8", "Optimizer.AdamEps", "added to the root of the second moment"),
	works("sgd-momentum", Float, "0.9", "Optimizer.SGDMomentum", "momentum of SGD"),
	works("weight-decay", Float, "0.01", "Optimizer.WeightDecay", "of all parameters but norms and biases"),
	works("start-weight-decay", Float, "", "Optimizer.StartWeightDecay", "at the beginning, with an increasing style"),
	works("end-weight-decay", Float, "", "Optimizer.EndWeightDecay", "at the end"),
	works("weight-decay-incr-style", String, "constant", "Optimizer.WeightDecayIncrStyle", "how it grows between the two").choices("constant", "linear", "cosine"),
	works("apply-wd-to-qk-layernorm", Switch, "", "Optimizer.DecayQKNorm", "weight decay on query and key norms too"),
	works("clip-grad", Float, "1.0", "Optimizer.ClipGrad", "largest global gradient norm; 0: no clipping"),
	refused("use-precision-aware-optimizer", Switch, "main gradients, main parameters and moments are f32 here; leave it out"),
	accepted("main-grads-dtype", String, "fp32", "main gradients are f32").choices("fp32").but("main gradients are f32 here", "bf16"),
	accepted("main-params-dtype", String, "fp32", "main parameters are f32").choices("fp32").but("main parameters are f32 here", "fp16"),
	accepted("exp-avg-dtype", String, "fp32", "moments are f32").choices("fp32").but("moments are f32 here", "fp16", "bf16", "fp8"),
	accepted("exp-avg-sq-dtype", String, "fp32", "moments are f32").choices("fp32").but("moments are f32 here", "fp16", "bf16", "fp8"),
	refused("optimizer-cpu-offload", Switch, "the optimizer's state stays on its device; use --use-distributed-optimizer to spread it"),
	refused("no-weight-decay-cond-type", String, "norms and biases never decay; --apply-wd-to-qk-layernorm adds those of queries and keys"),
	refused("warmup", Int, "use --lr-warmup-fraction or --lr-warmup-iters"),
)

// precisionFlags choose number formats.
var precisionFlags = owned(ownPrecision,
	works("bf16", Switch, "", "Raw.BF16", "bf16 parameters and activations, f32 everywhere else"),
	works("fp16", Switch, "", "Raw.FP16", "fp16 parameters and activations with a loss scale"),
	works("loss-scale", Float, "", "Optimizer.LossScale", "constant loss scale; without it dynamic"),
	works("initial-loss-scale", Float, "4294967296", "Optimizer.InitialLossScale", "where the dynamic scale starts"),
	works("min-loss-scale", Float, "1", "Optimizer.MinLossScale", "where it stops shrinking"),
	works("loss-scale-window", Float, "1000", "Raw.LossScaleWindow", "clean steps until it doubles"),
	works("hysteresis", Int, "2", "Optimizer.LossHysteresis", "overflows until it shrinks"),
	refused("fp8-format", String, noFP8),
	refused("fp8-recipe", String, noFP8),
	refused("fp8-margin", Int, noFP8),
	refused("fp8-interval", Int, noFP8),
	refused("fp8-amax-history-len", Int, noFP8),
	refused("fp8-amax-compute-algo", String, noFP8),
	refused("fp8-param-gather", Switch, noFP8),
	refused("fp4-format", String, "there is no fp4 arithmetic here; use --bf16"),
)

// recomputeFlags trade time for memory.
var recomputeFlags = owned(ownRecompute,
	works("recompute-activations", Switch, "", "Raw.RecomputeActivations", "short for --recompute-granularity selective"),
	works("recompute-granularity", String, "", "Recompute.Granularity", "whole layers, or the costly parts").choices("full", "selective"),
	works("recompute-method", String, "", "Recompute.Method", "full: chunks of N layers, or the first N").choices("uniform", "block"),
	works("recompute-num-layers", Int, "", "Recompute.NumLayers", "that N").alias("activations-checkpoint-num-layers", "checkpoint-num-layers"),
	works("recompute-modules", Strings, "core_attn", "Recompute.Modules", "selective: what is made again").
		choices("core_attn", "mlp", "moe", "shared_experts", "layernorm", "moe_act").but("there is no latent attention here", "mla_up_proj"),
	works("distribute-saved-activations", Switch, "", "Layout.DistributeSavedActivation", "saved inputs of recomputed layers are cut over tensor-parallel ranks").
		alias("distribute-checkpointed-activations", "partition-activations"),
	works("checkpoint-activations", Switch, "", "Raw.CheckpointActivations", "older spelling of --recompute-granularity full --recompute-method uniform"),
	works("activations-checkpoint-method", String, "", "Raw.CheckpointMethod", "older spelling of --recompute-granularity full --recompute-method").choices("uniform", "block"),
)

// checkpointFlags say what is kept and what a run starts from.
var checkpointFlags = owned(ownCheckpoint,
	works("save", String, "", "Checkpoint.Save", "folder to save into"),
	works("load", String, "", "Checkpoint.Load", "folder to continue from; its format is recognised"),
	works("save-interval", Int, "", "Checkpoint.SaveInterval", "steps between checkpoints").alias("persistent-save-interval"),
	works("save-retain-interval", Int, "", "Checkpoint.KeepEvery", "older checkpoints stay only at multiples of this (and the newest two, or --keep-last)").alias("keep-every"),
	works("keep-last", Int, "", "Checkpoint.KeepLast", "newest checkpoints that stay").alias("most-recent-k"),
	works("ckpt-format", String, "native", "Checkpoint.Format", "format of what is saved").choices("native", "torch", "torch_dist").
		but("use native, torch or torch_dist", "torch_dcp", "fsdp_dtensor", "zarr"),
	works("ckpt-step", Int, "", "Checkpoint.Step", "iteration to load instead of the latest").alias("override-ckpt-iteration"),
	works("no-save-optim", Switch, "", "Checkpoint.NoSaveOptim", "leave the optimizer's state out"),
	accepted("no-save-rng", Switch, "", "random numbers are counted, there is no state to save"),
	works("no-load-optim", Switch, "", "Checkpoint.NoLoadOptim", "do not load the optimizer's state"),
	accepted("no-load-rng", Switch, "", "random numbers are counted, there is no state to load"),
	works("finetune", Switch, "", "Checkpoint.Finetune", "load weights only and start at iteration 0"),
	works("pretrained-checkpoint", String, "", "Checkpoint.Pretrained", "weights to start from while --load holds nothing"),
	works("use-checkpoint-args", Switch, "", "Checkpoint.UseArgs", "take what the command line leaves open from the checkpoint"),
	works("exit-on-missing-checkpoint", Switch, "", "Checkpoint.ExitOnMissing", "end when --load holds no checkpoint, instead of starting anew"),
	works("async-save", Switch, "", "Checkpoint.Async", "write while training goes on"),
	accepted("auto-detect-ckpt-format", Switch, "", "the format is always recognised"),
	accepted("no-ckpt-fully-parallel-save", Switch, "", "each rank writes what it owns"),
	accepted("ckpt-fully-parallel-save", Switch, "", "each rank writes what it owns"),
	accepted("ckpt-fully-parallel-load", Switch, "", "each rank reads what it needs"),
	accepted("ckpt-assume-constant-structure", Switch, "", "nothing is cached between saves"),
	accepted("use-dist-ckpt", Switch, "", "see --ckpt-format"),
	accepted("dist-ckpt-format", String, "", "see --ckpt-format"),
	accepted("dist-ckpt-strictness", String, "assume_ok_unexpected", "a missing tensor is an error, an unexpected one is named").
		choices("assume_ok_unexpected", "log_unexpected", "log_all", "raise_unexpected", "raise_all", "return_unexpected", "return_all", "ignore_all"),
	accepted("dist-ckpt-workers", Int, "", "files are written in parallel as the disk allows"),
	accepted("use-mp-args-from-checkpoint-args", Switch, "", "a checkpoint loads under any layout"),
	refused("non-persistent-save-interval", Int, "use --save-interval with --keep-last"),
	refused("ckpt-convert-format", String, "use `monotron convert`"),
	accepted("use-persistent-ckpt-worker", Switch, "", "--async-save writes from this process"),
	accepted("async-strategy", String, "", "--async-save writes from this process"),
	accepted("ckpt-fully-parallel-load-exchange-algo", String, "", "each rank reads what it needs"),
	accepted("dist-ckpt-optim-fully-reshardable", Switch, "", "a checkpoint loads under any layout"),
	refused("non-persistent-ckpt-type", String, "use --save-interval with --keep-last"),
	refused("replication", Switch, "use --save-interval with --keep-last"),
)
