package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"monotron/internal/exitcode"
)

// turn meets the other hosts and, where this one is a spare, checks it and waits until it has a
// node rank. over: it will have none.
func (g *gathering) turn(signals <-chan os.Signal, notes io.Writer) (over bool, err error) {
	for checked := false; ; checked = true {
		var spare bool
		err := stoppable(signals, func(ctx context.Context) (err error) {
			spare, err = g.gather(ctx, notes)
			return err
		})
		if errors.Is(err, errNotNeeded) {
			return true, nil
		}
		if err != nil || !spare {
			return false, err
		}
		if !checked {
			if err := g.check(signals, notes); err != nil {
				return true, err
			}
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

// check runs the preflight and ten steps of a small model on as many ranks as this spare host
// would have, so that it is known now if it cannot replace a host.
func (g *gathering) check(signals <-chan os.Signal, notes io.Writer) error {
	o := *g.options
	o.nodes, o.node, o.addr, o.segments, o.words = 1, 0, "", nil, []string{"doctor", "--hosts"}
	var err error
	if o.folder, err = os.MkdirTemp("", temporaryName); err != nil {
		return exitcode.Errorf(exitcode.IO, "no folder for the check of a spare host: %w", err)
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
