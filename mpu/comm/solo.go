package comm

import (
	"monotron/csrc/device"
	"monotron/internal/exitcode"
)

// Solo is a group of one rank of a world.
func Solo(name string, rank int, d *device.Device) *Group {
	return NewGroup(Membership{Name: name, Members: []int{rank}}, solo{d})
}

// solo is the engine of a rank that is alone: what it brings is the result.
type solo struct{ device *device.Device }

func (s solo) Start(c *Collective) Work {
	if c.Op == AllToAll || c.Op == Exchange {
		return Finished(s.exchange(c.Transfers))
	}
	s.copy(c.Out, c.In)
	return Finished(nil)
}

// exchange with oneself pairs the i-th send with the i-th receive.
func (s solo) exchange(transfers []Transfer) error {
	var sends, receives []device.Tensor
	for _, t := range transfers {
		if t.Send {
			sends = append(sends, t.T)
		} else {
			receives = append(receives, t.T)
		}
	}
	if len(sends) != len(receives) {
		return exitcode.Errorf(exitcode.Internal, "internal error: a group of one rank sends itself %d messages but receives %d; report this, and include the command line", len(sends), len(receives))
	}
	for i := range receives {
		s.copy(receives[i], sends[i])
	}
	return nil
}

func (s solo) copy(out, in device.Tensor) {
	if out.Data != in.Data {
		s.device.Copy(out, in)
	}
}
