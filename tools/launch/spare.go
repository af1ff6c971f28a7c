package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"monotron/internal/exitcode"
)

// turn meets the other hosts and, where this one is a spare, checks it and waits until it has a
// node rank. over: it will have none.
func (g *gathering) turn(signals <-chan os.Signal, notes io.Writer) (over bool, err error) {
	g.check = nil
	defer func() {
		if over || err != nil {
			g.check.end()
		}
	}()
	for {
		// Meet the others.
		var spare bool
		err := stoppable(signals, func(ctx context.Context) (err error) {
			spare, err = g.gather(ctx, notes)
			return err
		})
		if errors.Is(err, errNotNeeded) {
			return true, nil
		}
		if err != nil && exitcode.CodeOf(err) == exitcode.Done { // the run has ended before this host was there again
			return runEnded(err, notes)
		}
		if err != nil || !spare {
			return false, err
		}
		// Wait for the next meeting, and meanwhile check this host.
		if g.check == nil {
			g.check = g.startCheck(notes)
		}
		err = stoppable(signals, func(ctx context.Context) (err error) {
			over, err = g.standby(ctx, notes)
			return err
		})
		if over || err != nil {
			return true, err
		}
	}
}

// spareCheck is the check of a spare host. It runs while the host waits, which hears meanwhile
// that the run is over or that the hosts meet again. A nil one has not been begun.
type spareCheck struct {
	signals chan os.Signal // for its ranks
	done    chan struct{}  // closed at its end
	failed  chan struct{}  // closed after that, if it has failed
	err     error          // why
}

func (g *gathering) startCheck(notes io.Writer) *spareCheck {
	c := &spareCheck{signals: make(chan os.Signal, 2), done: make(chan struct{}), failed: make(chan struct{})}
	go func() {
		c.err = g.checkHost(c.signals, notes)
		close(c.done)
		if c.err != nil {
			close(c.failed)
		}
	}()
	return c
}

func (c *spareCheck) running() bool {
	if c == nil {
		return false
	}
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

// failure is why the host cannot be used; nil: it can, or is not checked yet.
func (c *spareCheck) failure() error {
	if c == nil || c.running() {
		return nil
	}
	return c.err
}

// end stops a check that is still running: by two signals, as its ranks may not heed the first.
func (c *spareCheck) end() {
	for c.running() {
		select {
		case c.signals <- syscall.SIGTERM:
		default:
		}
		select {
		case <-c.done:
		case <-time.After(2 * time.Second):
		}
	}
}

// checkHost runs the preflight and ten steps of a small model on as many ranks as this spare host
// would have, so that it is known now if it cannot replace a host.
func (g *gathering) checkHost(signals <-chan os.Signal, notes io.Writer) error {
	o := *g.options
	o.nodes, o.node, o.addr, o.segments, o.words = 1, 0, "", nil, []string{"doctor", "--hosts"}
	var err error
	if o.folder, err = os.MkdirTemp("", temporaryName); err != nil {
		return exitcode.Errorf(exitcode.IO, "a folder for the check of a spare host cannot be created in TMPDIR %s: %w; set TMPDIR to another folder", os.TempDir(), err)
	}
	defer os.RemoveAll(o.folder)
	environment, err := o.environment(0)
	if err != nil {
		return err
	}
	a := &attemptRun{options: &o, environment: environment, console: newConsole(io.Discard, notes, o.prefix)}
	err = a.run(signals)
	switch {
	case a.stopping:
		return exitcode.Errorf(exitcode.Again, "stopped while checking a spare host")
	case err != nil:
		return exitcode.With(exitcode.CodeOf(err), fmt.Errorf("spare host %d failed its check: %w", g.number0, err))
	}
	fmt.Fprintf(notes, "launch: spare host %d has passed its check and waits\n", g.number0)
	return nil
}
