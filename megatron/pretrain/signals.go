package pretrain

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"monotron/internal/exitcode"
	"monotron/internal/logging"
	"monotron/internal/system"
	"monotron/mpu/bootstrap/launchenv"
)

// begun reports whether this process is still setting up.
type begun struct {
	ranks int64         // of this process; written before any begins
	late  time.Duration // that the setup may continue after a signal
	count atomic.Int64
}

// one is said by each rank that is set up.
func (b *begun) one() { b.count.Add(1) }

// all reports whether every rank of this process is set up: from there on a step is never far.
func (b *begun) all() bool { n := b.count.Load(); return n > 0 && n >= b.ranks }

// How long a setup may continue after a signal: memory for a large model is filled in one go,
// which nothing interrupts. Ranks of other processes may be in a step already; they wait for
// this one, and all save together.
const (
	patience         = 700 * time.Millisecond
	patienceOfOthers = 5 * time.Second
)

func newBegun(env *launchenv.Env) *begun {
	if env != nil && env.Size > 1 {
		return &begun{late: patienceOfOthers}
	}
	return &begun{late: patience}
}

// stopOnSignal cancels at the first SIGUSR1 or signal that ends a run (launchenv.Stops), so
// that it saves at the next step; a run that is not set up ends, as it has nothing to
// save. A later signal ends the process at once. Launchers pass a signal on that a batch
// system has sent to the ranks, too: within a second it is the same one.
func stopOnSignal(ctx context.Context, notes *logging.Notes, b *begun, exit func(code int)) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, append(launchenv.Stops(), system.StopSignals...)...)
	go func() {
		s, ok := <-signals
		if !ok {
			return
		}
		// The first signal: the loop sees the cancelled context after its step.
		name := launchenv.StopName(s, os.Getenv)
		cancel(errors.New(name))
		// Nothing is saved while the model is not set up; then the process ends after a while.
		first, late := time.Now(), time.After(b.late)
		if b.all() {
			notes.Warn("%s was received: the run saves after this step; send the signal again to stop at once", name)
			late = nil
		} else {
			notes.Warn("%s was received during the setup: the run ends within %v without training or saving, or at its first step", name, b.late)
		}
		// Copies of the first signal arrive within a second and are ignored; a later one ends at once.
		for {
			select {
			case s, ok := <-signals:
				if !ok {
					return
				}
				if time.Since(first) > time.Second {
					exit(128 + int(s.(syscall.Signal)))
				}
			case <-late:
				if !b.all() {
					exit(int(exitcode.Again))
				}
			}
		}
	}()
	return ctx, func() { signal.Stop(signals); close(signals) }
}
