// Package devices chooses what a rank computes on: by its --device name, or (auto) the
// fastest that this build and machine have, a GPU of its own for each rank of a host.
package devices

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"monotron/csrc/device"
	"monotron/csrc/gpus"
	"monotron/internal/exitcode"
	"monotron/internal/logging"
	"monotron/mpu/bootstrap/launchenv"
)

// Kind is a device that this build can open.
type Kind struct {
	Name string
	Open func(local int) (*device.Device, error) // for a GPU: which of those visible
	// OnePerRank: ranks of a host cannot share one.
	OnePerRank bool
	// Wanted reports whether this machine is meant to have it, so that a person wants to know
	// why it cannot be opened; nil: it is not checked.
	Wanted func() bool
}

// Everywhere is a kind that any number of ranks open in the same way.
func Everywhere(name string, open func() (*device.Device, error)) Kind {
	return Kind{Name: name, Open: func(int) (*device.Device, error) { return open() }}
}

// Opener opens a kind by its name; auto and "" take the first, in the order given, that opens.
func Opener(kinds ...Kind) func(name string) (*device.Device, error) {
	c := &choice{kinds: kinds, survey: gpus.Read}
	return c.open
}

type choice struct {
	kinds    []Kind
	reported sync.Once
	survey   func() (gpus.Survey, error)
	turn     atomic.Int64 // how many have been opened by a process that is all its ranks
}

func (c *choice) open(name string) (*device.Device, error) {
	if name == "auto" || name == "" {
		return c.fastest()
	}
	for _, k := range c.kinds {
		if k.Name == name {
			d, err := c.sit(k)
			return d, exitcode.With(exitcode.Usage, err)
		}
	}
	return nil, exitcode.Errorf(exitcode.Usage, "--device must be auto%s, not %s", c.names(), name)
}

func (c *choice) names() string {
	var list strings.Builder
	for i, k := range c.kinds {
		separator := ", "
		if i == len(c.kinds)-1 {
			separator = " or "
		}
		list.WriteString(separator + k.Name)
	}
	return list.String()
}

func (c *choice) fastest() (d *device.Device, err error) {
	for _, k := range c.kinds {
		if d, err = c.sit(k); err == nil {
			return d, nil
		}
		if k.OnePerRank {
			if err := c.without(k, err); err != nil {
				return nil, err
			}
		}
	}
	return nil, exitcode.With(exitcode.Usage, fmt.Errorf("--device auto: %w", err))
}

// without lets auto continue without a kind, and says why where there should be one. Not
// where other ranks of this host have theirs: one slow rank holds up all.
func (c *choice) without(k Kind, why error) error {
	rank := 0
	if p, err := launchenv.Find(os.Getenv); err == nil && p != nil && !gpus.Here().One() {
		rank = p.Local
	}
	if rank > 0 {
		if first, err := k.Open(0); err == nil {
			first.Close()
			return exitcode.Errorf(exitcode.Usage, "--device auto: rank 0 of this host has a GPU, but rank %d has none (%w); give all ranks the same --device", rank, why)
		}
	}
	if rank == 0 && k.Wanted != nil && k.Wanted() {
		c.reported.Do(func() { logging.Stderr().From("device").Warn("device auto: %v", why) })
	}
	return nil
}

// sit opens a kind where this process's rank is to compute: a device that ranks cannot
// share has the name of its unit, by which they find out whether they do.
func (c *choice) sit(k Kind) (*device.Device, error) {
	if !k.OnePerRank {
		return k.Open(0)
	}
	at, unit, err := c.seat()
	if err != nil {
		return nil, err
	}
	d, err := k.Open(at)
	if err == nil {
		d.Unit = unit
	}
	return d, err
}

// seat is which of the visible GPUs this process's rank takes, and its UUID: the only one,
// for a launcher may have left each rank its own; the one of its number among the ranks of
// the host; or, where a process is all ranks, the next. Where the driver cannot be asked,
// the UUID is "", and opening the device says more.
func (c *choice) seat() (at int, uuid string, err error) {
	p, err := launchenv.Find(os.Getenv)
	if err != nil {
		return 0, "", err
	}
	// The visible GPUs, where the driver can be asked.
	here, shown := gpus.Here(), []gpus.GPU(nil)
	s, unknown := c.survey()
	if unknown == nil {
		if shown, err = s.Visible(here); err != nil {
			return 0, "", err
		}
	}
	// One is left to each process, or the launcher's local number chooses, or ranks of one process take turns.
	switch {
	case here.One(), len(shown) == 1:
	case p != nil && unknown == nil:
		if _, err = s.Seat(here, p.Local, p.LocalSize); err != nil {
			return 0, "", err
		}
		at = p.Local
	case p != nil:
		at = p.Local
	case len(shown) > 0:
		at = int(c.turn.Add(1)-1) % len(shown)
	}
	if at < len(shown) {
		uuid = shown[at].UUID
	}
	return at, uuid, nil
}
