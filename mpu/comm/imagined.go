package comm

import (
	"slices"

	"monotron/csrc/device"
)

// Imagined gives groups of which this rank alone is there: a collective is over at once and
// moves nothing. A plan is counted with them, on a device without values.
type Imagined struct {
	Started func(*Membership, *Collective) // is shown each one; nil: nobody is
}

// Group has the members that the world's would have.
func (i Imagined) Group(rank int, name string, members []int, _ *device.Device) (*Group, error) {
	m := Membership{Name: name, Members: members, Rank: slices.Index(members, rank)}
	return NewGroup(m, imagined{i, m}), nil
}

type imagined struct {
	Imagined
	member Membership
}

func (i imagined) Start(c *Collective) Work {
	if i.Started != nil {
		i.Started(&i.member, c)
	}
	return Finished(nil)
}
