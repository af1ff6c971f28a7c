package training

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

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
		r.log.note("memory checkpoints have no copies on other hosts, so the loss of a host would destroy them; give --replication-jump, usually the number of ranks of a host")
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
		notes.From("checkpoint").Info("--replication-jump %d has no effect with the %d ranks that are left", *jump, world)
		*jump = 0
		return nil
	}
	return exitcode.Errorf(exitcode.Usage, "--replication-jump %[2]d is out of range: in a run of %[3]d ranks it must be from 1 to %[1]d (usually the number of ranks of a host), or 0 for no copies", max(1, world-1), *jump, world)
}

// complete lists all that a rank must have to continue: also what --no-save-optim leaves out of
// files, but not the base of an adapter, which training does not change.
func (r *Run) complete() []mpu.Stored {
	if r.leavesBase() {
		return append(r.Engine.Trained(), r.Engine.Optimizer.Stored()...)
	}
	return slices.Concat(r.Engine.Weights(), r.Engine.Scales(), r.Engine.Optimizer.Stored())
}

// leavesBase reports whether memory checkpoints leave the weights out that are not trained: those
// are read again from where the run began.
func (r *Run) leavesBase() bool { return len(r.Config.Model.Adapters) > 0 }

// findMemory finds the newest complete memory checkpoint. There may be none, or --save has a
// newer one: it says which, and why. All ranks come to the same.
func (r *Run) findMemory() error {
	if r.memory == nil || r.device.Counts() {
		return nil
	}
	found, lacks, err := r.memory.Find()
	if err != nil {
		return err
	}
	if found == nil {
		if r.Restarts > 0 {
			r.tellNoMemory(lacks)
		}
		return nil
	}
	disk, err := r.agree(r.newestOnDisk())
	if err != nil {
		return err
	}
	if disk > found.Iteration {
		r.log.note("the checkpoint of iteration %d in %s is newer than that of iteration %d in memory", disk, r.Config.Checkpoint.Save, found.Iteration)
		return nil
	}
	r.found = found
	return nil
}

// restoreMemory continues from the memory checkpoint that findMemory has found.
func (r *Run) restoreMemory() error {
	// What is not in it.
	if r.leavesBase() {
		if err := r.restoreStored(); err != nil {
			return err
		}
	}
	if r.sampler != nil {
		r.sampler.answers = nil // a checkpoint on disk may have older ones
	}
	// What is.
	var state native.State
	err := r.loadAll(func([]mpu.Stored, native.LoadOptions) (_ native.State, _ native.Report, err error) {
		state, err = r.memory.Load(r.found, r.complete())
		return state, native.Report{Folder: "the memory checkpoint", Iteration: r.found.Iteration, Restored: restored(r.complete())}, err
	})
	if err != nil {
		return err
	}
	r.saver.saved = -1 // it is not on disk
	for _, check := range []func(native.State) error{r.sameBase, r.continueReference} {
		if err := check(state); err != nil {
			return err
		}
	}
	// What to say of it; the next loss must not meet a single copy.
	if len(r.found.Lost) > 0 {
		r.log.note("the shards of ranks %v were read from copies; the copy of a shard is on the host of the rank whose number is higher by %d (--replication-jump)", r.found.Lost, r.Config.Checkpoint.ReplicationJump)
	}
	if r.found.Thin {
		return r.saveMemory()
	}
	return nil
}

// Keys of State.Extra that only memory checkpoints have.
const (
	frozenKey    = "frozen_sum" // of this rank's weights that are left out
	referenceKey = "reference_logps"
)

// keepOutside adds to a memory checkpoint's state the files next to a checkpoint on disk, and a
// checksum of the base that is left out.
func (r *Run) keepOutside(s *native.State) (err error) {
	if r.leavesBase() {
		if r.frozen == "" {
			if r.frozen, err = memory.Sum(r.device, r.Engine.Optimizer.FrozenWeights()); err != nil {
				return err
			}
		}
		if s.Extra[frozenKey], err = json.Marshal(r.frozen); err != nil {
			return exitcode.With(exitcode.Internal, err)
		}
	}
	if r.prefer != nil && len(r.prefer.reference) > 0 && r.rank.First() {
		s.Extra[referenceKey], err = r.prefer.kept()
	}
	return err
}

// sameBase refuses a base that is not the one that the memory checkpoint's run had: a host may have another
// one in its folder.
func (r *Run) sameBase(s native.State) error {
	if !r.leavesBase() {
		return nil
	}
	sum, err := memory.Sum(r.device, r.Engine.Optimizer.FrozenWeights())
	if err != nil {
		return err
	}
	var before string
	if json.Unmarshal(s.Extra[frozenKey], &before) != nil || before != sum {
		return exitcode.Errorf(exitcode.BadData, "the memory checkpoint of iteration %d: the base model that was read now differs from that of the run before the restart; restore the folder of --load on this host, or start a new run", s.Iteration)
	}
	r.frozen = sum
	return nil
}

// continueReference takes the reference of preference tuning from a memory checkpoint, and keeps it in --save
// for who resumes from there.
func (r *Run) continueReference(s native.State) error {
	if r.prefer == nil || !r.prefer.loss.Reference {
		return nil
	}
	from := fmt.Sprintf("the memory checkpoint of iteration %d", s.Iteration)
	known, err := r.takeReference(from, func() ([]byte, error) { return s.Extra[referenceKey], nil })
	if err == nil && !known {
		err = exitcode.Errorf(exitcode.BadData, "%s: the reference's log-probabilities in it belong to other rows, so --finetune-data has changed; restore that file, or start a new run", from)
	}
	if err != nil {
		return err
	}
	return r.writeReference()
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
	r.log.note("there is no complete memory checkpoint: %s; the run starts from disk", lacks)
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
	if err == nil {
		err = r.keepOutside(&state)
	}
	if err != nil {
		return err
	}
	if err := r.memory.Save(state, r.complete(), r.memoryTag()); err != nil {
		return fmt.Errorf("the memory checkpoint of iteration %d failed: %w", r.Engine.Iteration, err)
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
