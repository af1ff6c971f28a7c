package serve

import (
	"context"
	"time"

	"monotron/internal/exitcode"
	"monotron/megatron/inference"
	"monotron/tools/internal/command"
)

// checkEvery is the time between two checks of a folder that is followed.
const checkEvery = time.Second

// iteration is one of a save folder, as it was written at a time.
type iteration struct {
	step    int64
	written time.Time
}

// newest is the iteration that the folder has now.
func newest(dir string) (i iteration, err error) {
	i.step, i.written, err = inference.Newest(dir)
	return i, err
}

// first waits, where the folder is followed, for an iteration to begin with; waits is called
// when none exists yet.
func (o *options) first(ctx context.Context, waits func()) (i iteration, err error) {
	for reported := false; o.follow && ctx.Err() == nil; reported = true {
		i, err = newest(o.dir)
		if exitcode.CodeOf(err) != exitcode.NoInput {
			return i, err
		}
		if !reported {
			waits()
		}
		select {
		case <-ctx.Done():
		case <-time.After(checkEvery):
		}
	}
	return i, nil
}

// follow takes each new iteration of the folder. One that cannot be read is reported once, and
// what is in use continues.
func (s *server) follow(ctx context.Context, b *inference.Batcher, seen iteration, notes *command.Printer) {
	trouble := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(checkEvery):
		}
		// The newest iteration of the folder; the same trouble is reported once.
		now, err := newest(s.dir)
		if err != nil {
			if err.Error() != trouble {
				trouble = err.Error()
				notes.Printf("following %s: %v; %s stays in use\n", s.dir, err, b.Weights())
			}
			continue
		}
		if now == seen || s.draining.Load() {
			continue
		}
		// It is loaded between two passes, next to the weights in use.
		seen, trouble = now, ""
		began := time.Now()
		if err := b.Reload(ctx, now.step); err != nil {
			if ctx.Err() == nil && !s.draining.Load() {
				notes.Printf("iteration %d is skipped, %s stays in use: %v\n", now.step, b.Weights(), err)
			}
			continue
		}
		notes.Printf("iteration %d is in use, %.2f s after it was found\n", now.step, time.Since(began).Seconds())
	}
}
