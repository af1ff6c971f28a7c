package table

const (
	noNetwork = "monotron sends nothing to this flag's service; --mlflow-tracking-uri and --otlp-endpoint send a run to a tracker, and scripts/track.py sends the log of a run to wandb (docs/trackers.md)"
	oneTrace  = "a Chrome trace with every rank of this process is written by --profile"
)

// loggingFlags say what is logged, and where.
var loggingFlags = owned(Logging,
	works("log-interval", Int, "100", "Log.Interval", "print a log line every N steps").from(1, sizes),
	works("timing-log-level", Int, "0", "Log.TimingLevel", "set the level of detail of the timers").choices("0", "1", "2"),
	works("timing-log-option", String, "minmax", "Log.TimingOption", "choose the ranks whose timers are logged: the slowest (max), the fastest and the slowest (minmax), or all").choices("max", "minmax", "all"),
	works("log-throughput", Switch, "", "Log.Throughput", "add TFLOP/s per device to the log line"),
	works("log-params-norm", Switch, "", "Log.ParamsNorm", "add the norm of the parameters to the log line"),
	works("log-num-zeros-in-grad", Switch, "", "Log.NumZeros", "add the number of zeros in the gradient to the log line"),
	works("log-memory-interval", Int, "", "Log.MemoryInterval", "print memory lines every N steps").from(0, sizes),
	works("tensorboard-dir", String, "", "Log.TensorboardDir", "write TensorBoard event files to this folder"),
	works("tensorboard-log-interval", Int, "1", "Log.TensorboardInterval", "write TensorBoard entries every N steps").from(1, sizes),
	works("tensorboard-queue-size", Int, "1000", "Log.TensorboardQueue", "keep up to N TensorBoard entries in memory before they are written").from(1, 1_000_000),
	works("log-timers-to-tensorboard", Switch, "", "Log.TimersToTensorboard", "write timers to TensorBoard"),
	works("log-memory-to-tensorboard", Switch, "", "Log.MemoryToTensorboard", "write memory use to TensorBoard"),
	works("log-validation-ppl-to-tensorboard", Switch, "", "Log.ValidationPPLTensorboard", "write validation perplexity to TensorBoard"),
	works("log-world-size-to-tensorboard", Switch, "", "Log.WorldSizeToTensorboard", "write the number of ranks to TensorBoard"),
	works("no-log-loss-scale-to-tensorboard", Switch, "", "!Log.LossScaleToTensorboard", "do not write the loss scale to TensorBoard").alias("disable-log-loss-scale-to-tensorboard"),
	works("profile", String, "", "Log.Profile", "write a Chrome trace of some steps to this file; if no file is named, write trace.json in the folder of --log-jsonl, or else in the current folder (default: no trace)").alone("trace.json").differs("the flag is a switch and has no value"),
	works("profile-step-start", Int, "1", "Log.ProfileStart", "set the first step in the trace").from(0, sizes).differs("the default is 10; with 1, short runs also have a trace"),
	works("profile-step-end", Int, "20", "Log.ProfileEnd", "set the first step after the trace").from(0, sizes).differs("the default is 12"),
	accepted("no-barrier-with-level-1-timing", Switch, "", "timers never wait for other ranks"),
	accepted("log-batch-size-to-tensorboard", Switch, "", "the batch size is always written to TensorBoard"),
	accepted("log-learning-rate-to-tensorboard", Switch, "", "the learning rate is always written to TensorBoard"),
	accepted("no-log-learnig-rate-to-tensorboard", Switch, "", "the learning rate is always written to TensorBoard"),
	accepted("logging-level", Int, "", "--log-level chooses which messages are printed"),
	accepted("log-progress", Switch, "", "progress is shown when stderr is a terminal"),
	works("log-straggler", Switch, "", "Watch.Stragglers", "report the slowest rank of each phase with the log lines"),
	refused("log-energy", Switch, "power use is not measured; leave the flag out"),
)

// otherLoggingFlags are of other log sinks.
var otherLoggingFlags = families(Logging,
	allAccepted(noNetwork,
		switches("otel-enabled no-one-logger one-logger-async"),
		texts("wandb-project wandb-exp-name wandb-save-dir wandb-entity otel-service-name otel-span-groups one-logger-project "+
			"one-logger-run-name app-tag-run-name app-tag-run-version")),
	allAccepted(oneTrace,
		switches("use-pytorch-profiler nvtx-ranges record-shapes pytorch-profiler-collect-shapes pytorch-profiler-collect-callstack "+
			"pytorch-profiler-collect-chakra"),
		several("profile-ranks")),
	allAccepted("slow ranks are always reported; --log-straggler, or --timing-log-level 1 with --timing-log-option all, shows every rank's times",
		switches("disable-straggler-on-startup"),
		ints("straggler-ctrlr-port straggler-minmax-count")),
	allAccepted("memory use by purpose is shown by --log-memory",
		switches("record-memory-history log-device-memory-used"),
		texts("memory-snapshot-path")),
	allAccepted("--print-config shows the complete configuration", texts("config-logger-dir")))
