// Package comm is how ranks talk. A rank owns its Groups and passes them to
// whatever needs them; nothing here is global. Order of a group's sums is rank
// order, so that a run repeats bit for bit.
package comm

import "monotron/csrc/device"

// ReduceOp combines the values of ranks.
type ReduceOp int

const (
	Sum ReduceOp = iota
	Max
)

// Work is a collective under way. Wait orders the rank's stream after it and
// returns its error; it need not wait on the host.
type Work interface{ Wait() error }

// Transfer is one half of a point-to-point exchange: to or from Peer, a rank of the group.
type Transfer struct {
	Peer int
	Send bool
	T    device.Tensor
}

// Group is a set of ranks, in order, and this rank's place among them. Every
// rank calls the same collectives in the same order. Tensors are contiguous.
type Group interface {
	Name() string
	Rank() int
	Size() int
	// AllReduce combines t in place.
	AllReduce(t device.Tensor, op ReduceOp) Work
	// AllGather fills out, Size() times as long as in, in rank order.
	AllGather(out, in device.Tensor) Work
	// ReduceScatter leaves this rank's part of the sum of in, Size() times as long as out.
	ReduceScatter(out, in device.Tensor) Work
	// AllToAllV sends send[i] to rank i and receives recv[i] from it.
	AllToAllV(recv, send []device.Tensor) Work
	Broadcast(t device.Tensor, root int) Work
	// Exchange makes all transfers as one: none waits for another.
	Exchange(transfers []Transfer) Work
	Barrier() error
}

// Solo is the group of one rank: nothing to combine. It needs the rank's device
// for the collectives that copy.
type Solo struct {
	Label  string
	Device *device.Device
}

type done struct{ err error }

func (d done) Wait() error { return d.err }

func (s Solo) Name() string                             { return s.Label }
func (s Solo) Rank() int                                { return 0 }
func (s Solo) Size() int                                { return 1 }
func (s Solo) AllReduce(device.Tensor, ReduceOp) Work   { return done{} }
func (s Solo) AllGather(out, in device.Tensor) Work     { return s.copy(out, in) }
func (s Solo) ReduceScatter(out, in device.Tensor) Work { return s.copy(out, in) }
func (s Solo) Broadcast(device.Tensor, int) Work        { return done{} }
func (s Solo) Barrier() error                           { return nil }

func (s Solo) AllToAllV(recv, send []device.Tensor) Work { return s.copy(recv[0], send[0]) }

// Exchange with oneself pairs the i-th send with the i-th receive.
func (s Solo) Exchange(transfers []Transfer) Work {
	var sends, receives []device.Tensor
	for _, t := range transfers {
		if t.Send {
			sends = append(sends, t.T)
		} else {
			receives = append(receives, t.T)
		}
	}
	for i := range receives {
		s.copy(receives[i], sends[i])
	}
	return done{}
}

func (s Solo) copy(out, in device.Tensor) Work {
	if out.Data != in.Data {
		s.Device.Copy(out, in)
	}
	return done{}
}
