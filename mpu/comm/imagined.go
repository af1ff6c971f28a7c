package comm

import (
	"slices"

	"monotron/csrc/device"
)

// Imagined gives groups of which this rank alone is there: a collective is over at once and
// moves nothing. A plan is counted with them, on a device without values.
type Imagined struct {
	Started func(*Membership, *Collective) // is shown each one; nil: nobody is
	Shares  bool                           // a sum as a Tree takes memory for the shares of the other ranks, as over NCCL
}

// Group has the members that the world's would have.
func (i Imagined) Group(rank int, name string, members []int, d *device.Device) (*Group, error) {
	m := Membership{Name: name, Members: members, Rank: slices.Index(members, rank)}
	return NewGroup(m, imagined{i, m, d}), nil
}

type imagined struct {
	Imagined
	member Membership
	device *device.Device
}

func (i imagined) Start(c *Collective) Work {
	if i.Started != nil {
		i.Started(&i.member, c)
	}
	if others := int64(i.member.Size() - 1); i.Shares && c.Reduce == Tree && (c.Op == AllReduce || c.Op == ReduceScatter) && others > 0 {
		return i.receive(c.In, others)
	}
	return Finished(nil)
}

// receive takes memory for the other ranks' parts of this rank's share of t.
func (i imagined) receive(t device.Tensor, others int64) Work {
	s := i.device.Arena.Scope(device.Communication)
	for range others {
		s.Alloc(t.DType, (t.Len()+others)/(others+1))
	}
	return received{s}
}

// received is a sum that is over, whose shares are kept until the rank waits for it.
type received struct{ shares *device.Scope }

func (r received) Wait() error {
	r.shares.Release()
	return nil
}
