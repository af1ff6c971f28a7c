package training

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/native"
	"monotron/megatron/checkpoint/remote"
	"monotron/mpu/health"
)

// saver writes checkpoints of a run, one at a time.
type saver struct {
	pending *native.Pending
	remote  *remote.Remote // nil: checkpoints stay where they are made
	saved   int64          // iteration of the last save or load; -1: none
}

// openSaver prepares for checkpoints, before one is loaded.
func (r *Run) openSaver() (err error) {
	r.saver = &saver{saved: -1}
	r.Engine.Settled = r.saver.awaitTensors
	r.saver.remote, err = r.openRemote()
	return err
}

// save writes a checkpoint of the iteration, unless it is on disk already.
func (s *saver) save(ctx context.Context, r *Run) error {
	c := &r.Config.Checkpoint
	if c.Save == "" || s.saved == r.Engine.Iteration {
		return nil
	}
	// One save at a time.
	if err := s.wait(r); err != nil {
		return err
	}
	r.rank.Enter(health.Save, r.Engine.Iteration)
	state, err := r.state()
	if err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx) // a signal must not spoil the save it asks for
	// What stays on disk, what is copied to object storage, and where asynchronous ranks meet.
	options := r.saveOptions()
	options.KeepLast, options.KeepEvery, options.Keep = c.KeepLast, int64(c.KeepEvery), r.keptBest()
	if s.remote != nil {
		s.remote.Keep = r.keptBest()
		options.Copy = r.copyTo(s.remote)
	}
	if c.Async {
		options.Meet = r.rank.Saves.Barrier
	}
	options = options.Failing(r.rank.Inject.Disk(r.Engine.Iteration))
	s.saved = r.Engine.Iteration
	// In the format and the manner that were asked for.
	format := formatOf(c.Format)
	if format != checkpoint.Native && c.Async {
		s.pending, err = r.saveAsLater(ctx, format, state, options)
		return err
	}
	if format != checkpoint.Native {
		report, err := r.saveAs(ctx, format, state, options)
		return s.reported(r, report, err)
	}
	if c.Async {
		s.pending, err = native.SaveAsync(ctx, c.Save, state, r.stored(), r.device, options)
		return err
	}
	report, err := native.Save(ctx, c.Save, state, r.stored(), r.device, options)
	return s.reported(r, report, err)
}

// saveOptions are those of every save of all ranks together.
func (r *Run) saveOptions() native.SaveOptions {
	o := native.SaveOptions{Rank: r.rank.Number, World: r.rank.World().Size(), Meet: r.rank.World().Barrier, Tag: r.rank.RunName}
	if !r.Config.Checkpoint.NoTokenizer {
		o.Tokenizer = r.Config.Tokenizer
	}
	return o
}

// saveLoaded saves what the run begins with, for who wants to see what a restart changed
// (--save-on-load).
func (r *Run) saveLoaded(ctx context.Context) error {
	dir := r.Config.Checkpoint.SaveOnLoad
	if dir == "" {
		return nil
	}
	r.rank.Enter(health.Save, r.Engine.Iteration)
	state, err := r.state()
	if err != nil {
		return err
	}
	report, err := native.Save(context.WithoutCancel(ctx), dir, state, r.stored(), r.device, r.saveOptions())
	if err != nil {
		return fmt.Errorf("--save-on-load: %w", err)
	}
	r.log.note("saved the initial state, iteration %d, to %s", report.Iteration, report.Folder)
	return nil
}

// awaitTensors waits until a save under way no longer reads the tensors.
func (s *saver) awaitTensors() {
	if s.pending != nil {
		s.pending.Copied()
	}
}

// wait ends the save under way.
func (s *saver) wait(r *Run) error {
	if s.pending == nil {
		return nil
	}
	report, err := s.pending.Wait()
	s.pending = nil
	return s.reported(r, report, err)
}

func (s *saver) reported(r *Run, report native.Report, err error) error {
	if err != nil {
		return fmt.Errorf("saving iteration %d to %s: %w", s.saved, cmp.Or(r.Config.Checkpoint.Remote, r.Config.Checkpoint.Save), err)
	}
	for _, n := range report.Notes {
		r.log.note("%s", n)
	}
	r.log.note("saved iteration %d to %s (%d bytes)", report.Iteration, report.Folder, onDisk(report))
	if s.remote != nil {
		r.log.note("copied iteration %d to %s", report.Iteration, r.Config.Checkpoint.Remote)
	}
	if err := r.writeAdapter(report); err != nil {
		return fmt.Errorf("writing the adapter of iteration %d: %w", report.Iteration, err)
	}
	if r.rank.Inject.Corrupts(report.Iteration) {
		return corrupt(report.Folder, r.rank.Number)
	}
	return nil
}

// onDisk is the size of a checkpoint that several ranks may have written.
func onDisk(report native.Report) (bytes int64) {
	err := filepath.WalkDir(report.Folder, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		st, err := e.Info()
		if err == nil {
			bytes += st.Size()
		}
		return err
	})
	if err != nil {
		return report.Bytes
	}
	return bytes
}

// finish saves the last iteration and waits until it is on disk.
func (s *saver) finish(ctx context.Context, r *Run) error {
	if err := s.save(ctx, r); err != nil {
		return err
	}
	return s.wait(r)
}

// corrupt changes the last byte of a rank's part of a checkpoint: --inject corrupt.
func corrupt(folder string, rank int) error {
	f, err := os.OpenFile(filepath.Join(folder, fmt.Sprintf("rank_%05d.safetensors", rank)), os.O_RDWR, 0)
	if err != nil {
		return exitcode.With(exitcode.IO, err)
	}
	last := make([]byte, 1)
	size, err := f.Seek(-1, io.SeekEnd)
	if err == nil {
		if _, err = f.ReadAt(last, size); err == nil {
			last[0] ^= 0x55
			_, err = f.WriteAt(last, size)
		}
	}
	return exitcode.With(exitcode.IO, errors.Join(err, f.Close()))
}
