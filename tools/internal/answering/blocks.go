package answering

import (
	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/megatron/inference"
	"monotron/megatron/plan"
)

// unlimited is the length that a model without a limit of its own is given blocks for.
const unlimited = 4096

// Batching is how much runs at once on a model of this many positions (0: no limit of its
// own), whose ranks, `sharers` of them, have their blocks from one memory. c says what was asked for;
// cache is the bytes of keys and values on a rank, 0: by the sequences. What is asked for and the memory
// has not is refused: the command would die of it later, under load.
func Batching(c inference.BatcherConfig, cache int64, positions int, blockBytes int64, capacity plan.Capacity, sharers int) (inference.BatcherConfig, error) {
	const most = 1 << 30 // bytes, where nobody said how many
	if positions == 0 {
		positions = unlimited
	}
	one := (positions + device.PagedBlock - 1) / device.PagedBlock
	left := capacity.Bytes / int64(sharers)
	c.Blocks = max(one, min(one*c.Sequences, int(min(most, left)/blockBytes)))
	if cache > 0 {
		c.Blocks = max(1, int(cache/blockBytes))
	}
	takes := int64(c.Blocks) * blockBytes
	if takes <= left {
		return c, nil
	}
	if cache > 0 {
		return c, exitcode.Errorf(exitcode.Usage, "--kv-cache-memory %d: keys and values of %d ranks need %s, but %s is %s; use at most --kv-cache-memory %d",
			cache>>20, sharers, device.Size(takes*int64(sharers)), device.Size(capacity.Bytes), capacity.Of, left>>20)
	}
	return c, exitcode.Errorf(exitcode.Usage, "keys and values of one sequence of %d positions on %d ranks need %s, but %s is %s; use at most --kv-cache-memory %d, which limits the length of sequences",
		positions, sharers, device.Size(takes*int64(sharers)), device.Size(capacity.Bytes), capacity.Of, left>>20)
}

// CapacityOf is the memory that blocks on d come from, and how many ranks share it: a GPU's is the
// rank's own, the host's is that of all ranks `here`.
func CapacityOf(d *device.Device, here int) (capacity plan.Capacity, sharers int) {
	if streams := d.Streams(); !d.OnHost() && streams != nil {
		if free, err := streams.FreeMemory(); err == nil {
			return plan.Capacity{Bytes: free, Of: "free on the GPU"}, 1
		}
		return plan.Unlimited, 1
	}
	return plan.HostCapacity(), here
}
