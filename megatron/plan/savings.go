package plan

import (
	"cmp"
	"fmt"
	"slices"

	"monotron/csrc/device"
	"monotron/megatron/config"
	"monotron/megatron/model"
	"monotron/megatron/optimizer"
)

// Change is a flag that makes a run smaller.
type Change struct {
	Flags string
	about subject
	make  func(*config.Run)
	more  bool // it takes more ranks
	order int  // in which people try changes: what costs the least first
}

// subject is what changes of a run are about: of those of one subject a run takes one.
type subject int

const (
	alone     subject = iota // no other change is about the same
	sharded                  // how data-parallel ranks share parameters, gradients and the optimizer's state
	offloaded                // where outside the device the optimizer's state is kept, and what else is
)

// Saving is what a flag takes off a rank's peak.
type Saving struct {
	Change
	Bytes int64
}

// Savings are the flags, not in use yet, that would lower the peak of a rank which has
// `peak` bytes, the best first. Each is counted as the run itself was.
func (o Options) Savings(c config.Run, rank int, peak int64) (all []Saving) {
	for _, change := range o.changes(&c) {
		smaller := c
		change.make(&smaller)
		r, err := o.Of(smaller, rank)
		if err == nil && r.Peak < peak {
			all = append(all, Saving{change, peak - r.Peak})
		}
	}
	slices.SortStableFunc(all, func(x, y Saving) int { return cmp.Compare(y.Bytes, x.Bytes) })
	return all
}

// InOrder is savings in the order in which people try them: what costs the least first.
func InOrder(all []Saving) []Saving {
	return slices.SortedStableFunc(slices.Values(all), func(x, y Saving) int { return cmp.Compare(x.order, y.order) })
}

// String says it as errors and plans do.
func (s Saving) String() string { return fmt.Sprintf("%s saves %s", s.Flags, device.Size(s.Bytes)) }

// changes are the flags that could make c smaller.
func (o Options) changes(c *config.Run) (all []Change) {
	l := c.Layout.Sizes()
	add := func(about subject, wanted bool, flags string, make func(*config.Run)) {
		if wanted {
			all = append(all, Change{Flags: flags, about: about, make: make})
		}
	}
	add(alone, c.MicroBatchSize > 1 && c.MicroBatchSize%2 == 0, fmt.Sprintf("--micro-batch-size %d", c.MicroBatchSize/2), func(c *config.Run) { c.MicroBatchSize /= 2 })
	add(alone, c.Precision == config.F32, "--bf16", func(c *config.Run) { c.Precision = config.BF16 })
	add(alone, l.TP > 1 && !c.Layout.SequenceParallel && c.SeqLength%l.TP == 0, "--sequence-parallel", func(c *config.Run) { c.Layout.SequenceParallel, c.Layout.DistributeSavedActivation = true, false })
	add(alone, c.Recompute.Granularity != "full", "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1", func(c *config.Run) {
		c.Recompute = model.Recompute{Granularity: "full", Method: "uniform", NumLayers: 1}
	})
	sharding := func(to optimizer.Strategy) func(*config.Run) {
		return func(c *config.Run) { c.Layout.DistributedOptimizer, c.Layout.Sharding = true, string(to) }
	}
	add(sharded, l.DP > 1 && !c.Layout.DistributedOptimizer, "--use-distributed-optimizer", sharding(optimizer.Optim))
	add(sharded, l.DP > 1 && c.Layout.Sharding != string(optimizer.OptimGradsParams), "--use-distributed-optimizer --data-parallel-sharding-strategy optim_grads_params", sharding(optimizer.OptimGradsParams))
	n := 2 * l.TP
	if c.Model.NumAttentionHeads%n == 0 && c.Model.FFNHiddenSize%n == 0 && c.Model.Experts == nil {
		all = append(all, Change{Flags: fmt.Sprintf("--tensor-model-parallel-size %d on twice the ranks", n), more: true, make: func(c *config.Run) {
			c.Layout.TP, c.Layout.WorldSize = n, 2*l.World()
			_ = c.SetVocab(c.Model.VocabSize) // a size that is refused saves nothing: the count says so
		}})
	}
	pieces := c.Optimizer.Indivisible() == ""                         // the update takes them
	folder := pieces && !c.Checkpoint.Async && !c.OptimizerCPUOffload // can be
	files := func(c *config.Run) { c.OffloadFolder = "DIR" }
	parameters := func(c *config.Run) {
		files(c)
		c.Layout.DistributedOptimizer, c.Layout.Sharding = true, string(optimizer.OptimGradsParams)
	}
	tiles := func(c *config.Run) {
		parameters(c)
		c.Layout.MemoryCentricTiling = 8
	}
	add(offloaded, pieces && o.Device == "cuda" && !c.OptimizerCPUOffload && c.OffloadFolder == "", "--optimizer-cpu-offload", func(c *config.Run) { c.OptimizerCPUOffload, c.OptimizerOffloadFraction = true, 1 })
	add(offloaded, folder && c.OffloadFolder == "", "--offload-folder DIR", files)
	add(offloaded, folder && (c.OffloadFolder == "" || c.Layout.Sharding != string(optimizer.OptimGradsParams)), "--offload-folder DIR --zero-stage 3", parameters)
	tiled := folder && c.Layout.MemoryCentricTiling == 0 && !c.Layout.TPCommOverlap && c.Layout.OptimizerInstances <= 1 && c.FP8.Format == "" // can be
	add(offloaded, tiled, "--offload-folder DIR --zero-stage 3 --memory-centric-tiling 8", tiles)
	add(alone, c.Graphs, "--cuda-graph-impl none", func(c *config.Run) { c.Graphs = false })
	for i := range all {
		all[i].order = i
	}
	return all
}
