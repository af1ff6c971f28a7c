package training

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"monotron/fault"
	"monotron/megatron/checkpoint"
	"monotron/mpu/ranks"
)

// handover is how long a run waits for another one to leave its --save folder: a
// killed run's processes may still be ending when its successor starts.
const handover = 3 * time.Second

// holdFolder keeps other runs from saving into folder until the file is closed,
// or the process ends however it may. Two runs in one folder would take each
// other's unfinished saves for those of a dead run. Where the file system knows
// no locks, nil.
func holdFolder(folder string) (*os.File, error) {
	f, err := os.Open(folder)
	if err != nil {
		return nil, fault.Errorf(fault.IO, "--save %s: %w", folder, err)
	}
	for end := time.Now().Add(handover); ; time.Sleep(50 * time.Millisecond) {
		switch held, err := lock(f); {
		case err != nil:
			return nil, f.Close()
		case !held:
			return f, nil
		case time.Now().After(end):
			_ = f.Close() // it holds nothing
			return nil, fault.Errorf(fault.IO, "--save %s: another run is saving there; wait until it has ended, or name another folder", folder)
		}
	}
}

// hold takes --save's folder for this run. All ranks call it; the first does it.
func (j *Job) hold(rank *ranks.Rank) (err error) {
	if folder := j.Config.Checkpoint.Save; folder != "" && rank.First() {
		j.held, err = holdFolder(folder)
	}
	return err
}

// tellOverwriting warns where --save holds checkpoints that this run does not go
// on from: it writes over those of the same iterations, and the tracker then names
// its own.
func (r *Run) tellOverwriting() {
	c := &r.Config.Checkpoint
	if c.Save == "" || r.saver.saved >= 0 || c.Format != "native" {
		return
	}
	list, err := checkpoint.List(c.Save)
	if err != nil || len(list) == 0 {
		return // none, or a save that will say what is wrong
	}
	r.log.note("%s holds checkpoints up to iteration %d that this run does not go on from; it replaces those of the iterations that it saves (--load %s would go on)",
		c.Save, list[len(list)-1].Iteration, filepath.Clean(c.Save))
}

// probe makes the folder of --save and writes into it, so that a run does not
// train for hours before it finds out that it cannot save.
func probe(folder string) error {
	if folder == "" {
		return nil
	}
	if checkpoint.IsOne(folder) {
		return fault.Errorf(fault.Usage, "--save %s is one checkpoint itself; name the folder above it, or a new one", folder)
	}
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return fault.Errorf(fault.IO, "--save %s: %w", folder, err)
	}
	f, err := os.CreateTemp(folder, ".tmp-probe-*")
	if err != nil {
		return fault.Errorf(fault.IO, "--save %s cannot be written: %w", folder, err)
	}
	return fault.With(fault.IO, errors.Join(f.Close(), os.Remove(f.Name())))
}
