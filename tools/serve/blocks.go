package serve

import (
	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/megatron/inference"
	"monotron/megatron/plan"
)

// batching is how much runs at once on a model of this many positions (0: no limit of its
// own), whose ranks, `sharers` of them, have their blocks from one room. What the flag asks
// for and the room has not is refused: the server would die of it later, under load.
func (s *server) batching(positions int, blockBytes int64, room plan.Room, sharers int) (c inference.BatcherConfig, err error) {
	const most = 1 << 30 // bytes, where nobody said how many
	c = inference.BatcherConfig{Sequences: s.sequence, Tokens: s.rows, Queue: s.queue}
	if positions == 0 {
		positions = 4096
	}
	one := (positions + device.PagedBlock - 1) / device.PagedBlock
	left := room.Bytes / int64(sharers)
	c.Blocks = max(one, min(one*s.sequence, int(min(most, left)/blockBytes)))
	if s.cache > 0 {
		c.Blocks = max(1, int(s.cache/blockBytes))
	}
	takes := int64(c.Blocks) * blockBytes
	if takes <= left {
		return c, nil
	}
	if s.cache > 0 {
		return c, exitcode.Errorf(exitcode.Usage, "--kv-cache-memory %d: keys and values of %d ranks need %s, but %s is %s; use --kv-cache-memory %d at most",
			s.cache>>20, sharers, device.Size(takes*int64(sharers)), device.Size(room.Bytes), room.Of, left>>20)
	}
	return c, exitcode.Errorf(exitcode.Usage, "keys and values of one sequence of %d positions on %d ranks need %s, but %s is %s; give --kv-cache-memory for shorter sequences",
		positions, sharers, device.Size(takes*int64(sharers)), device.Size(room.Bytes), room.Of)
}

// roomOf is the memory that blocks on d come from, and how many ranks share it: a GPU's is the
// rank's own, the host's is that of all ranks `here`.
func roomOf(d *device.Device, here int) (room plan.Room, sharers int) {
	if streams := d.Streams(); !d.OnHost() && streams != nil {
		if free, err := streams.FreeMemory(); err == nil {
			return plan.Room{Bytes: free, Of: "free on the GPU"}, 1
		}
		return plan.Unlimited, 1
	}
	return plan.HostRoom(), here
}
