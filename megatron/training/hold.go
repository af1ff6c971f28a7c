package training

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"monotron/internal/argv"
	"monotron/internal/atomicfile"
	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/native"
	"monotron/mpu/ranks"
)

// handover is how long a run waits for another one to leave its --save folder: a
// killed run's processes may still be ending when its successor starts.
const handover = 3 * time.Second

// holdFolder keeps other runs from saving into folder until the file is closed,
// or the process ends however it may. Two runs in one folder would take each
// other's unfinished saves for those of a dead run. Where another run has it and saves
// before it goes, a run that does not continue from there is refused: it would replace what
// it has just waited for. The lock is the
// folder's own (atomicfile.Lock); where the file system knows none, or it fails otherwise, nil.
func holdFolder(folder string, continued bool) (*os.File, error) {
	f, err := os.Open(folder)
	if err != nil {
		return nil, exitcode.Errorf(exitcode.IO, "--save %s: %w", folder, err)
	}
	first := newestSave(folder)
	for end := time.Now().Add(handover); ; time.Sleep(50 * time.Millisecond) {
		switch locked, err := atomicfile.Lock(f); {
		case err != nil:
			return nil, f.Close()
		case !locked && !continued && newestSave(folder) != first:
			_ = f.Close() // nothing was written
			return nil, exitcode.Errorf(exitcode.IO, "--save %s: another run, started at the same time, has saved to this folder; name another folder, or continue that run with --load %s", folder, argv.Quoted(folder))
		case !locked:
			return f, nil
		case time.Now().After(end):
			_ = f.Close() // it holds nothing
			return nil, exitcode.Errorf(exitcode.IO, "--save %s: another run is saving to this folder; wait until that run has ended, or name another folder", folder)
		}
	}
}

// newestSave changes whenever a save into the folder is done.
func newestSave(folder string) string {
	st, err := os.Stat(filepath.Join(folder, checkpoint.TrackerName))
	if err != nil {
		return ""
	}
	return st.ModTime().String()
}

// hold takes --save's folder for this run, before anything reads its contents. All
// ranks call it; the first does it.
func (j *Job) hold(rank *ranks.Rank) (err error) {
	c := &j.Config.Checkpoint
	if c.Save != "" && rank.First() {
		j.locked, err = holdFolder(c.Save, atomicfile.Same(c.Load, c.Save))
	}
	return err
}

// tellOverwriting warns where --save holds checkpoints that this run does not continue from: it writes over
// those of the same iterations, and the tracker then names
// its own, and where there is no --save.
func (r *Run) tellOverwriting() {
	c := &r.Config.Checkpoint
	if c.Save == "" && !r.Config.SkipTrain {
		r.log.note("--save is not given, so the trained weights are not kept")
	}
	if c.Save == "" || r.saver.saved >= 0 || c.Format != "native" {
		return
	}
	list, err := native.List(c.Save)
	if err != nil || len(list) == 0 {
		return // none, or a save that will say what is wrong
	}
	r.log.note("%s has checkpoints up to iteration %d, from which this run does not continue; this run replaces checkpoints of the iterations that it saves (to continue from them, use --load %s)",
		c.Save, list[len(list)-1].Iteration, filepath.Clean(c.Save))
}

// probe makes the folder of --save and writes into it, so that a run does not
// train for hours before it finds out that it cannot save.
func probe(flag, folder string) error {
	if folder == "" {
		return nil
	}
	if native.IsOne(folder) {
		return exitcode.Errorf(exitcode.Usage, "%s %s is a single checkpoint; give its parent folder, or a new folder", flag, folder)
	}
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return exitcode.Errorf(exitcode.IO, "%s %s: %w", flag, folder, err)
	}
	if err := writable(folder); err != nil {
		return exitcode.Errorf(exitcode.IO, "%s %s cannot be written: %w", flag, folder, err)
	}
	return nil
}

// writable makes a file in a folder and removes it.
func writable(folder string) error {
	f, err := os.CreateTemp(folder, ".tmp-probe-*")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}
