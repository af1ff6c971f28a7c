package config

import (
	"slices"

	"monotron/mpu"
	"monotron/mpu/topology"
)

// Layout distributes the model over ranks. Rank order is tp-cp-ep-dp-pp.
type Layout struct {
	WorldSize      int
	TP, PP, CP, EP int
	VP             int // model chunks per pipeline rank; 1: not interleaved
	ETP            int // tensor parallelism of experts
	DP             int // WorldSize / (TP*PP*CP)

	SequenceParallel  bool
	TPCommOverlap     bool     // products are made in pieces during the gathers and scatters of sequence parallelism
	CPCommType        []string // of mpu.ContextKind; one, or one per layer; none: p2p
	HierarchicalCP    []int    // of a2a+p2p: neighbours that exchange heads, and groups of these that exchange keys
	ZigZagPerDocument bool     // documents that do not see each other are cut one by one, not with their sequence
	OrderTPPPDP       bool     // --use-tp-pp-dp-mapping

	FirstStageLayers, LastStageLayers int // 0: even split
	EmbeddingCountsAsLayer            bool
	LossCountsAsLayer                 bool
	StageString                       string // --pipeline-model-parallel-layout; "": none
	PartitionMethod                   string // --pp-partition-method; "": none
	MicroBatchGroup                   int    // micro-batches per group of an interleaved schedule
	Schedule                          string // schedule.OneFOneBName, schedule.GPipeName
	NoOverlapP2P                      bool   // exchanges of an interleaved schedule end before what follows

	Backend              string // nccl, gloo
	NCCLRequested        bool   // the command line asks for nccl; it is the default too
	Deterministic        bool   // NCCL sums in one way whatever network it finds
	TimeoutMinutes       int
	FastReduce           bool // Gloo's own sums between processes
	DistributedOptimizer bool
	Sharding             string // what data-parallel ranks share: "", optim, optim_grads, optim_grads_params (ZeRO 0 to 3)
	// Under ZeRO-3, stretches of rows and columns of a linear layer's weight that come and go by themselves;
	// 0: complete layers do.
	MemoryCentricTiling       int
	OptimizerInstances        int // copies of the sharded state
	OverlapGradReduce         bool
	OverlapParamGather        bool
	BucketSize, BucketCount   int // parameters a bucket, buckets; 0: the rule
	PadBucketsForHighBusBW    bool
	DistributeSavedActivation bool // saved inputs of recomputed layers are cut over tp
}

// Values of Layout.CPCommType that ask something of heads.
const (
	ExchangeHeads   = string(mpu.ExchangeHeads)
	HeadsInsideRing = string(mpu.HeadsInsideRing)
)

// ContextHeads is how many neighbours exchange heads under a2a+p2p.
func (l Layout) ContextHeads() int {
	if len(l.HierarchicalCP) == 0 {
		return 1
	}
	return l.HierarchicalCP[0]
}

// UncutSequences reports whether every call of attention has all positions of a sequence.
func (l Layout) UncutSequences() bool {
	other := func(kind string) bool { return kind != ExchangeHeads }
	return l.CP <= 1 || len(l.CPCommType) > 0 && !slices.ContainsFunc(l.CPCommType, other)
}

// Sizes are the layout's, a size that is not set counting as 1.
func (l Layout) Sizes() topology.Sizes {
	return topology.Sizes{TP: max(1, l.TP), CP: max(1, l.CP), DP: max(1, l.DP), PP: max(1, l.PP), EP: max(1, l.EP), ETP: l.ETP, PPBeforeDP: l.OrderTPPPDP,
		Instances: l.OptimizerInstances}
}
