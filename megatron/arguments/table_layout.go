package arguments

import "monotron/megatron/schedule"

const (
	ownLayout      = "parallel layout"
	ownDistributed = "distributed"
)

// layoutFlags place the model on ranks.
var layoutFlags = owned(ownLayout,
	works("world-size", Int, "", "Layout.WorldSize", "ranks, all in this process (several processes: monotron launch)"),
	works("tensor-model-parallel-size", Int, "1", "Layout.TP", "ranks that share each layer"),
	works("pipeline-model-parallel-size", Int, "1", "Layout.PP", "stages of layers"),
	works("context-parallel-size", Int, "1", "Layout.CP", "ranks that share each sequence"),
	works("expert-model-parallel-size", Int, "1", "Layout.EP", "ranks that share the experts"),
	works("expert-tensor-parallel-size", Int, "", "Layout.ETP", "ranks that share one expert (--tensor-model-parallel-size)"),
	works("sequence-parallel", Switch, "", "Layout.SequenceParallel", "norms and dropout on pieces of the sequence; off when the tensor-parallel size is 1"),
	works("cp-comm-type", Strings, "p2p", "Layout.CPCommType", "how context-parallel ranks exchange keys; one, or one per layer").
		choices("p2p", "all_gather", "a2a", "a2a+p2p").same("allgather", "all_gather"),
	works("hierarchical-context-parallel-sizes", Ints, "", "Layout.HierarchicalCP", "sizes of a2a and p2p for a2a+p2p"),
	works("use-tp-pp-dp-mapping", Switch, "", "Layout.OrderTPPPDP", "rank order tp-cp-ep-pp-dp"),
	works("num-layers-per-virtual-pipeline-stage", Int, "", "Raw.LayersPerVirtual", "interleaved schedule: layers per model chunk"),
	works("num-virtual-stages-per-pipeline-rank", Int, "", "Raw.VirtualStages", "interleaved schedule: model chunks per rank"),
	works("pipeline-model-parallel-layout", String, "", "Layout.StageString", "which layers each stage holds, as in Et*3|(tt|)*3m|L"),
	works("pp-partition-method", String, "", "Layout.PartitionMethod", "Megatron-DeepSpeed's way to cut stages").
		choices(schedule.ByLayersAndEmbeddings, schedule.ByLayers, schedule.Uniform, schedule.ByParameters),
	works("decoder-first-pipeline-num-layers", Int, "", "Layout.FirstStageLayers", "layers of the first stage; the middle divides evenly"),
	works("decoder-last-pipeline-num-layers", Int, "", "Layout.LastStageLayers", "layers of the last stage"),
	works("account-for-embedding-in-pipeline-split", Switch, "", "Layout.EmbeddingCountsAsLayer", "the embedding counts as a layer of the first stage"),
	works("account-for-loss-in-pipeline-split", Switch, "", "Layout.LossCountsAsLayer", "the output layer counts as a layer of the last stage"),
	works("microbatch-group-size-per-virtual-pipeline-stage", Int, "", "Layout.MicroBatchGroup", "micro-batches a chunk takes in a row (pipeline size)"),
	works("no-overlap-p2p-communication", Switch, "", "Layout.NoOverlapP2P", "interleaved schedule: one exchange after a forward and a backward, before what follows"),
	works("pipeline-schedule", String, schedule.OneFOneBName, "Layout.Schedule", "1f1b (interleaved with several chunks), or gpipe: all forwards, then all backwards").
		choices(schedule.OneFOneBName, schedule.GPipeName),
	accepted("tp-comm-overlap", Switch, "", "the executor overlaps what it can"),
	accepted("tp-comm-overlap-cfg", String, "", "the executor overlaps what it can"),
	accepted("tp-comm-bootstrap-backend", String, "", "the executor overlaps what it can"),
	accepted("overlap-p2p-communication-warmup-flush", Switch, "", "the executor overlaps what it can"),
	accepted("defer-embedding-wgrad-compute", Switch, "", "the output layer's gradient is made while its logits exist"),
	accepted("wgrad-deferral-limit", Int, "", "the output layer's gradient is made while its logits exist"),
	accepted("delay-wgrad-compute", Switch, "", "the executor overlaps what it can"),
	refused("tensor-parallel-num-weight-shards", Int, "re-gathered tensor-parallel weights (GTP) are not built in; use --use-distributed-optimizer to save memory"),
	refused("model-parallel-size", Int, "use --tensor-model-parallel-size"),
	refused("standalone-embedding-stage", Switch, "use --pipeline-model-parallel-layout"),
	refused("pipeline-model-parallel-split-rank", Int, "it cuts encoder from decoder; GPT has one stack"),
)

// distributedFlags say how ranks meet and how gradients are summed.
var distributedFlags = owned(ownDistributed,
	works("distributed-backend", String, "nccl", "Layout.Backend", "nccl or gloo in Megatron; here ranks of one process share memory, processes use shared memory and Gloo").choices("nccl", "gloo"),
	works("distributed-timeout-minutes", Int, "10", "Layout.TimeoutMinutes", "longest wait of a collective"),
	works("fast-reduce", Switch, "", "Layout.FastReduce", "sums between processes in Gloo's own order: losses differ in the last bits from those of one process"),
	works("use-distributed-optimizer", Switch, "", "Layout.DistributedOptimizer", "moments and main parameters sharded over data-parallel ranks (ZeRO-1)"),
	works("num-distributed-optimizer-instances", Int, "1", "Layout.OptimizerInstances", "copies of the sharded state; each is cut over DP x CP / copies ranks"),
	works("overlap-grad-reduce", Switch, "", "Layout.OverlapGradReduce", "reduce gradients bucket by bucket during backward"),
	works("overlap-param-gather", Switch, "", "Layout.OverlapParamGather", "gather updated parameters during forward"),
	works("ddp-bucket-size", Int, "", "Layout.BucketSize", "parameters of a gradient bucket"),
	works("ddp-num-buckets", Int, "", "Layout.BucketCount", "buckets, instead of a size"),
	works("ddp-pad-buckets-for-high-nccl-busbw", Switch, "", "Layout.PadBucketsForHighBusBW", "bucket ends at multiples of 65536 times the ranks"),
	accepted("ddp-average-in-collective", Switch, "", "gradients are scaled before the sum"),
	accepted("accumulate-allreduce-grads-in-fp32", Switch, "", "gradients accumulate and reduce in f32 in every precision"),
	accepted("grad-reduce-in-bf16", Switch, "", "gradients accumulate and reduce in f32 in every precision"),
	works("use-megatron-fsdp", Switch, "", "Raw.FSDP", "the same as --data-parallel-sharding-strategy optim_grads_params, unless that is given"),
	works("data-parallel-sharding-strategy", String, "", "Layout.Sharding", "what data-parallel ranks share: ZeRO 0, 1, 2, 3").
		choices("no_shard", "optim", "optim_grads", "optim_grads_params"),
	refused("use-torch-fsdp2", Switch, "use --data-parallel-sharding-strategy optim_grads_params, which shards the same"),
	refused("data-parallel-random-init", Switch, "initial weights depend on the seed alone, so that every layout starts equal; use another --seed"),
	accepted("use-cpu-initialization", Switch, "", "initial weights are made on the host, equal under every layout"),
	accepted("disable-gloo-process-groups", Switch, "", "groups are made as needed"),
	accepted("local-rank", Int, "", "ranks are numbered by the launcher's environment"),
	accepted("lazy-mpu-init", String, "", "there is no global state to set up"),
	accepted("DDP-impl", String, "", "there is one way to sum gradients").choices("local", "torch"),
	accepted("use-contiguous-buffers-in-ddp", Switch, "", "gradients always lie in contiguous buffers"),
	accepted("use-contiguous-buffers-in-local-ddp", Switch, "", "gradients always lie in contiguous buffers"),
	accepted("no-contiguous-buffers-in-local-ddp", Switch, "", "gradients always lie in contiguous buffers"),
	accepted("no-scatter-gather-tensors-in-pipeline", Switch, "", "sequence-parallel ranks send their own piece"),
	accepted("no-async-tensor-model-parallel-allreduce", Switch, "", "the executor overlaps what it can"),
	accepted("overlap-param-gather-with-optimizer-step", Switch, "", "--overlap-param-gather gathers layer by layer during forward"),
	accepted("no-align-param-gather", Switch, "", "each stage gathers when it needs the parameters"),
	accepted("no-gradient-reduce-div-fusion", Switch, "", "gradients are scaled before the sum"),
	accepted("suggested-communication-unit-size", Int, "", "--ddp-bucket-size says how much is reduced at once"),
	accepted("use-nccl-ub", Switch, "", "how NCCL keeps its buffers is its own choice"),
	accepted("nccl-communicator-config-path", String, "", "how NCCL keeps its buffers is its own choice"),
	accepted("use-sharp", Switch, "", "how NCCL keeps its buffers is its own choice"),
	accepted("high-priority-stream-groups", Strings, "", "streams are the device's choice"),
)
