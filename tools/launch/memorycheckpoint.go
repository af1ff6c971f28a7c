package launch

import (
	"monotron/internal/exitcode"
	"monotron/internal/system"
	"monotron/megatron/checkpoint/memory"
)

// holdMemory makes what the ranks of this host keep memory checkpoints in. This process has the
// files open while it lives, so that what is in them outlives the ranks; the kernel frees it
// when this process and the ranks have ended, however they may.
func (o *options) holdMemory() error {
	if !o.line.ours || o.line.config.Checkpoint.MemoryInterval == 0 {
		return nil
	}
	for local := range o.local {
		o.segments = append(o.segments, nil)
		for range memory.Segments {
			f, err := system.SharedMemory("monotron memory checkpoint")
			if err != nil {
				return exitcode.Errorf(exitcode.IO, "--memory-checkpoint-interval: %w; use --save-interval", err)
			}
			o.segments[local] = append(o.segments[local], f)
		}
	}
	return nil
}

// inMemory is the newest iteration of which a rank of this host has a shard of its own in memory;
// -1: none has.
func (o *options) inMemory() (newest int64) {
	newest = -1
	for _, files := range o.segments {
		for _, f := range files {
			newest = max(newest, memory.Iteration(f))
		}
	}
	return newest
}
