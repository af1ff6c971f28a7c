package serve

import (
	"context"
	"fmt"
	"os"
	"time"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/internal/logging"
	"monotron/megatron/inference"
	"monotron/mpu/bootstrap/launchenv"
	"monotron/mpu/bootstrap/preflight"
	"monotron/mpu/ranks"
)

// meetWithin is how long ranks wait for each other to come.
const meetWithin = 10 * time.Minute

// seat is where this process's ranks are: all of them, or one of a launcher's.
type seat struct {
	ranks.Config
	launched *launchenv.Env // nil: all of them
}

// listens reports whether requests come here; the others follow.
func (at *seat) listens() bool { return at.launched == nil || at.launched.Rank == 0 }

// here is how many of the model's ranks are on this host.
func (at *seat) here(l inference.Layout) int {
	if at.launched == nil {
		return l.Ranks()
	}
	return at.launched.LocalSize
}

// seatOf finds out which ranks this process has; each of several gets its part of the cores.
func seatOf(o *options, open func() (*device.Device, error), threads bool) (*seat, error) {
	p, err := launchenv.Find(os.Getenv)
	if err != nil {
		return nil, err
	}
	at := &seat{Config: ranks.Config{Open: open}}
	if p == nil || p.Size == 1 {
		return at, nil
	}
	if n := o.layout.Ranks(); n != p.Size {
		return nil, exitcode.Errorf(exitcode.Usage, "%s started %d ranks, but --tensor-model-parallel-size, --pipeline-model-parallel-size and --expert-model-parallel-size need %d", p.Launcher, p.Size, n)
	}
	at.launched = p
	if !threads {
		device.SetThreads(max(1, device.Cores()/p.LocalSize))
	}
	return at, nil
}

// meet waits for the other processes, where there are any.
func (at *seat) meet(ctx context.Context, o options) (ranks.Config, error) {
	if at.launched == nil {
		return at.Config, nil
	}
	notes := logging.Stderr().Rank(at.launched.Rank)
	alike := map[string]string{"settings (flags)": fmt.Sprint(o.layout, o.load, o.follow)}
	world, err := preflight.Meet(ctx, at.launched, alike, meetWithin, notes.From("rendezvous").Lines())
	if err != nil {
		return at.Config, err
	}
	c := at.Config
	c.Process = world
	c.Watch = &ranks.Watch{Folder: os.Getenv(launchenv.RunFolder), Note: notes.From("serve").Warn}
	return c, nil
}

// follow does what rank 0 orders until it says that this is the end: rank 0 hears signals,
// too, and answers what it has first.
func (at *seat) follow(signals context.Context, o options) error {
	if _, err := o.first(signals, func() {}); err != nil || signals.Err() != nil {
		return err
	}
	c, err := at.meet(signals, o)
	if err != nil {
		return err
	}
	return inference.Serve(context.Background(), o.layout, c, o.dir, o.load, nil, nil)
}
