package table

import "monotron/megatron/schedule"

const (
	overlaps = "the executor overlaps what it can"
	noGTP    = "re-gathered tensor-parallel weights (GTP) are not built in; use --data-parallel-sharding-strategy optim_grads_params to save memory"
	noHybrid = "every sequence is cut over the same ranks; use --context-parallel-size"
)

// layoutFlags place the model on ranks.
var layoutFlags = owned(Layout,
	works("world-size", Int, "", "Layout.WorldSize", "ranks, all in this process (several processes: monotron launch)").from(1, lists),
	works("tensor-model-parallel-size", Int, "1", "Layout.TP", "ranks that share each layer").from(1, lists),
	works("pipeline-model-parallel-size", Int, "1", "Layout.PP", "stages of layers").from(1, lists),
	works("context-parallel-size", Int, "1", "Layout.CP", "ranks that share each sequence").from(1, lists),
	works("expert-model-parallel-size", Int, "1", "Layout.EP", "ranks that share the experts").from(1, lists),
	works("expert-tensor-parallel-size", Int, "", "Layout.ETP", "ranks that share one expert (--tensor-model-parallel-size)").from(1, lists),
	works("tp-comm-overlap", Switch, "", "Layout.TPCommOverlap", "products in pieces beside the gathers and scatters of --sequence-parallel; losses to rounding, where a library's product of fewer rows rounds otherwise"),
	works("sequence-parallel", Switch, "", "Layout.SequenceParallel", "norms and dropout on pieces of the sequence; off when the tensor-parallel size is 1"),
	works("cp-comm-type", Strings, "p2p", "Layout.CPCommType", "how context-parallel ranks exchange keys; one, or one per layer").
		choices("p2p", "all_gather", "a2a", "a2a+p2p").same("allgather", "all_gather").
		differs("any text there"),
	works("hierarchical-context-parallel-sizes", Ints, "", "Layout.HierarchicalCP", "sizes of a2a and p2p for a2a+p2p").from(1, lists),
	works("use-tp-pp-dp-mapping", Switch, "", "Layout.OrderTPPPDP", "rank order tp-cp-ep-pp-dp"),
	works("num-layers-per-virtual-pipeline-stage", Int, "", "Raw.LayersPerVirtual", "interleaved schedule: layers per model chunk").from(1, lists),
	works("num-virtual-stages-per-pipeline-rank", Int, "", "Raw.VirtualStages", "interleaved schedule: model chunks per rank").from(1, lists),
	works("pipeline-model-parallel-layout", String, "", "Layout.StageString", "which layers each stage holds, as in Et*3|(tt|)*3m|L"),
	works("pp-partition-method", String, "", "Layout.PartitionMethod", "Megatron-DeepSpeed's way to cut stages: also where layers do not divide evenly").
		choices(schedule.ByLayersAndEmbeddings, schedule.ByLayers, schedule.Uniform, schedule.ByParameters),
	works("decoder-first-pipeline-num-layers", Int, "", "Layout.FirstStageLayers", "layers of the first stage; the middle divides evenly").from(1, lists),
	works("decoder-last-pipeline-num-layers", Int, "", "Layout.LastStageLayers", "layers of the last stage").from(1, lists),
	works("account-for-embedding-in-pipeline-split", Switch, "", "Layout.EmbeddingCountsAsLayer", "the embedding counts as a layer of the first stage"),
	works("account-for-loss-in-pipeline-split", Switch, "", "Layout.LossCountsAsLayer", "the output layer counts as a layer of the last stage"),
	works("microbatch-group-size-per-virtual-pipeline-stage", Int, "", "Layout.MicroBatchGroup", "micro-batches a chunk takes in a row (pipeline size)").from(1, sizes),
	works("no-overlap-p2p-communication", Switch, "", "Layout.NoOverlapP2P", "interleaved schedule: one exchange after a forward and a backward, before what follows"),
	works("pipeline-schedule", String, schedule.OneFOneBName, "Layout.Schedule", "1f1b (interleaved with several chunks), or gpipe: all forwards, then all backwards").
		choices(schedule.OneFOneBName, schedule.GPipeName),
	refused("model-parallel-size", Int, "use --tensor-model-parallel-size").instead("tensor-model-parallel-size"),
	refused("standalone-embedding-stage", Switch, "use --pipeline-model-parallel-layout, as in E|tt|tt|L, or --pp-partition-method parameters"),
	refused("pipeline-model-parallel-split-rank", Int, "it cuts encoder from decoder; GPT has one stack"),
)

// otherLayoutFlags tune what is not tuned by hand here, or cut what is not cut.
var otherLayoutFlags = families(Layout,
	allAccepted(overlaps,
		switches("no-tp-comm-bulk-wgrad/disable-tp-comm-bulk-wgrad no-tp-comm-bulk-dgrad/disable-tp-comm-bulk-dgrad "+
			"no-tp-comm-overlap-ag/disable-tp-comm-overlap-ag no-tp-comm-overlap-rs/disable-tp-comm-overlap-rs "+
			"no-tp-comm-split-ag/disable-tp-comm-split-ag no-tp-comm-split-rs/disable-tp-comm-split-rs tp-comm-overlap-rs-dgrad "+
			"overlap-p2p-communication-warmup-flush delay-wgrad-compute use-ring-exchange-p2p"),
		texts("tp-comm-overlap-cfg tp-comm-bootstrap-backend pipeline-model-parallel-comm-backend")),
	allAccepted("the output layer's gradient is made while its logits exist",
		switches("defer-embedding-wgrad-compute"),
		ints("wgrad-deferral-limit")),
	allRefused(noGTP,
		switches("gtp-remat-reduce-scatter-with-fp32-accumulation gtp-remat-nccl-ub gtp-expert-remat-nccl-ub"),
		ints("tensor-parallel-num-weight-shards expert-tensor-parallel-num-weight-shards"),
		several("gtp-remat-opt-in-modules")),
	allRefused(noHybrid,
		switches("hybrid-context-parallel"),
		ints("max-seqlen-per-dp-cp-rank")))
