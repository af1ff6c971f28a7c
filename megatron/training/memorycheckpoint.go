package training

import (
	"fmt"
	"math"

	"github.com/zeebo/xxh3"

	"monotron/internal/exitcode"
	"monotron/internal/logging"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/memory"
	"monotron/megatron/checkpoint/native"
	"monotron/megatron/config"
	"monotron/mpu"
	"monotron/mpu/health"
)

// openMemory makes the rank's store of memory checkpoints (--memory-checkpoint-interval), where
// somebody holds memory for them. A dry run takes what they take.
func (r *Run) openMemory() (err error) {
	c := &r.Config.Checkpoint
	if c.MemoryInterval == 0 || r.Segments == nil && !r.device.Counts() {
		return nil
	}
	r.memory, err = memory.New(r.device, r.rank.World(), c.ReplicationJump, r.complete(), r.Segments)
	if err == nil && c.ReplicationJump == 0 && r.Hosts {
		r.log.note("memory checkpoints have no copies on other hosts, so that none survives the loss of a host: give --replication-jump, usually the number of ranks of a host")
	}
	return err
}

// checkJump refuses copies of shards on the ranks that have them. A run that continues with fewer
// ranks than it began with has none then.
func checkJump(c *config.Run, notes *logging.Notes) error {
	jump, world := &c.Checkpoint.ReplicationJump, c.Layout.Sizes().World()
	switch {
	case c.Checkpoint.MemoryInterval == 0 || *jump < world:
		return nil
	case c.Watch.FewerRanks:
		notes.From("checkpoint").Info("--replication-jump %d has no effect on the %d ranks that are left", *jump, world)
		*jump = 0
		return nil
	}
	return exitcode.Errorf(exitcode.Usage, "--replication-jump must be from 1 to %d, usually the number of ranks of a host, or 0 for no copies, not %d: the run has %d ranks", max(1, world-1), *jump, world)
}

// complete lists all that a rank must have to continue: also what --no-save-optim leaves out of
// files.
func (r *Run) complete() []mpu.Stored {
	return append(r.Engine.Weights(), r.Engine.Optimizer.Stored()...)
}

// restoreMemory continues from the newest complete memory checkpoint; done is false where there is
// none, or where --save has a newer one. It says which, and why. All ranks come to the same.
func (r *Run) restoreMemory() (done bool, err error) {
	if r.memory == nil || r.device.Counts() {
		return false, nil
	}
	// Memory or disk.
	found, lacks, err := r.memory.Find()
	if err != nil {
		return false, err
	}
	if found == nil {
		if r.Restarts > 0 {
			r.tellNoMemory(lacks)
		}
		return false, nil
	}
	disk, err := r.agree(r.newestOnDisk())
	if err != nil {
		return false, err
	}
	if disk > found.Iteration {
		r.log.note("the checkpoint of iteration %d in %s is newer than that of iteration %d in memory", disk, r.Config.Checkpoint.Save, found.Iteration)
		return false, nil
	}
	// From memory.
	if err := r.loadAll(func([]mpu.Stored, native.LoadOptions) (native.State, native.Report, error) {
		state, err := r.memory.Load(found, r.complete())
		return state, native.Report{Folder: "the memory checkpoint", Iteration: found.Iteration, Restored: restored(r.complete())}, err
	}); err != nil {
		return false, err
	}
	r.saver.saved = -1 // it is not on disk
	if len(found.Lost) > 0 {
		r.log.note("the shards of ranks %v came from the copies on the hosts of the ranks %d after them", found.Lost, r.Config.Checkpoint.ReplicationJump)
	}
	if found.Thin { // the next loss must not meet a single copy
		return true, r.saveMemory()
	}
	return true, nil
}

func restored(tensors []mpu.Stored) (names []string) {
	for _, t := range tensors {
		names = append(names, t.Name)
	}
	return names
}

// tellNoMemory says why a restart does not continue from memory.
func (r *Run) tellNoMemory(lacks string) {
	if lacks == "" {
		lacks = "none was saved by this layout before the restart"
	}
	r.log.note("no complete memory checkpoint: %s; starting from disk", lacks)
}

// newestOnDisk is the iteration that a start from this run's own folder would continue; -1: it
// would not, or there is none.
func (r *Run) newestOnDisk() int64 {
	c := &r.Config.Checkpoint
	if c.Save == "" || c.Load != c.Save {
		return -1
	}
	newest, err := checkpoint.ReadTracker(c.Save)
	if err != nil || newest.Release {
		return -1
	}
	return newest.Iteration
}

// saveMemory keeps the state after the last step in memory.
func (r *Run) saveMemory() error {
	r.rank.Enter(health.Save, r.Engine.Iteration)
	state, err := r.state()
	if err != nil {
		return err
	}
	if err := r.memory.Save(state, r.complete(), r.memoryTag()); err != nil {
		return fmt.Errorf("keeping iteration %d in memory: %w", r.Engine.Iteration, err)
	}
	r.log.info("checkpoint", "kept iteration %d in memory", r.Engine.Iteration)
	return nil
}

// memoryTag distinguishes the saves of this start of the run from those of others.
func (r *Run) memoryTag() uint64 {
	return xxh3.HashString(fmt.Sprint(r.rank.RunName, " ", r.Restarts)) & math.MaxInt64
}

// memorySaves saves into memory after the steps for which that was asked.
func (r *Run) memorySaves() error {
	if r.memory == nil || !due(r.Engine.Iteration, r.Config.Checkpoint.MemoryInterval) {
		return nil
	}
	return r.saveMemory()
}
