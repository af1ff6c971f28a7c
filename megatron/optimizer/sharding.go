package optimizer

import (
	"monotron/csrc/device"
	"monotron/mpu"
)

// Strategy is what data-parallel ranks hold once instead of each
// (--data-parallel-sharding-strategy; ZeRO, Rajbhandari et al., arXiv 1910.02054).
type Strategy string

const (
	NoShard          Strategy = "no_shard"           // every rank holds everything
	Optim            Strategy = "optim"              // ZeRO-1: moments and main parameters sharded (--use-distributed-optimizer)
	OptimGrads       Strategy = "optim_grads"        // ZeRO-2: gradients too
	OptimGradsParams Strategy = "optim_grads_params" // ZeRO-3: parameters too
)

// Strategies lists them, least sharded first.
func Strategies() []Strategy { return []Strategy{NoShard, Optim, OptimGrads, OptimGradsParams} }

// Sharding says how data-parallel ranks share the optimizer's work and memory.
type Sharding struct {
	Strategy          Strategy // "": NoShard
	OverlapGradReduce bool     // a bucket is reduced as soon as its gradients are complete
	// Updated parameters are waited for where the next forward uses them; ZeRO-3: they travel while what
	// comes before them computes.
	OverlapParamGather bool
	BucketSize         int64 // parameters of a bucket at least (--ddp-bucket-size); 0: by BucketCount, or the rule
	BucketCount        int64 // buckets (--ddp-num-buckets); 0: the rule
	PadForBandwidth    bool  // bucket ends at multiples of 65536 (--ddp-pad-buckets-for-high-nccl-busbw)
	Offloaded          Offloaded
	align              int64 // elements, of every parameter and shard; 0: alignment
	LaterStage         bool  // not the first of a pipeline: by the rule one bucket, since nothing hides its reduction
}

// Offloaded says what is offloaded: kept outside of the device's memory.
type Offloaded struct {
	Store func(purpose string, bytes int64) (device.Store, error) // makes the memory or file for n bytes; nil: nothing is offloaded
	// Packed, where given, says which frozen parameters are offloaded, and then nothing else is. A device whose memory
	// is the host's reads stretches of them for products where these take them so (mpu.Param.Unpack).
	Packed     func(*mpu.Param) bool
	Parameters bool // values too: they come where they are used, as under ZeRO-3
	// With Parameters: they come where something is added to them, with one state for all of the data group.
	Gradients bool
	Fraction  float64 // of the rank's trained elements, with neither of these two; 0: all
	Piece     int64   // elements that an update brings here at a time; 0: a million
}

func (s Sharding) alignment() int64 { return max(alignment, s.align) }

// Megatron's rule: buckets as large as this, or as the second times the ranks.
const (
	bucketRule        = 40_000_000
	bucketRulePerRank = 1_000_000
)

// limit is how many parameters close a bucket; 0: one bucket. Under ZeRO-2 and 3 a bucket
// is a layer instead (layout).
func (s Sharding) limit(params int64, ranks int) int64 {
	switch {
	case s.BucketSize > 0:
		return s.BucketSize
	case s.BucketCount > 0:
		return max(1, params/s.BucketCount)
	case s.OverlapGradReduce && !s.LaterStage:
		return max(bucketRule, bucketRulePerRank*int64(ranks))
	}
	return 0
}

func (s Sharding) shardsGradients() bool {
	return s.Strategy == OptimGrads || s.Strategy == OptimGradsParams
}
func (s Sharding) shardsParameters() bool { return s.Strategy == OptimGradsParams }

// bringsGradients reports whether gradients are complete only while something is added to them.
func (s Sharding) bringsGradients() bool { return s.shardsGradients() || s.Offloaded.Gradients }

// transient reports whether values are complete only while somebody uses them: between the uses
// there are the rank's shards, or offloaded values.
func (s Sharding) transient() bool { return s.shardsParameters() || s.Offloaded.Parameters }
