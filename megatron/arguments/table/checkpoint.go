package table

const (
	ownsOrNeeds = "each rank always writes the tensors it owns and reads those it needs"
	ownWriter   = "the training process itself writes the checkpoints of --async-save"
	onlyOnDisk  = "checkpoints on disk are complete and in a folder that all ranks share; use --memory-checkpoint-interval with --replication-jump for quick checkpoints on each host"
	useConvert  = "use `monotron convert`"
)

// checkpointFlags say what is kept and what a run starts from.
var checkpointFlags = owned(Checkpoint,
	works("save", String, "", "Checkpoint.Save", "write checkpoints to this folder or s3:// URL (default: none are written)"),
	works("load", String, "", "Checkpoint.Load", "continue from this checkpoint folder, in any known format, or from an s3:// URL that --save wrote (default: start from initial weights)"),
	works("save-interval", Int, "", "Checkpoint.SaveInterval", "write a checkpoint every N steps (default: only at the end of the run)").from(1, sizes).alias("persistent-save-interval"),
	works("save-retain-interval", Int, "", "Checkpoint.KeepEvery", "delete checkpoints whose iteration is not a multiple of N, except the newest two (or as many as --keep-last) (default: keep all)").from(1, sizes).alias("keep-every"),
	works("keep-last", Int, "", "Checkpoint.KeepLast", "set the number of newest checkpoints to keep; -1 and 0 keep all (default: all)").from(-1, sizes).same("-1", "0").alias("most-recent-k"),
	works("ckpt-format", String, "native", "Checkpoint.Format", "choose the format of the checkpoints to write").choices("native", "torch", "torch_dist").
		but("use native, torch or torch_dist", "torch_dcp", "fsdp_dtensor", "zarr").
		differs("the default is torch_dist; monotron's native has checksums of every byte and loads under any layout"),
	works("ckpt-step", Int, "", "Checkpoint.Step", "load this iteration (default: the latest)").from(0, sizes).alias("override-ckpt-iteration"),
	works("no-save-tokenizer-assets", Switch, "", "Checkpoint.NoTokenizer", "store only the tokenizer's name in checkpoints, without a copy of its files").alias("disable-save-tokenizer-assets"),
	works("no-save-optim", Switch, "", "Checkpoint.NoSaveOptim", "leave the optimizer's state out of checkpoints"),
	accepted("no-save-rng", Switch, "", "random numbers come from counters, so there is no state to save"),
	works("no-load-optim", Switch, "", "Checkpoint.NoLoadOptim", "do not load the optimizer's state"),
	accepted("no-load-rng", Switch, "", "random numbers come from counters, so there is no state to load"),
	works("finetune", Switch, "", "Checkpoint.Finetune", "load only the weights and start at iteration 0"),
	works("pretrained-checkpoint", String, "", "Checkpoint.Pretrained", "start from the weights in this checkpoint folder or s3:// URL as long as --load has no checkpoint"),
	works("moe-use-upcycling", Switch, "", "Checkpoint.Upcycle", "initialize the experts from the MLPs of the dense checkpoint of --load; the next checkpoint written contains them"),
	works("moe-upcycling-granularity", Int, "1", "Checkpoint.UpcyclingGranularity", "divide each dense MLP into N experts").from(1, lists),
	works("use-checkpoint-args", Switch, "", "Checkpoint.UseArgs", "take from the checkpoint the flags that the command line does not give"),
	works("allow-missing-load", Switch, "", "Checkpoint.AllowMissing", "start from initial weights if the folder of --load does not exist or, with --finetune, has no checkpoint; without this flag, both are errors, but if --finetune is not given, a folder that is also the folder of --save need not exist"),
	works("exit-on-missing-checkpoint", Switch, "", "Checkpoint.ExitOnMissing", "exit when --load has no checkpoint, instead of starting from initial weights"),
	works("async-save", Switch, "", "Checkpoint.Async", "write checkpoints in the background while training continues"),
	works("replication-jump", Int, "0", "Checkpoint.ReplicationJump", "with --memory-checkpoint-interval, keep a copy of the shard of each rank R on the host of rank R+N; N is usually the number of ranks per host (0 keeps no copies)").from(0, sizes).
		differs("copies are files, which --non-persistent-ckpt-type local writes with --replication"),
	accepted("use-dist-ckpt", Switch, "", "the format is chosen by --ckpt-format"),
	accepted("dist-ckpt-format", String, "", "the format is chosen by --ckpt-format"),
	accepted("dist-ckpt-strictness", String, "assume_ok_unexpected", "a missing tensor is always an error, and an unexpected one is reported").
		choices("assume_ok_unexpected", "log_unexpected", "log_all", "raise_unexpected", "raise_all", "return_unexpected", "return_all", "ignore_all"),
	accepted("use-mp-args-from-checkpoint-args", Switch, "", "a checkpoint loads under any layout"),
)

// otherCheckpointFlags tune what needs no tuning here, or keep what is not kept.
var otherCheckpointFlags = families(Checkpoint,
	allAccepted(ownsOrNeeds,
		switches("ckpt-fully-parallel-save no-ckpt-fully-parallel-save ckpt-fully-parallel-load ckpt-fully-parallel-load-per-rank-objects ckpt-pg-tensors-cache-create"),
		texts("ckpt-fully-parallel-load-exchange-algo ckpt-fully-parallel-save-process-group ckpt-fully-parallel-load-process-group "+
			"ckpt-pg-tensors-cache-path")),
	allAccepted("no structure is cached between saves", switches("ckpt-assume-constant-structure")),
	allAccepted("the format is always detected", switches("auto-detect-ckpt-format")),
	allAccepted("a checkpoint loads under any layout",
		switches("dist-ckpt-optim-fully-reshardable distrib-optim-fully-reshardable-mem-efficient dist-ckpt-save-pre-mcore-014")),
	allAccepted("checkpoints are always verified: every byte by checksum, every tensor by its pieces",
		switches("verify-integrity no-ckpt-load-validate-sharding-integrity/disable-ckpt-load-validate-sharding-integrity "+
			"no-strict-fsdp-dtensor-load/disable-strict-fsdp-dtensor-load ckpt-drop-redundant-extra-state load-main-params-from-ckpt")),
	allAccepted("the number of parallel writers follows from the disk", ints("dist-ckpt-workers")),
	allAccepted(ownWriter,
		switches("use-persistent-ckpt-worker async-ckpt-use-cpu-shm"),
		ints("async-ckpt-cpu-priority async-ckpt-io-priority"),
		texts("async-strategy")),
	allRefused(onlyOnDisk,
		switches("replication"),
		ints("non-persistent-save-interval replication-factor"),
		texts("non-persistent-ckpt-type non-persistent-global-ckpt-dir non-persistent-local-ckpt-dir non-persistent-local-ckpt-algo")),
	allRefused(useConvert,
		switches("ckpt-convert-update-legacy-dist-opt-format"),
		texts("ckpt-convert-format ckpt-convert-save")),
	allRefused("use --tokenizer-type and its files, which take precedence over the checkpoint's",
		switches("no-use-tokenizer-model-from-checkpoint-args/disable-use-tokenizer-model-from-checkpoint-args")),
	allRefused("s3:// URLs need no profiles; set the AWS_ environment variables instead (docs/object-storage.md)", switches("enable-msc")),
	allAccepted("msc:// URLs are not supported", switches("disable-msc")))
