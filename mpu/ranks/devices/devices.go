// Package devices chooses what a rank computes on: by its --device name, or (auto) the
// fastest that this build and machine have, a GPU of its own for each rank of a host.
package devices

import (
	"fmt"
	"os"
	"strings"
	"sync"

	"monotron/csrc/device"
	"monotron/csrc/gpus"
	"monotron/fault"
	"monotron/mpu/comm/launched"
	"monotron/notes"
)

// Kind is a device that this build can open.
type Kind struct {
	Name string
	Open func(local int) (*device.Device, error) // for a GPU: which of those visible
	// OnePerRank: ranks of a host cannot share one.
	OnePerRank bool
	// Wanted tells whether this machine is meant to have it, so that a person wants to know
	// why it cannot be opened; nil: it is not looked at.
	Wanted func() bool
}

// Everywhere is a kind that any number of ranks open in the same way.
func Everywhere(name string, open func() (*device.Device, error)) Kind {
	return Kind{Name: name, Open: func(int) (*device.Device, error) { return open() }}
}

// Opener opens a kind by its name; auto and "" take the first, in the order given, that opens.
func Opener(kinds ...Kind) func(name string) (*device.Device, error) {
	c := &choice{kinds: kinds}
	return c.open
}

type choice struct {
	kinds []Kind
	told  sync.Once
}

func (c *choice) open(name string) (*device.Device, error) {
	if name == "auto" || name == "" {
		return c.fastest()
	}
	for _, k := range c.kinds {
		if k.Name == name {
			return k.open()
		}
	}
	return nil, fault.Errorf(fault.Usage, "--device %s is unknown; there are auto%s", name, c.names())
}

func (c *choice) names() string {
	var list strings.Builder
	for i, k := range c.kinds {
		separator := ", "
		if i == len(c.kinds)-1 {
			separator = " and "
		}
		list.WriteString(separator + k.Name)
	}
	return list.String()
}

func (c *choice) fastest() (d *device.Device, err error) {
	for _, k := range c.kinds {
		if d, err = k.Open(local()); err == nil {
			return d, nil
		}
		if k.OnePerRank {
			if err := c.without(k, err); err != nil {
				return nil, err
			}
		}
	}
	return nil, fault.With(fault.Usage, fmt.Errorf("--device auto: %w", err))
}

// without lets auto go on without a kind, and says why where there should be one. Not
// where other ranks of this host have theirs: one slow rank holds up all.
func (c *choice) without(k Kind, why error) error {
	rank := local()
	if rank > 0 {
		if first, err := k.Open(0); err == nil {
			first.Close()
			return fault.Errorf(fault.Usage, "--device auto: rank 0 of this host has a GPU, rank %d has none: %w for all", rank, why)
		}
	}
	if rank == 0 && k.Wanted != nil && k.Wanted() {
		c.told.Do(func() { notes.Stderr().From("device").Warn("device auto: %v", why) })
	}
	return nil
}

// open is for who asked for this kind.
func (k Kind) open() (*device.Device, error) {
	if k.OnePerRank {
		if err := seated(); err != nil {
			return nil, err
		}
	}
	d, err := k.Open(local())
	return d, fault.With(fault.Usage, err)
}

// local is the GPU of this process: its number among those of the host, or the one that
// its launcher left visible.
func local() int {
	if gpus.Here().One() {
		return 0
	}
	if p, err := launched.Find(os.Getenv); err == nil && p != nil {
		return p.Local
	}
	return 0
}

// seated says when this host's ranks outnumber the GPUs that are visible. Where the
// driver cannot be asked, opening the device says more.
func seated() error {
	p, err := launched.Find(os.Getenv)
	s, unknown := gpus.Look()
	if err != nil || unknown != nil || p == nil {
		return err
	}
	shown := gpus.Here()
	if visible, err := s.Visible(shown); err == nil && len(visible) == 1 && p.LocalSize > 1 && len(s.GPUs) >= p.LocalSize {
		return nil // the launcher has left each rank its own
	}
	_, err = s.Seat(shown, p.Local, p.LocalSize)
	return err
}
