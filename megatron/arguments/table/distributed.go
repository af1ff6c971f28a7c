package table

const (
	f32Gradients = "gradients accumulate and reduce in f32 in every precision"
	ncclsChoice  = "how NCCL keeps its buffers is its own choice"
	oneSharding  = "--data-parallel-sharding-strategy says what is shared; buffers, groups and types follow"
	noHSDP       = "sharding in two levels is --num-distributed-optimizer-instances, for the optimizer's state alone"
)

// distributedFlags say how ranks meet and how gradients are summed.
var distributedFlags = owned(Distributed,
	works("distributed-backend", String, "nccl", "Layout.Backend", "nccl or gloo in Megatron; here ranks of one process share memory, processes use shared memory and Gloo").choices("nccl", "gloo"),
	works("deterministic-mode", Switch, "", "Layout.Deterministic", "runs always repeat bit for bit on one layout and kind of device; this pins NCCL to rings too, without NVLS, so that its sums do not follow the network that is found"),
	works("distributed-timeout-minutes", Int, "10", "Layout.TimeoutMinutes", "longest wait of a collective").from(1, year),
	works("fast-reduce", Switch, "", "Layout.FastReduce", "sums between processes in Gloo's own order: losses differ in the last bits from those of one process"),
	works("use-distributed-optimizer", Switch, "", "Layout.DistributedOptimizer", "moments and main parameters sharded over data-parallel ranks (ZeRO-1)"),
	works("num-distributed-optimizer-instances", Int, "1", "Layout.OptimizerInstances", "copies of the sharded state; each is cut over DP x CP / copies ranks").from(1, lists),
	works("overlap-grad-reduce", Switch, "", "Layout.OverlapGradReduce", "reduce gradients bucket by bucket during backward"),
	works("overlap-param-gather", Switch, "", "Layout.OverlapParamGather", "gather updated parameters during forward; under optim_grads_params, each layer's while the one before it computes"),
	works("ddp-bucket-size", Int, "", "Layout.BucketSize", "parameters of a gradient bucket").from(1, samples),
	works("ddp-num-buckets", Int, "", "Layout.BucketCount", "buckets, instead of a size").from(1, lists),
	works("ddp-pad-buckets-for-high-nccl-busbw", Switch, "", "Layout.PadBucketsForHighBusBW", "bucket ends at multiples of 65536 times the ranks"),
	works("use-megatron-fsdp", Switch, "", "Raw.FSDP", "the same as --data-parallel-sharding-strategy optim_grads_params, unless that is given"),
	works("data-parallel-sharding-strategy", String, "", "Layout.Sharding", "what data-parallel ranks share: ZeRO 0, 1, 2, 3").
		choices("no_shard", "optim", "optim_grads", "optim_grads_params").
		differs("works without --use-megatron-fsdp too, and has no default then"),
	refused("data-parallel-random-init", Switch, "initial weights depend on the seed alone, so that every layout starts equal; use another --seed"),
	accepted("use-cpu-initialization", Switch, "", "initial weights are made on the host, equal under every layout"),
	accepted("local-rank", Int, "0", "ranks are numbered by the launcher's environment"),
	accepted("lazy-mpu-init", String, "", "there is no global state to set up").alone("true").differs("older versions wrote a value after it"),
	accepted("DDP-impl", String, "", "there is one way to sum gradients").choices("local", "torch"),
	accepted("use-contiguous-buffers-in-ddp", Switch, "", "gradients always lie in contiguous buffers"),
	accepted("use-contiguous-buffers-in-local-ddp", Switch, "", "gradients always lie in contiguous buffers"),
	accepted("no-contiguous-buffers-in-local-ddp", Switch, "", "gradients always lie in contiguous buffers"),
	accepted("no-scatter-gather-tensors-in-pipeline", Switch, "", "sequence-parallel ranks send their own piece"),
	accepted("no-async-tensor-model-parallel-allreduce", Switch, "", "the executor overlaps what it can"),
	accepted("overlap-param-gather-with-optimizer-step", Switch, "", "--overlap-param-gather gathers layer by layer during forward"),
	accepted("suggested-communication-unit-size", Int, "", "--ddp-bucket-size says how much is reduced at once"),
)

// otherDistributedFlags tune what follows by itself here.
var otherDistributedFlags = families(Distributed,
	allAccepted(f32Gradients,
		switches("accumulate-allreduce-grads-in-fp32 grad-reduce-in-bf16 ddp-reduce-scatter-with-fp32-accumulation"),
		several("ddp-param-name-patterns-for-fp32-local-accumulation")),
	allAccepted("gradients are scaled before the sum", switches("ddp-average-in-collective no-gradient-reduce-div-fusion")),
	allAccepted("each stage reduces and gathers when it can", switches("no-align-param-gather no-align-grad-reduce/disable-align-grad-reduce")),
	allAccepted(ncclsChoice,
		switches("use-nccl-ub use-sharp disable-symmetric-registration"),
		texts("nccl-communicator-config-path sharp-enabled-group")),
	allAccepted("streams are the device's choice", several("high-priority-stream-groups")),
	allAccepted("groups are made as needed", switches("disable-gloo-process-groups create-all-gather-group")),
	allAccepted(oneSharding,
		switches("fsdp-manual-registration fsdp-double-buffer fsdp-db-use-persist-buf-on-alloc-fail no-use-layer-wise-param-layout "+
			"megatron-fsdp-enable-fine-grained-param-gather megatron-fsdp-max-pool-double-buffer"),
		ints("megatron-fsdp-version"),
		texts("megatron-fsdp-main-params-dtype megatron-fsdp-main-grads-dtype megatron-fsdp-grad-comm-dtype")),
	allRefused(noHSDP,
		switches("enable-full-sharding-in-hsdp"),
		texts("outer-dp-sharding-strategy")),
	allRefused("use --data-parallel-sharding-strategy optim_grads_params, which shards the same",
		switches("use-torch-fsdp2 torch-fsdp2-no-reshard-after-forward")),
	allRefused("every rank computes here; --world-size starts them in this process, `monotron launch` as processes", switches("fake-process-group")),
	allAccepted("--distributed-timeout-minutes holds from the start to the end", ints("distributed-timeout-seconds-after-init")),
	allAccepted("--run-folder keeps the flight record of each rank; `monotron postmortem` joins them",
		switches("no-flight-recorder-dump-on-timeout/disable-flight-recorder-dump-on-timeout flight-recorder-include-stack-trace "+
			"no-flight-recorder-include-only-active/disable-flight-recorder-include-only-active "+
			"no-flight-recorder-extra-dump-on-exec/disable-flight-recorder-extra-dump-on-exec"),
		ints("flight-recorder-trace-buffer-size"),
		texts("flight-recorder-dump-path")))
