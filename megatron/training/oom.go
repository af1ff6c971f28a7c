package training

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"monotron/csrc/device"
	"monotron/fault"
	"monotron/megatron/engine"
)

// saving is a flag and the bytes that it would save on the rank that ran out.
type saving struct {
	flag  string
	bytes int64
}

// Exhausted makes a rank's lack of memory an error: what was asked, what holds
// most, and which flags would save how much of what was held then.
func (c *Config) Exhausted(e *device.OutOfMemory) error {
	savings := c.savings(e)
	if len(savings) == 0 {
		return fault.Errorf(fault.Internal, "%w. The model is too large for this device: lower --num-layers or --hidden-size, or look for a slip in the sizes", e)
	}
	var lines []string
	for _, s := range savings[:min(4, len(savings))] {
		lines = append(lines, fmt.Sprintf("%s saves %s", s.flag, device.Size(s.bytes)))
	}
	return fault.Errorf(fault.Internal, "%w. Of what is held and was asked, %s", e, strings.Join(lines, "; "))
}

// savings are the flags that are not in use yet, the best first. Activations grow
// with the micro-batch; what is sharded over n ranks shrinks to one n-th.
func (c *Config) savings(e *device.OutOfMemory) []saving {
	held := e.Held
	held[e.Purpose] += e.Bytes
	var all []saving
	add := func(bytes int64, format string, a ...any) {
		if bytes > 0 {
			all = append(all, saving{fmt.Sprintf(format, a...), bytes})
		}
	}
	add(e.Graphs, "--cuda-graph-impl none")
	add(e.Fused, "--attention-backend flash")
	l, activations := c.Layout.Sizes(), held[device.Activations]
	if b := c.MicroBatchSize; b > 1 {
		add(activations*int64(b-b/2)/int64(b), "--micro-batch-size %d", b/2)
	}
	if c.Recompute.Granularity != "full" {
		add(activations-c.savedInputs(), "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1")
	}
	if l.TP > 1 && !c.Layout.SequenceParallel {
		add(activations/2, "--sequence-parallel (about)")
	}
	if c.Precision == engine.F32 {
		add(activations/2, "--bf16")
	}
	others := func(bytes int64) int64 { return bytes * int64(l.DP-1) / int64(l.DP) }
	if !c.Layout.DistributedOptimizer {
		add(others(held[device.Optimizer]), "--use-distributed-optimizer")
	}
	if c.Layout.Sharding != "optim_grads_params" {
		add(others(held[device.Parameters]+held[device.MainGradients]), "--use-distributed-optimizer --data-parallel-sharding-strategy optim_grads_params")
	}
	if n := 2 * l.TP; c.Model.NumAttentionHeads%n == 0 && c.Model.FFNHiddenSize%n == 0 {
		add((held[device.Parameters]+held[device.MainGradients]+held[device.Optimizer])/2, "--tensor-model-parallel-size %d on twice the ranks", n)
	}
	slices.SortStableFunc(all, func(x, y saving) int { return cmp.Compare(y.bytes, x.bytes) })
	return all
}

// savedInputs are the bytes that full recompute keeps: the input of each layer.
func (c *Config) savedInputs() int64 {
	size := int64(2)
	if c.Precision == engine.F32 {
		size = 4
	}
	layers := int64(c.Model.NumLayers / max(1, c.Layout.PP))
	return layers * int64(c.MicroBatchSize) * int64(c.SeqLength) * int64(c.Model.HiddenSize) * size
}
