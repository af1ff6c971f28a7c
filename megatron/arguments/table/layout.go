package table

import "monotron/megatron/schedule"

const (
	overlaps = "communication and computation overlap where possible"
	noGTP    = "re-gathered tensor-parallel weights (GTP) are not supported; use --data-parallel-sharding-strategy optim_grads_params to save memory"
	noHybrid = "all sequences are divided among the same ranks; use --context-parallel-size"
)

// layoutFlags assign the model to ranks.
var layoutFlags = owned(Layout,
	works("world-size", Int, "", "Layout.WorldSize", "run N ranks in this process (for several processes use monotron launch)").from(1, lists),
	works("tensor-model-parallel-size", Int, "1", "Layout.TP", "shard each layer over N ranks").from(1, lists),
	works("pipeline-model-parallel-size", Int, "1", "Layout.PP", "divide the layers into N pipeline stages").from(1, lists),
	works("context-parallel-size", Int, "1", "Layout.CP", "share each sequence among N ranks").from(1, lists),
	works("expert-model-parallel-size", Int, "1", "Layout.EP", "share the experts among N ranks").from(1, lists),
	works("expert-tensor-parallel-size", Int, "", "Layout.ETP", "share each expert among N ranks (default: --tensor-model-parallel-size)").from(1, lists),
	works("tp-comm-overlap", Switch, "", "Layout.TPCommOverlap", "overlap matrix products with the all-gathers and reduce-scatters of --sequence-parallel, in chunks; losses with and without this flag are equal up to rounding"),
	works("sequence-parallel", Switch, "", "Layout.SequenceParallel", "shard norms and dropout over the sequence; the flag has no effect when the tensor-parallel size is 1"),
	works("cp-comm-type", Strings, "p2p", "Layout.CPCommType", "choose how context-parallel ranks exchange keys and values: one value, or one per layer").
		choices("p2p", "all_gather", "a2a", "a2a+p2p").same("allgather", "all_gather").
		differs("accepts any text"),
	works("hierarchical-context-parallel-sizes", Ints, "", "Layout.HierarchicalCP", "set the sizes of the a2a group and the p2p group for --cp-comm-type a2a+p2p").from(1, lists),
	works("use-tp-pp-dp-mapping", Switch, "", "Layout.OrderTPPPDP", "number the ranks in the order tp-cp-ep-pp-dp (default: tp-cp-ep-dp-pp)"),
	works("num-layers-per-virtual-pipeline-stage", Int, "", "Raw.LayersPerVirtual", "set the number of layers per model chunk; this selects the interleaved schedule").from(1, lists),
	works("num-virtual-stages-per-pipeline-rank", Int, "", "Raw.VirtualStages", "set the number of model chunks per rank; this selects the interleaved schedule").from(1, lists),
	works("pipeline-model-parallel-layout", String, "", "Layout.StageString", "set the layers of each stage, as in Et*3|(tt|)*3mL, where E is the embedding, t a layer, m a layer of --mtp-num-layers, and L the output layer"),
	works("pp-partition-method", String, "", "Layout.PartitionMethod", "use this method of Megatron-DeepSpeed to distribute layers among stages; stages may get different numbers of layers").
		choices(schedule.ByLayersAndEmbeddings, schedule.ByLayers, schedule.Uniform, schedule.ByParameters),
	works("decoder-first-pipeline-num-layers", Int, "", "Layout.FirstStageLayers", "set the number of layers of the first stage; the remaining layers are divided evenly among the middle stages").from(1, lists),
	works("decoder-last-pipeline-num-layers", Int, "", "Layout.LastStageLayers", "set the number of layers of the last stage").from(1, lists),
	works("account-for-embedding-in-pipeline-split", Switch, "", "Layout.EmbeddingCountsAsLayer", "count the embedding as a layer of the first stage"),
	works("account-for-loss-in-pipeline-split", Switch, "", "Layout.LossCountsAsLayer", "count the output layer as a layer of the last stage"),
	works("microbatch-group-size-per-virtual-pipeline-stage", Int, "", "Layout.MicroBatchGroup", "let a chunk process N micro-batches before the next chunk begins (default: --pipeline-model-parallel-size)").from(1, sizes),
	works("no-overlap-p2p-communication", Switch, "", "Layout.NoOverlapP2P", "complete each exchange of the interleaved schedule before the next forward or backward pass"),
	works("pipeline-schedule", String, schedule.OneFOneBName, "Layout.Schedule", "choose the schedule: 1f1b, which is interleaved when a rank has several chunks, or gpipe, which runs all forward passes and then all backward passes").
		choices(schedule.OneFOneBName, schedule.GPipeName),
	refused("model-parallel-size", Int, "use --tensor-model-parallel-size").instead("tensor-model-parallel-size"),
	refused("standalone-embedding-stage", Switch, "use --pipeline-model-parallel-layout, as in E|tt|tt|L, or --pp-partition-method parameters"),
	refused("pipeline-model-parallel-split-rank", Int, "the flag divides encoder and decoder, but GPT has no encoder; leave the flag out"),
)

// otherLayoutFlags tune what is not tuned by hand here, or cut what is not cut.
var otherLayoutFlags = families(Layout,
	allAccepted(overlaps,
		switches("no-tp-comm-bulk-wgrad/disable-tp-comm-bulk-wgrad no-tp-comm-bulk-dgrad/disable-tp-comm-bulk-dgrad "+
			"no-tp-comm-overlap-ag/disable-tp-comm-overlap-ag no-tp-comm-overlap-rs/disable-tp-comm-overlap-rs "+
			"no-tp-comm-split-ag/disable-tp-comm-split-ag no-tp-comm-split-rs/disable-tp-comm-split-rs tp-comm-overlap-rs-dgrad "+
			"overlap-p2p-communication-warmup-flush delay-wgrad-compute use-ring-exchange-p2p"),
		texts("tp-comm-overlap-cfg tp-comm-bootstrap-backend pipeline-model-parallel-comm-backend")),
	allAccepted("the output layer's gradient is computed while its logits are in memory",
		switches("defer-embedding-wgrad-compute"),
		ints("wgrad-deferral-limit")),
	allRefused(noGTP,
		switches("gtp-remat-reduce-scatter-with-fp32-accumulation gtp-remat-nccl-ub gtp-expert-remat-nccl-ub"),
		ints("tensor-parallel-num-weight-shards expert-tensor-parallel-num-weight-shards"),
		several("gtp-remat-opt-in-modules")),
	allRefused(noHybrid,
		switches("hybrid-context-parallel"),
		ints("max-seqlen-per-dp-cp-rank")))
