package engine

import (
	"slices"
	"time"

	"monotron/csrc/device"
	"monotron/megatron/config"
	"monotron/megatron/model"
	"monotron/megatron/optimizer"
	"monotron/megatron/spec"
	"monotron/mpu"
	"monotron/mpu/ranks"
	"monotron/mpu/topology"
)

// groupKinds are the groups that a step works with.
var groupKinds = []topology.Kind{topology.TP, topology.PP, topology.DP, topology.Model, topology.Embedding, topology.QuerySharers, topology.Shard, topology.Across}

// contextKinds are those that ranks which share sequences need in addition.
var contextKinds = []topology.Kind{topology.CP, topology.DPCP}

// DataKind is the group that sums gradients of dense layers.
func DataKind(s topology.Sizes) topology.Kind {
	if s.CP > 1 {
		return topology.DPCP
	}
	return topology.DP
}

// Ranks are those that train the model, on devices that open makes.
func Ranks(c *config.Step, open func() (*device.Device, error)) ranks.Config {
	l := &c.Layout
	sizes := l.Sizes()
	sizes.QueryGroups = c.Model.NumQueryGroups
	kinds := groupKinds
	if sizes.CP > 1 {
		kinds = slices.Concat(kinds, contextKinds)
	}
	if c.Model.Experts == nil && config.FP8Recipes[c.FP8.Recipe] == mpu.FP8Delayed {
		kinds = append(slices.Clone(kinds), topology.TPDPCP)
	}
	if c.Model.Experts != nil {
		kinds = slices.Concat(kinds, mixtureKinds)
		if c.Optimizer.Matrices() || len(c.Model.Adapters) > 0 {
			kinds = slices.Concat(kinds, []topology.Kind{topology.ExpertTP})
		}
	}
	return ranks.Config{Sizes: sizes, Kinds: kinds, Open: open, Timeout: time.Duration(l.TimeoutMinutes) * time.Minute, NCCL: l.Backend != "gloo",
		Pinned: l.Deterministic}
}

// parallelOf is how a rank's stages share layers with other ranks.
func parallelOf(r *ranks.Rank, c *config.Step) model.Parallel {
	l := &c.Layout
	p := model.Parallel{TP: r.Groups[topology.TP], ByRow: c.AsGenerated, SequenceParallel: l.SequenceParallel, Overlap: l.TPCommOverlap, Tiles: l.MemoryCentricTiling, Leaves: c.Leaves, DistributeSaved: l.DistributeSavedActivation,
		Embedding: r.Groups[topology.Embedding], QuerySharers: r.Groups[topology.QuerySharers]}
	if c.FP8.Format != "" {
		p.FP8, p.KeepsOperands = fp8Of(r, &c.FP8), func(layer int) bool { return c.FP8.Keeps(layer, c.Model.NumLayers) }
	}
	if r.Sizes.CP > 1 {
		p.Context, p.ContextHeads = r.Groups[topology.CP], l.ContextHeads()
		for _, kind := range l.CPCommType {
			p.ContextKinds = append(p.ContextKinds, mpu.ContextKind(kind))
		}
	}
	if e := c.Model.Experts; e != nil {
		p.Experts, p.ExpertParts, p.AllGather = r.Groups[topology.TPEP], r.Sizes.ExpertTP(), e.Dispatcher == spec.AllGatherDispatcher
		p.Tokens, p.AllTokens, p.ExpertSharers = r.Groups[topology.TPCP], r.Groups[topology.TPDPCP], r.Groups[topology.ExpertTP]
	}
	return p
}

// fp8Of is how a stage rounds the operands of its linear layers.
func fp8Of(r *ranks.Rank, c *config.FP8) *mpu.FP8 {
	f := &mpu.FP8{Recipe: config.FP8Recipes[c.Recipe]}
	if c.Format == config.FP8Hybrid {
		f.Gradients = device.E5M2
	}
	if r.Sizes.CP > 1 {
		f.Tokens = r.Groups[topology.CP]
	}
	if f.Recipe == mpu.FP8Delayed {
		f.Delayed = &mpu.Delayed{Length: c.Delayed.Length, Largest: c.Delayed.Algo == config.AmaxLargest, Margin: c.Delayed.Margin, WeightGradients: !c.Delayed.NoWGrad}
	}
	return f
}

// sharersOf are the ranks that the optimizer works with.
func sharersOf(r *ranks.Rank, c *config.Step) optimizer.Groups {
	families := map[mpu.Family]optimizer.Family{
		mpu.Dense: {Data: r.Groups[DataKind(r.Sizes)], Model: r.Groups[topology.Model], Shard: r.Groups[topology.Shard], Across: r.Groups[topology.Across],
			Cut: r.Groups[topology.TP]}}
	if c.Model.Experts != nil {
		families[mpu.Experts] = optimizer.Family{Data: r.Groups[topology.ExpertDP], Cut: r.Groups[topology.ExpertTP]}
	}
	return optimizer.Groups{World: r.World(), Families: families}
}

// shardingOf is how data-parallel ranks share the optimizer's work and memory.
func shardingOf(r *ranks.Rank, l *config.Layout) optimizer.Sharding {
	s := optimizer.Sharding{OverlapGradReduce: l.OverlapGradReduce, OverlapParamGather: l.OverlapParamGather, BucketSize: int64(l.BucketSize),
		BucketCount: int64(l.BucketCount), PadForBandwidth: l.PadBucketsForHighBusBW, LaterStage: r.Coordinates.PP > 0}
	s.Strategy = optimizer.Strategy(l.Sharding)
	if s.Strategy == "" && l.DistributedOptimizer {
		s.Strategy = optimizer.Optim
	}
	return s
}
