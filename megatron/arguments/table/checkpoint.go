package table

const (
	ownsOrNeeds = "each rank writes what it owns and reads what it needs"
	ownWriter   = "--async-save writes from this process"
	onlyOnDisk  = "checkpoints are whole and lie on a disk that all ranks see; use --save-interval with --keep-last"
	useConvert  = "use `monotron convert`"
)

// checkpointFlags say what is kept and what a run starts from.
var checkpointFlags = owned(Checkpoint,
	works("save", String, "", "Checkpoint.Save", "folder to save into"),
	works("load", String, "", "Checkpoint.Load", "folder to continue from; its format is recognised"),
	works("save-interval", Int, "", "Checkpoint.SaveInterval", "steps between checkpoints").from(1, sizes).alias("persistent-save-interval"),
	works("save-retain-interval", Int, "", "Checkpoint.KeepEvery", "older checkpoints stay only at multiples of this (and the newest two, or --keep-last)").from(1, sizes).alias("keep-every"),
	works("keep-last", Int, "", "Checkpoint.KeepLast", "newest checkpoints that stay; -1 or 0: all").from(-1, sizes).same("-1", "0").alias("most-recent-k"),
	works("ckpt-format", String, "native", "Checkpoint.Format", "format of what is saved").choices("native", "torch", "torch_dist").
		but("use native, torch or torch_dist", "torch_dcp", "fsdp_dtensor", "zarr").
		differs("torch_dist is the default there; native keeps a sum of every byte and loads under any layout"),
	works("ckpt-step", Int, "", "Checkpoint.Step", "iteration to load instead of the latest").from(0, sizes).alias("override-ckpt-iteration"),
	works("no-save-tokenizer-assets", Switch, "", "Checkpoint.NoTokenizer", "checkpoints name their tokenizer and keep no copy of its files").alias("disable-save-tokenizer-assets"),
	works("no-save-optim", Switch, "", "Checkpoint.NoSaveOptim", "leave the optimizer's state out"),
	accepted("no-save-rng", Switch, "", "random numbers are counted, there is no state to save"),
	works("no-load-optim", Switch, "", "Checkpoint.NoLoadOptim", "do not load the optimizer's state"),
	accepted("no-load-rng", Switch, "", "random numbers are counted, there is no state to load"),
	works("finetune", Switch, "", "Checkpoint.Finetune", "load weights only and start at iteration 0"),
	works("pretrained-checkpoint", String, "", "Checkpoint.Pretrained", "weights to start from while --load holds nothing"),
	works("moe-use-upcycling", Switch, "", "Checkpoint.Upcycle", "start the experts from the MLPs of the dense checkpoint of --load; the first save has them, nothing is saved at once"),
	works("moe-upcycling-granularity", Int, "1", "Checkpoint.UpcyclingGranularity", "experts that make such an MLP once").from(1, lists),
	works("use-checkpoint-args", Switch, "", "Checkpoint.UseArgs", "take what the command line leaves open from the checkpoint"),
	works("exit-on-missing-checkpoint", Switch, "", "Checkpoint.ExitOnMissing", "end when --load holds no checkpoint, instead of starting anew"),
	works("async-save", Switch, "", "Checkpoint.Async", "write while training goes on"),
	accepted("use-dist-ckpt", Switch, "", "see --ckpt-format"),
	accepted("dist-ckpt-format", String, "", "see --ckpt-format"),
	accepted("dist-ckpt-strictness", String, "assume_ok_unexpected", "a missing tensor is an error, an unexpected one is named").
		choices("assume_ok_unexpected", "log_unexpected", "log_all", "raise_unexpected", "raise_all", "return_unexpected", "return_all", "ignore_all"),
	accepted("use-mp-args-from-checkpoint-args", Switch, "", "a checkpoint loads under any layout"),
)

// otherCheckpointFlags tune what needs no tuning here, or keep what is not kept.
var otherCheckpointFlags = families(Checkpoint,
	allAccepted(ownsOrNeeds,
		switches("ckpt-fully-parallel-save no-ckpt-fully-parallel-save ckpt-fully-parallel-load ckpt-fully-parallel-load-per-rank-objects ckpt-pg-tensors-cache-create"),
		texts("ckpt-fully-parallel-load-exchange-algo ckpt-fully-parallel-save-process-group ckpt-fully-parallel-load-process-group "+
			"ckpt-pg-tensors-cache-path")),
	allAccepted("nothing is cached between saves", switches("ckpt-assume-constant-structure")),
	allAccepted("the format is always recognised", switches("auto-detect-ckpt-format")),
	allAccepted("a checkpoint loads under any layout",
		switches("dist-ckpt-optim-fully-reshardable distrib-optim-fully-reshardable-mem-efficient dist-ckpt-save-pre-mcore-014")),
	allAccepted("what a checkpoint holds is always checked: every byte by its sum, every tensor by its pieces",
		switches("verify-integrity no-ckpt-load-validate-sharding-integrity/disable-ckpt-load-validate-sharding-integrity "+
			"no-strict-fsdp-dtensor-load/disable-strict-fsdp-dtensor-load ckpt-drop-redundant-extra-state load-main-params-from-ckpt")),
	allAccepted("files are written in parallel as the disk allows", ints("dist-ckpt-workers")),
	allAccepted(ownWriter,
		switches("use-persistent-ckpt-worker async-ckpt-use-cpu-shm"),
		ints("async-ckpt-cpu-priority async-ckpt-io-priority"),
		texts("async-strategy")),
	allRefused(onlyOnDisk,
		switches("replication"),
		ints("non-persistent-save-interval replication-jump replication-factor"),
		texts("non-persistent-ckpt-type non-persistent-global-ckpt-dir non-persistent-local-ckpt-dir non-persistent-local-ckpt-algo")),
	allRefused(useConvert,
		switches("ckpt-convert-update-legacy-dist-opt-format"),
		texts("ckpt-convert-format ckpt-convert-save")),
	allRefused("give --tokenizer-type and its files: they win over the checkpoint's",
		switches("no-use-tokenizer-model-from-checkpoint-args/disable-use-tokenizer-model-from-checkpoint-args")),
	allRefused("files lie in folders; mount the bucket",
		switches("enable-msc"),
		texts("object-storage-cache-path")),
	allAccepted("files lie in folders", switches("disable-msc")))
