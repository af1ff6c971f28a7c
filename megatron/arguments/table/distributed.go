package table

const (
	f32Gradients = "gradients accumulate and reduce in f32 in every precision"
	ncclsChoice  = "NCCL manages its own buffers"
	oneSharding  = "buffers, groups and data types follow from --data-parallel-sharding-strategy"
	noHSDP       = "two-level sharding is supported for the optimizer's state only; use --num-distributed-optimizer-instances"
)

// distributedFlags say how ranks meet and how gradients are summed.
var distributedFlags = owned(Distributed,
	works("distributed-backend", String, "nccl", "Layout.Backend", "choose the library for the collectives of ranks that have a GPU; ranks without a GPU always use shared memory, Gloo or TCP").choices("nccl", "gloo"),
	works("deterministic-mode", Switch, "", "Layout.Deterministic", "restrict NCCL to rings without NVLS, so that NCCL's sums do not depend on the network; on the same layout and kind of device, runs repeat bit for bit even without this flag"),
	works("distributed-timeout-minutes", Int, "10", "Layout.TimeoutMinutes", "set the longest time a collective may take, in minutes").from(1, year),
	works("fast-reduce", Switch, "", "Layout.FastReduce", "sum between processes in Gloo's own order; losses differ in the last bits from those of one process"),
	works("use-distributed-optimizer", Switch, "", "Layout.DistributedOptimizer", "shard moments and main parameters over data-parallel ranks (ZeRO-1)"),
	works("num-distributed-optimizer-instances", Int, "1", "Layout.OptimizerInstances", "keep N copies of the sharded optimizer state; each is sharded over DP x CP / N ranks").from(1, lists),
	works("overlap-grad-reduce", Switch, "", "Layout.OverlapGradReduce", "reduce gradients bucket by bucket during the backward pass"),
	works("overlap-param-gather", Switch, "", "Layout.OverlapParamGather", "gather updated parameters during the forward pass; with --data-parallel-sharding-strategy optim_grads_params, gather those of each layer while the previous layer computes"),
	works("ddp-bucket-size", Int, "", "Layout.BucketSize", "set the number of parameters in a gradient bucket").from(1, samples),
	works("ddp-num-buckets", Int, "", "Layout.BucketCount", "set the number of gradient buckets, instead of --ddp-bucket-size").from(1, lists),
	works("ddp-pad-buckets-for-high-nccl-busbw", Switch, "", "Layout.PadBucketsForHighBusBW", "end buckets at multiples of 65536 times the number of ranks"),
	works("use-megatron-fsdp", Switch, "", "Raw.FSDP", "shard parameters, gradients and optimizer state, like --data-parallel-sharding-strategy optim_grads_params; that flag takes precedence if it is given"),
	works("data-parallel-sharding-strategy", String, "", "Layout.Sharding", "choose what is sharded over data-parallel ranks: nothing, the optimizer state, also the gradients, or also the parameters (ZeRO 0, 1, 2 or 3)").
		choices("no_shard", "optim", "optim_grads", "optim_grads_params").
		differs("works only with --use-megatron-fsdp; in monotron the flag also works without it, and then has no default"),
	refused("data-parallel-random-init", Switch, "initial weights depend on the seed only, so that every layout starts with equal weights; use another --seed"),
	accepted("use-cpu-initialization", Switch, "", "initial weights are always computed on the host, equal under every layout"),
	accepted("local-rank", Int, "0", "the rank is read from the launcher's environment"),
	accepted("lazy-mpu-init", String, "", "there is no global state to set up").alone("true").differs("in older versions of Megatron-LM the flag had a value"),
	accepted("DDP-impl", String, "", "gradient reduction has a single implementation").choices("local", "torch"),
	accepted("use-contiguous-buffers-in-ddp", Switch, "", "gradients are always in contiguous buffers"),
	accepted("use-contiguous-buffers-in-local-ddp", Switch, "", "gradients are always in contiguous buffers"),
	accepted("no-contiguous-buffers-in-local-ddp", Switch, "", "gradients are always in contiguous buffers"),
	accepted("no-scatter-gather-tensors-in-pipeline", Switch, "", "sequence-parallel ranks always send only their own shard"),
	accepted("no-async-tensor-model-parallel-allreduce", Switch, "", "communication and computation overlap where possible"),
	accepted("overlap-param-gather-with-optimizer-step", Switch, "", "--overlap-param-gather gathers layer by layer during the forward pass"),
	accepted("suggested-communication-unit-size", Int, "", "--ddp-bucket-size sets the size of one reduction"),
)

// otherDistributedFlags tune what follows by itself here.
var otherDistributedFlags = families(Distributed,
	allAccepted(f32Gradients,
		switches("accumulate-allreduce-grads-in-fp32 grad-reduce-in-bf16 ddp-reduce-scatter-with-fp32-accumulation"),
		several("ddp-param-name-patterns-for-fp32-local-accumulation")),
	allAccepted("gradients are always scaled before they are summed", switches("ddp-average-in-collective no-gradient-reduce-div-fusion")),
	allAccepted("each stage reduces and gathers as soon as possible", switches("no-align-param-gather no-align-grad-reduce/disable-align-grad-reduce")),
	allAccepted(ncclsChoice,
		switches("use-nccl-ub use-sharp disable-symmetric-registration"),
		texts("nccl-communicator-config-path sharp-enabled-group")),
	allAccepted("the device chooses its streams", several("high-priority-stream-groups")),
	allAccepted("groups are made as needed", switches("disable-gloo-process-groups create-all-gather-group")),
	allAccepted(oneSharding,
		switches("fsdp-manual-registration fsdp-double-buffer fsdp-db-use-persist-buf-on-alloc-fail no-use-layer-wise-param-layout "+
			"megatron-fsdp-enable-fine-grained-param-gather megatron-fsdp-max-pool-double-buffer"),
		ints("megatron-fsdp-version"),
		texts("megatron-fsdp-main-params-dtype megatron-fsdp-main-grads-dtype megatron-fsdp-grad-comm-dtype")),
	allRefused(noHSDP,
		switches("enable-full-sharding-in-hsdp"),
		texts("outer-dp-sharding-strategy")),
	allRefused("use --data-parallel-sharding-strategy optim_grads_params, which shards the same tensors",
		switches("use-torch-fsdp2 torch-fsdp2-no-reshard-after-forward")),
	allRefused("fake process groups are not supported; use --world-size for ranks in one process, or `monotron launch` for processes", switches("fake-process-group")),
	allAccepted("--distributed-timeout-minutes applies to the entire run", ints("distributed-timeout-seconds-after-init")),
	allAccepted("the flight record of each rank is stored by --run-folder; `monotron postmortem` merges the records",
		switches("no-flight-recorder-dump-on-timeout/disable-flight-recorder-dump-on-timeout flight-recorder-include-stack-trace "+
			"no-flight-recorder-include-only-active/disable-flight-recorder-include-only-active "+
			"no-flight-recorder-extra-dump-on-exec/disable-flight-recorder-extra-dump-on-exec"),
		ints("flight-recorder-trace-buffer-size"),
		texts("flight-recorder-dump-path")))
