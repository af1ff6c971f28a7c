package training

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"monotron/internal/exitcode"
	"monotron/internal/store"
	"monotron/megatron/checkpoint/native"
	"monotron/megatron/checkpoint/remote"
	"monotron/megatron/config"
)

// stageObjects replaces s3:// URLs by folders of this host: of --save one whose
// checkpoints are copied to the URL, of --load and --pretrained-checkpoint one to which the
// checkpoint was fetched, so that all that follows works on folders. The ranks of a host share them.
func stageObjects(c *config.Checkpoint, tell func(text string)) (err error) {
	if store.IsURL(c.Save) {
		c.Remote = c.Save
		if c.Save, err = remote.Folder(c.Remote, c.LocalDir); err != nil {
			return err
		}
	}
	if c.Resume && c.Remote != "" {
		resumed, err := resumeRemote(c, tell)
		if resumed || err != nil {
			return err
		}
	}
	if store.IsURL(c.Load) {
		if err := loadRemote(c, tell); err != nil {
			return err
		}
	}
	if store.IsURL(c.Pretrained) && c.Load == "" {
		c.Pretrained, err = remote.Local(context.Background(), c.Pretrained, -1, tell)
	}
	return err
}

// resumeRemote is --resume-from-save: where the store has a checkpoint it is brought to
// the folder of --save, and resumeSaved does the rest. What only that folder holds does not count.
func resumeRemote(c *config.Checkpoint, tell func(text string)) (resumed bool, err error) {
	err = remote.FetchTo(context.Background(), c.Remote, c.Save, -1, tell)
	if errors.Is(err, native.ErrNone) {
		c.Resume = false
		return false, nil
	}
	c.Load, c.Pretrained = c.Save, ""
	return true, err
}

// loadRemote fetches what --load names. Where nothing is there yet it says so, and the run
// starts without, if that is allowed.
func loadRemote(c *config.Checkpoint, tell func(text string)) error {
	name, dir := c.Load, c.Save
	if name != c.Remote {
		var err error
		if dir, err = remote.Folder(name, ""); err != nil {
			return err
		}
	}
	err := remote.FetchTo(context.Background(), name, dir, wantedStep(c), tell)
	if !errors.Is(err, native.ErrNone) {
		c.Load = dir
		return err
	}
	switch {
	case c.Pretrained != "":
	case c.ExitOnMissing || c.Step > 0 || c.Upcycle:
		return fmt.Errorf("--load %s: %w; leave out --exit-on-missing-checkpoint, --ckpt-step and --moe-use-upcycling to start from random weights", name, err)
	case (name != c.Remote || c.Finetune) && !c.AllowMissing:
		return fmt.Errorf("--load %s: %w; correct the URL, leave --load out to start from random weights, or give --allow-missing-load", name, err)
	default:
		tell(fmt.Sprintf("there is no checkpoint in %s; training starts from random weights", name))
	}
	c.Load = ""
	return nil
}

// openRemote is where this run's checkpoints are copied to, on the first rank; nil: nowhere.
func (r *Run) openRemote() (*remote.Remote, error) {
	c := &r.Config.Checkpoint
	if c.Remote == "" || !r.rank.First() {
		return nil, nil
	}
	to, err := remote.Open(c.Remote)
	if err != nil {
		return nil, err
	}
	to.KeepLast, to.KeepEvery = c.KeepLast, int64(c.KeepEvery)
	defer signs(r.rank.Outside)()
	aborted, err := to.Start(context.Background())
	if err != nil {
		return nil, exitcode.Errorf(exitcode.CodeOf(err), "--save %s: %w", c.Remote, err)
	}
	if aborted > 0 {
		r.log.note("aborted %d incomplete uploads to %s that an earlier run left", aborted, c.Remote)
	}
	r.log.note("checkpoints are written to %s and then uploaded to %s", c.Save, c.Remote)
	return to, nil
}

// copyTo is SaveOptions.Copy.
func (r *Run) copyTo(to *remote.Remote) func(ctx context.Context, folder string) error {
	return func(ctx context.Context, folder string) error {
		defer signs(r.rank.Outside)()
		return to.Save(ctx, folder)
	}
}

// signs has a rank that waits for the store give signs of life until stop: how long it may
// wait, each request's deadline and number of attempts say.
func signs(sign func()) (stop func()) {
	const every = 200 * time.Millisecond // less than the least --stall-seconds
	done := make(chan struct{})
	var idle sync.WaitGroup
	idle.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				sign()
			}
		}
	})
	return func() {
		close(done)
		idle.Wait()
	}
}
