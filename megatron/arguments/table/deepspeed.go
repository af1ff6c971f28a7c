package table

const (
	noDeepSpeed = "DeepSpeed is not used here"
	splitPaths  = "use --data-path WEIGHT PREFIX .. with --split, or --train-data-path, --valid-data-path and --test-data-path for separate files"
)

// deepspeedFlags are the names of the BLOOM era that have no twin above.
var deepspeedFlags = owned(DeepSpeed,
	accepted("deepspeed", Switch, "", noDeepSpeed),
	refused("deepspeed-config", String, noDeepSpeed+"; leave it out and give its settings as flags: --micro-batch-size, --global-batch-size, --clip-grad, --bf16 or --fp16, --zero-stage"),
	works("zero-stage", Int, "", "Raw.ZeroStage", "ZeRO stage: same as --data-parallel-sharding-strategy no_shard, optim, optim_grads or optim_grads_params").choices("0", "1", "2", "3"),
	accepted("deepspeed-mpi", Switch, "", "mpirun's variables are always read"),
	accepted("deepspeed-activation-checkpointing", Switch, "", "--checkpoint-activations or --recompute-granularity selects what is recomputed"),
	accepted("contigious-checkpointing", Switch, "", "saved activations are always contiguous, in one arena"),
	accepted("checkpoint-in-cpu", Switch, "", "saved activations stay on their device"),
	accepted("synchronize-each-layer", Switch, "", "layers need no synchronization"),
	accepted("profile-backward", Switch, "", "--profile traces forward and backward"),
	accepted("no-pipeline-parallel", Switch, "", "--pipeline-model-parallel-size 1 has no pipeline"),
	accepted("abort-on-unmet-fused-kernel-constraints", Switch, "", fusion),
	accepted("sync-tp-duplicated-parameters", Switch, "", "replicated parameters stay equal bit for bit"),
	accepted("log-level-replica", String, "", "notes go to stderr"),
	accepted("log-path", String, "", "the arguments are saved in every checkpoint"),
	refused("curriculum-learning", Switch, "the sequence length is constant, as the data position is computed from consumed samples; use --step-batch-size-schedule or --rampup-batch-size to start with small batches"),
	refused("train-tokens", Int, "use --train-samples (tokens / sequence length)").instead("train-samples"),
	refused("lr-decay-tokens", Int, "use --lr-decay-samples (tokens / sequence length)"),
	refused("lr-warmup-tokens", Int, "use --lr-warmup-samples (tokens / sequence length)"),
	refused("eval-only", String, "use --skip-train").instead("train-iters"),
	refused("skip-train-iteration-range", Strings, "use --iterations-to-skip with each iteration, as in $(seq 13251 14000)"),
	refused("train-weighted-split-paths", Strings, splitPaths).instead("data-path"),
	refused("train-weighted-split-paths-path", String, splitPaths+", or --data-args-path FILE").instead("data-path"),
	refused("valid-weighted-split-paths", Strings, splitPaths).instead("data-path"),
	refused("valid-weighted-split-paths-path", String, splitPaths+", or --per-split-data-args-path FILE").instead("data-path"),
	refused("test-weighted-split-paths", Strings, splitPaths).instead("data-path"),
	refused("test-weighted-split-paths-path", String, splitPaths+", or --per-split-data-args-path FILE").instead("data-path"),
	accepted("valid-num-workers", Int, "", "--num-workers applies to every split"),
	accepted("universal-checkpoint", Switch, "", "a checkpoint loads under any layout"),
	refused("use-bnb-optimizer", Switch, "8-bit moments are not supported; use f32 moments with --use-distributed-optimizer, which shards them"),
	refused("cpu-optimizer", Switch, "the optimizer runs on --device; use --use-distributed-optimizer to shard its state"),
	refused("codecarbon-dir", String, "power use is not measured; leave it out"),
	works("kill-switch-path", String, "", "KillSwitch", "file whose existence ends the run after the current step, as SIGTERM does: it saves and exits with code 75; the run does not start while it exists"),
	refused("loss-on-targets-only", Switch, "prefix models are not supported; leave it out"),
	refused("reweight-loss-based-on-position-frequency", Switch, "prefix models are not supported; leave it out"),
)
