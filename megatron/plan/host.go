package plan

import (
	"fmt"
	"slices"
	"strings"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/megatron/config"
	"monotron/megatron/optimizer"
)

// Overfull is a run that puts more into the host's memory than there is (--optimizer-cpu-offload,
// --memory-checkpoint-interval).
type Overfull struct {
	What     string // the flags that ask for it
	Ranks    int    // of the host
	Bytes    int64  // that these put there
	Capacity Capacity
	Nearest  []string // what would fit, by the count
}

func (u *Overfull) Error() string {
	whose := "the rank on this host needs"
	if u.Ranks > 1 {
		whose = fmt.Sprintf("the %d ranks on this host need", u.Ranks)
	}
	text := fmt.Sprintf("the run does not fit into memory: %s %s of host memory (%s), but only %s are available", whose, device.Size(u.Bytes), u.What, u.Capacity)
	if len(u.Nearest) > 0 {
		text += ". The following would fit: " + strings.Join(u.Nearest, "; or ")
	} else {
		text += ". Smaller parts do not fit either, together with the tensors on the GPU: use more machines, or a smaller model"
	}
	return text + " (--no-plan starts the run anyway)"
}

// inHost is what ranks keep in the host's memory in addition to their GPUs'.
func inHost(c *config.Run, ranks []Rank) (bytes int64) {
	bytes = copies(ranks)
	if !c.OptimizerCPUOffload {
		return bytes
	}
	for _, r := range ranks {
		bytes += r.Stored
	}
	return bytes
}

// OnGPU reports whether ranks fit the GPU that they share, or one of their own each.
func OnGPU(shared bool, capacity Capacity) func([]Rank) bool {
	return func(ranks []Rank) bool {
		if shared {
			return peaks(ranks) <= capacity.Bytes
		}
		return !slices.ContainsFunc(ranks, func(r Rank) bool { return r.Peak > capacity.Bytes })
	}
}

// CheckHost compares what the ranks of a host put into its memory, next to their GPUs, with the memory
// there: Overfull, with the changes that would do. here reports whether ranks fit their GPUs.
func (o Options) CheckHost(c config.Run, numbers []int, capacity Capacity, here func([]Rank) bool) error {
	// Only these put tensors into the host's memory.
	var flags []string
	if c.OptimizerCPUOffload {
		flags = append(flags, "--optimizer-cpu-offload")
	}
	if c.Checkpoint.MemoryInterval > 0 {
		flags = append(flags, "--memory-checkpoint-interval")
	}
	if flags == nil {
		return nil
	}
	plan, err := o.Ranks(c, numbers)
	if err != nil {
		return err
	}
	bytes := inHost(&c, plan)
	if bytes <= capacity.Bytes {
		return nil
	}
	// It does not fit: dry runs of smaller configurations find the changes that would.
	u := &Overfull{What: strings.Join(flags, ", "), Ranks: len(numbers), Bytes: bytes, Capacity: capacity}
	try := func(flags string, change func(*config.Run)) bool {
		smaller := c
		change(&smaller)
		plan, err := o.Ranks(smaller, numbers)
		fits := err == nil && inHost(&smaller, plan) <= capacity.Bytes && here(plan)
		if fits {
			u.Nearest = append(u.Nearest, flags)
		}
		return fits
	}
	o.tryHost(&c, float64(capacity.Bytes)/float64(bytes), try)
	return exitcode.With(exitcode.Internal, u)
}

// tryHost tries what could make a run fit a host that has a share of the memory.
func (o Options) tryHost(c *config.Run, share float64, try func(string, func(*config.Run)) bool) {
	if c.Checkpoint.ReplicationJump > 0 {
		try("--replication-jump 0", func(c *config.Run) { c.Checkpoint.ReplicationJump = 0 })
	}
	if c.Checkpoint.MemoryInterval > 0 {
		try("no --memory-checkpoint-interval", func(c *config.Run) { c.Checkpoint.MemoryInterval = 0 })
	}
	if !c.OptimizerCPUOffload {
		return
	}
	most := int(20 * c.OptimizerOffloadFraction * share)
	for k := most; k > max(0, most-3); k-- { // complete parameters go: it may be one too many
		f := float64(k) / 20
		if try(fmt.Sprintf("--optimizer-offload-fraction %g", f), func(c *config.Run) { c.OptimizerOffloadFraction = f }) {
			break
		}
	}
	if c.Layout.Sizes().DP > 1 && !c.Layout.DistributedOptimizer {
		try("--use-distributed-optimizer", func(c *config.Run) {
			c.Layout.DistributedOptimizer, c.Layout.Sharding = true, string(optimizer.Optim)
		})
	}
	if !c.Checkpoint.Async {
		try("--offload-folder DIR instead of --optimizer-cpu-offload", func(c *config.Run) { c.OptimizerCPUOffload, c.OffloadFolder = false, "DIR" })
	}
}

// HostHas reports whether every node's host has enough memory for what its ranks keep there in addition to
// their devices; if the machine file does not say how much that is, it has.
func (m *Machine) HostHas(c *config.Run, ranks []Rank) bool {
	for node := range slices.Chunk(ranks, m.PerNode) {
		if m.Host > 0 && inHost(c, node) > int64(m.Host) {
			return false
		}
	}
	return true
}
