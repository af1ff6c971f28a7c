// Package comm is how ranks talk. A rank owns its Groups and passes them to
// whatever needs them; nothing here is global. Order of a group's sums is rank
// order, so that a run repeats bit for bit.
//
// Reading order: comm.go (what a group does), solo.go (one rank), world.go (ranks
// that are goroutines of one process: where they meet and how they fail),
// rounds.go (collectives), exchange.go (point to point), carry.go (who moves and
// sums the bytes), standstill.go (ranks that wait for each other). Ranks that are
// processes: process.go, processgroup.go, transit.go, links.go, and roads.go (shared
// memory, Gloo, TCP). Ranks on GPUs: carrier.go, then nccl.go or staged.go.
package comm

import "monotron/csrc/device"

// ReduceOp combines the values of ranks.
type ReduceOp int

const (
	Sum ReduceOp = iota
	Max
)

func (op ReduceOp) String() string { return [...]string{"sum", "max"}[op] }

// Work is a collective under way. Wait orders the rank's stream after it and
// returns its error; it need not wait on the host. Until then the collective's
// tensors may be neither read, written nor freed.
type Work interface{ Wait() error }

// Transfer is one half of a point-to-point exchange: to or from Peer, a rank of the group.
type Transfer struct {
	Peer int
	Send bool
	T    device.Tensor
}

// Group is a set of ranks, in order, and this rank's place among them. Every
// rank calls the same collectives in the same order, with equal sizes and
// dtypes. Tensors are contiguous, of dtype f32, f64, bf16, f16, i32 or i64 where
// they are reduced; bf16 and f16 are summed in f32 and rounded once.
// A tensor of the wrong size or dtype on one rank alone is a bug and panics; ranks
// that disagree all get the same error.
type Group interface {
	Name() string
	Rank() int
	Size() int
	// AllReduce combines t in place.
	AllReduce(t device.Tensor, op ReduceOp) Work
	// Reduce combines t in place at root; the others keep theirs.
	Reduce(t device.Tensor, op ReduceOp, root int) Work
	// Broadcast gives everybody root's t.
	Broadcast(t device.Tensor, root int) Work
	// AllGather fills out, Size() times as long as in, in rank order. In may be
	// this rank's part of out.
	AllGather(out, in device.Tensor) Work
	// Gather is AllGather at root; the others' out is not given.
	Gather(out, in device.Tensor, root int) Work
	// Scatter gives out the rank's part of root's in, which is Size() times as
	// long; the others' in is not given.
	Scatter(out, in device.Tensor, root int) Work
	// ReduceScatter leaves this rank's part of the sum of in, Size() times as
	// long as out. Out may be this rank's part of in.
	ReduceScatter(out, in device.Tensor) Work
	// AllToAllV sends send[i] to rank i and receives recv[i] from it.
	AllToAllV(recv, send []device.Tensor) Work
	// Exchange makes all transfers as one: none waits for another. The i-th send
	// from a to b meets b's i-th receive from a.
	Exchange(transfers []Transfer) Work
	Barrier() error
}

// finished is a Work that is over.
type finished struct{ err error }

func (f finished) Wait() error { return f.err }
