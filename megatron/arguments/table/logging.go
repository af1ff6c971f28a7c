package table

const (
	noNetwork = "nothing is sent over the network; --dashboard-addr shows the run as a page, --log-jsonl, --tensorboard-dir and --metrics-addr keep its numbers"
	oneTrace  = "--profile writes a Chrome trace with every rank of this process"
)

// loggingFlags say what is told, and where.
var loggingFlags = owned(Logging,
	works("log-interval", Int, "100", "Log.Interval", "steps between log lines").from(1, sizes),
	works("timing-log-level", Int, "0", "Log.TimingLevel", "how fine the timers are").choices("0", "1", "2"),
	works("timing-log-option", String, "minmax", "Log.TimingOption", "timers over ranks: slowest, both ends, or each").choices("max", "minmax", "all"),
	works("log-throughput", Switch, "", "Log.Throughput", "TFLOP/s per device in the log line"),
	works("log-params-norm", Switch, "", "Log.ParamsNorm", "norm of the parameters in the log line"),
	works("log-num-zeros-in-grad", Switch, "", "Log.NumZeros", "zeros of the gradient in the log line"),
	works("log-memory-interval", Int, "", "Log.MemoryInterval", "steps between memory lines").from(0, sizes),
	works("tensorboard-dir", String, "", "Log.TensorboardDir", "folder of TensorBoard event files"),
	works("tensorboard-log-interval", Int, "1", "Log.TensorboardInterval", "steps between their entries").from(1, sizes),
	works("tensorboard-queue-size", Int, "1000", "Log.TensorboardQueue", "entries kept before writing").from(1, 1_000_000),
	works("log-timers-to-tensorboard", Switch, "", "Log.TimersToTensorboard", "timers too"),
	works("log-memory-to-tensorboard", Switch, "", "Log.MemoryToTensorboard", "memory too"),
	works("log-validation-ppl-to-tensorboard", Switch, "", "Log.ValidationPPLTensorboard", "perplexity too"),
	works("log-world-size-to-tensorboard", Switch, "", "Log.WorldSizeToTensorboard", "number of ranks too"),
	works("no-log-loss-scale-to-tensorboard", Switch, "", "!Log.LossScaleToTensorboard", "no loss scale").alias("disable-log-loss-scale-to-tensorboard"),
	works("profile", String, "", "Log.Profile", "write a Chrome trace of some steps (to trace.json if no file is named)").alone("trace.json").differs("a switch there"),
	works("profile-step-start", Int, "1", "Log.ProfileStart", "first step traced").from(0, sizes).differs("10 there; here a short run has a trace too"),
	works("profile-step-end", Int, "20", "Log.ProfileEnd", "first step no longer traced").from(0, sizes).differs("12 there"),
	accepted("no-barrier-with-level-1-timing", Switch, "", "timers never wait for other ranks"),
	accepted("log-batch-size-to-tensorboard", Switch, "", "it is always written"),
	accepted("log-learning-rate-to-tensorboard", Switch, "", "it is always written"),
	accepted("no-log-learnig-rate-to-tensorboard", Switch, "", "the learning rate is always written"),
	accepted("logging-level", Int, "", "notes go to stderr"),
	accepted("log-progress", Switch, "", "progress is shown when stderr is a terminal"),
	works("log-straggler", Switch, "", "Watch.Stragglers", "the slowest rank of each phase, with the log lines"),
	refused("log-energy", Switch, "power is not measured"),
)

// otherLoggingFlags are of other ways to be told.
var otherLoggingFlags = families(Logging,
	allAccepted(noNetwork,
		switches("otel-enabled no-one-logger one-logger-async"),
		texts("wandb-project wandb-exp-name wandb-save-dir wandb-entity otel-service-name otel-span-groups one-logger-project "+
			"one-logger-run-name app-tag-run-name app-tag-run-version")),
	allAccepted(oneTrace,
		switches("use-pytorch-profiler nvtx-ranges record-shapes pytorch-profiler-collect-shapes pytorch-profiler-collect-callstack "+
			"pytorch-profiler-collect-chakra"),
		several("profile-ranks")),
	allAccepted("a slow rank is told of by itself; --log-straggler and --timing-log-level 1 --timing-log-option all show every rank's times",
		switches("disable-straggler-on-startup"),
		ints("straggler-ctrlr-port straggler-minmax-count")),
	allAccepted("--log-memory tells what memory holds, by purpose",
		switches("record-memory-history log-device-memory-used"),
		texts("memory-snapshot-path")),
	allAccepted("--print-config shows the whole configuration", texts("config-logger-dir")))
