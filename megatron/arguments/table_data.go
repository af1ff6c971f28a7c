package arguments

const (
	ownData      = "data and tokenizer"
	ownLogging   = "logging"
	ownOwn       = "monotron"
	ownDeepSpeed = "Megatron-DeepSpeed"
	ownElsewhere = "other parts of Megatron-LM"
)

// dataFlags say where tokens come from.
var dataFlags = owned(ownData,
	works("data-path", Strings, "", "Data.DataPath", "prefixes of .bin/.idx files, or WEIGHT PREFIX pairs"),
	works("train-data-path", Strings, "", "Data.TrainDataPath", "the same for training alone"),
	works("valid-data-path", Strings, "", "Data.ValidDataPath", "the same for validation"),
	works("test-data-path", Strings, "", "Data.TestDataPath", "the same for the test"),
	works("data-args-path", String, "", "Data.DataArgsPath", "file that holds what --data-path would"),
	works("per-split-data-args-path", String, "", "Data.PerSplitDataArgsPath", "JSON file with the lists train, valid and test"),
	works("split", String, "", "Data.Split", "shares of training, validation and test (969,30,1 with --data-path)"),
	works("data-cache-path", String, "", "Data.CachePath", "folder of index arrays (beside the data)"),
	works("mock-data", Switch, "", "Data.Mock", "made-up tokens"),
	works("dataloader-type", String, "single", "DataloaderType", "one pass in the built order, or shuffled passes for ever").
		choices("single", "cyclic").but("the loader is built in; use single or cyclic", "external"),
	works("num-workers", Int, "2", "NumWorkers", "goroutines that read ahead"),
	works("reset-position-ids", Switch, "", "Data.ResetPositionIDs", "positions start anew after an end of document"),
	works("reset-attention-mask", Switch, "", "Data.ResetAttentionMask", "no attention across an end of document"),
	works("eod-mask-loss", Switch, "", "Data.EODMaskLoss", "no loss at an end of document"),
	works("dataloader-inter-document-masking", Switch, "", "Data.InterDocumentMasking", "no attention across the end of a sequence of the corpus"),
	works("allow-ambiguous-pad-tokens", Switch, "", "Data.AllowAmbiguousPad", "padding may share its id with a real token"),
	works("no-mmap-bin-files", Switch, "", "Data.NoMmapBinFiles", "read .bin files instead of mapping them").alias("disable-mmap-bin-files"),
	works("mid-level-dataset-surplus", Float, "0.005", "Data.Surplus", "share of spare samples per blended dataset"),
	refused("multiple-validation-sets", Switch, "validation sets are blended into one; run one evaluation a set with --skip-train"),
	accepted("no-create-attention-mask-in-dataloader", Switch, "", "masks are never stored"),
	accepted("num-dataset-builder-threads", Int, "1", "builders use the cores there are"),
	accepted("data-impl", String, "", "the format is read from the file").choices("mmap", "cached", "lazy", "infer"),
	accepted("dataset-impl", String, "", "the format is read from the file").choices("mmap", "cached", "lazy", "infer"),
	accepted("mmap-warmup", Switch, "", "pages are read ahead"),
	refused("fim-data", Switch, "fill-in-the-middle samples are not built in; prepare them in the corpus"),

	works("tokenizer-type", String, "", "Tokenizer.Type", "as in GPT2BPETokenizer, NullTokenizer (from the files given)"),
	works("tokenizer-model", String, "", "Tokenizer.Model", "SentencePiece file, Hugging Face folder or tiktoken file").alias("tokenizer-name-or-path"),
	works("null-tokenizer-eod-id", Int, "", "Tokenizer.NullEOD", "end-of-document id of a NullTokenizer (the last id)"),
	works("vocab-file", String, "", "Tokenizer.VocabFile", "vocabulary of a BPE"),
	works("merge-file", String, "", "Tokenizer.MergeFile", "merges of a BPE"),
	refused("vocab-extra-ids", Int, "no model here uses them; leave it out"),
	accepted("tiktoken-pattern", String, "", "only TikTokenizer splits by it").choices("v1", "v2"),
)

// loggingFlags say what is told, and where.
var loggingFlags = owned(ownLogging,
	works("log-interval", Int, "100", "Log.Interval", "steps between log lines"),
	works("timing-log-level", Int, "0", "Log.TimingLevel", "how fine the timers are").choices("0", "1", "2"),
	works("timing-log-option", String, "minmax", "Log.TimingOption", "timers over ranks: slowest, both ends, or each").choices("max", "minmax", "all"),
	works("log-throughput", Switch, "", "Log.Throughput", "TFLOP/s per device in the log line"),
	works("log-params-norm", Switch, "", "Log.ParamsNorm", "norm of the parameters in the log line"),
	works("log-num-zeros-in-grad", Switch, "", "Log.NumZeros", "zeros of the gradient in the log line"),
	works("log-memory-interval", Int, "", "Log.MemoryInterval", "steps between memory lines"),
	works("tensorboard-dir", String, "", "Log.TensorboardDir", "folder of TensorBoard event files"),
	works("tensorboard-log-interval", Int, "1", "Log.TensorboardInterval", "steps between their entries"),
	works("tensorboard-queue-size", Int, "1000", "Log.TensorboardQueue", "entries kept before writing"),
	works("log-timers-to-tensorboard", Switch, "", "Log.TimersToTensorboard", "timers too"),
	works("log-memory-to-tensorboard", Switch, "", "Log.MemoryToTensorboard", "memory too"),
	works("log-validation-ppl-to-tensorboard", Switch, "", "Log.ValidationPPLTensorboard", "perplexity too"),
	works("log-world-size-to-tensorboard", Switch, "", "Log.WorldSizeToTensorboard", "number of ranks too"),
	works("no-log-loss-scale-to-tensorboard", Switch, "", "!Log.LossScaleToTensorboard", "no loss scale").alias("disable-log-loss-scale-to-tensorboard"),
	works("profile", String, "", "Log.Profile", "write a Chrome trace of some steps").alone("trace.json"),
	works("profile-step-start", Int, "1", "Log.ProfileStart", "first step traced"),
	works("profile-step-end", Int, "20", "Log.ProfileEnd", "first step no longer traced"),
	accepted("profile-ranks", Ints, "", "every rank of this process is in the trace"),
	accepted("use-pytorch-profiler", Switch, "", "--profile writes a Chrome trace"),
	accepted("no-barrier-with-level-1-timing", Switch, "", "timers never wait for other ranks"),
	accepted("log-batch-size-to-tensorboard", Switch, "", "it is always written"),
	accepted("log-learning-rate-to-tensorboard", Switch, "", "it is always written"),
	accepted("no-log-learnig-rate-to-tensorboard", Switch, "", "the learning rate is always written"),
	accepted("logging-level", Int, "", "notes go to stderr"),
	accepted("log-progress", Switch, "", "progress is shown when stderr is a terminal"),
	accepted("wandb-project", String, "", "nothing is sent over the network; use --log-jsonl or --tensorboard-dir"),
	accepted("wandb-exp-name", String, "", "nothing is sent over the network; use --log-jsonl or --tensorboard-dir"),
	accepted("wandb-entity", String, "", "nothing is sent over the network; use --log-jsonl or --tensorboard-dir"),
	accepted("wandb-save-dir", String, "", "nothing is sent over the network; use --log-jsonl or --tensorboard-dir"),
	accepted("no-one-logger", Switch, "", "nothing is sent over the network"),
)

// ownFlags exist here alone.
var ownFlags = owned(ownOwn,
	works("device", String, "auto", "Device", "where tensors live; auto: cuda where usable, else cpu").choices("auto", "cpu", "cuda", "ref"),
	works("cpu-threads", Int, "0", "CPUThreads", "threads of the CPU device; 0: all cores"),
	works("config", String, "", "Raw.ConfigFile", "YAML file with these names; the command line wins"),
	works("print-config", Switch, "", "Raw.PrintConfig", "show each value and where it came from, then leave"),
	works("help", Switch, "", "Raw.Help", "this text"),
	works("log-jsonl", String, "", "Log.JSONL", "file that gets one JSON object a step"),
	works("log-memory", Switch, "", "Log.Memory", "a table of each rank's memory by purpose with the memory lines"),
	works("log-extras", Switch, "", "Log.Extras", "a second line a step: dt, dtf, dtb, tokens/s, MFU"),
	works("metrics-addr", String, "", "Log.MetricsAddr", "address for Prometheus, as in :9400"),
	works("sample-prompt", Strings, "", "SamplePrompt", "text to continue at every evaluation; may be repeated").repeats(),
	works("sample-tokens", Int, "64", "SampleTokens", "length of that continuation"),
)

const noDeepSpeed = "it belongs to DeepSpeed, which is not used here"

// deepspeedFlags are the names of the BLOOM era that have no twin above.
var deepspeedFlags = owned(ownDeepSpeed,
	accepted("deepspeed", Switch, "", noDeepSpeed),
	refused("deepspeed-config", String, noDeepSpeed+"; its settings are flags here (--micro-batch-size, --clip-grad, --bf16)"),
	refused("zero-stage", Int, "use --use-distributed-optimizer (ZeRO-1)"),
	accepted("deepspeed-mpi", Switch, "", "mpirun's variables are read anyway"),
	accepted("deepspeed-activation-checkpointing", Switch, "", "use --recompute-granularity"),
	accepted("contigious-checkpointing", Switch, "", "saved activations lie in one arena"),
	accepted("checkpoint-in-cpu", Switch, "", "saved activations stay on their device"),
	accepted("synchronize-each-layer", Switch, "", "no synchronisation is needed"),
	accepted("profile-backward", Switch, "", "--profile traces forward and backward"),
	accepted("no-pipeline-parallel", Switch, "", "--pipeline-model-parallel-size 1 has no pipeline"),
	accepted("abort-on-unmet-fused-kernel-constraints", Switch, "", fusion),
	accepted("sync-tp-duplicated-parameters", Switch, "", "replicated parameters stay equal bit for bit"),
	accepted("log-level", String, "", "notes go to stderr"),
	accepted("log-level-replica", String, "", "notes go to stderr"),
	accepted("log-path", String, "", "the arguments are saved in every checkpoint"),
	refused("curriculum-learning", Switch, "sequence length stays constant here, so that consumed samples alone give the place in the data; use --step-batch-size-schedule or --rampup-batch-size for a gentle start"),
	refused("train-tokens", Int, "use --train-samples (tokens / sequence length)"),
	refused("lr-decay-tokens", Int, "use --lr-decay-samples (tokens / sequence length)"),
	refused("lr-warmup-tokens", Int, "use --lr-warmup-samples (tokens / sequence length)"),
	refused("eval-only", String, "use --skip-train"),
	refused("skip-train-iteration-range", Strings, "use --iterations-to-skip"),
	refused("train-weighted-split-paths", Strings, "use --train-data-path"),
	refused("valid-weighted-split-paths", Strings, "use --valid-data-path"),
	refused("test-weighted-split-paths", Strings, "use --test-data-path"),
	refused("use-bnb-optimizer", Switch, "moments are f32 here; leave it out"),
	refused("cpu-optimizer", Switch, "the optimizer runs on --device; leave it out"),
	refused("codecarbon-dir", String, "power is not measured"),
	refused("kill-switch-path", String, "send SIGTERM: the run saves and exits 75"),
	refused("loss-on-targets-only", Switch, "it concerns prefix models; leave it out"),
	refused("reweight-loss-based-on-position-frequency", Switch, "it concerns prefix models; leave it out"),
)

const notHere = "this program pretrains GPT models only"

// elsewhereFlags belong to other programs in Megatron's tree that share its parser.
var elsewhereFlags = owned(ownElsewhere,
	refused("hybrid-layer-pattern", String, notBuilt),
	refused("hybrid-override-pattern", String, notBuilt),
	refused("is-hybrid-model", Switch, notBuilt),
	refused("perform-rl-step", Switch, notHere),
	refused("sft", Switch, notHere+"; --finetune starts from saved weights"),
	refused("vision-pretraining", Switch, notHere),
	refused("inprocess-restart", Switch, "use `monotron launch`, which restarts ranks"),
	refused("adlr-autoresume", Switch, "send SIGTERM: the run saves and exits 75"),
	refused("yaml-cfg", String, "use --config, a flat YAML file with these flags' names"),
	refused("check-for-spiky-loss", Switch, "use --log-jsonl and look at the loss"),
	accepted("enable-experimental", Switch, "", "there are no experimental parts"),
	accepted("te-rng-tracker", Switch, "", "random numbers are counters, there is no state to track"),
	accepted("cuda-graph-impl", String, "none", "graphs are the device's choice"),
	accepted("enable-cuda-graph", Switch, "", "graphs are the device's choice"),
	accepted("external-cuda-graph", Switch, "", "graphs are the device's choice"),
)
