package comm

import (
	"fmt"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
)

// Op is what a collective does, or one half of a message.
type Op uint32

// The numbers stand in flight records and in the headers of messages.
const (
	AllReduce Op = iota + 1
	Reduce
	Broadcast
	AllGather
	Gather
	Scatter
	ReduceScatter
	AllToAll
	Barrier
	Exchange
	Send    // half of an exchange
	Receive // the other half
)

var opNames = [...]string{"", "all_reduce", "reduce", "broadcast", "all_gather", "gather", "scatter", "reduce_scatter", "all_to_all", "barrier", "exchange", "send", "receive"}

// String is how ledgers, records and errors spell it.
func (op Op) String() string { return nameOf(opNames[:], uint32(op)) }

// MarshalText and UnmarshalText write and read a record's spelling.
func (op Op) MarshalText() ([]byte, error)     { return []byte(op.String()), nil }
func (op *Op) UnmarshalText(text []byte) error { return numberOf(opNames[:], text, (*uint32)(op)) }

// Rooted reports whether one rank of the group has a part of its own.
func (op Op) Rooted() bool { return op == Reduce || op == Broadcast || op == Gather || op == Scatter }

// ReduceOp combines the values of ranks; 0: they are not combined.
type ReduceOp uint32

// Sum adds in the order of the ranks, Tree as a balanced binary tree over them: first
// neighbours, then neighbouring pairs (of 6 ranks ((0+1)+(2+3))+(4+5)). What aligned groups of
// a power of two ranks have added up by Tree, and the group of their sums, are the same sum.
const (
	Sum ReduceOp = iota + 1
	Max
	Tree
)

var reduceNames = [...]string{"", "sum", "max", "tree"}

func (op ReduceOp) String() string { return nameOf(reduceNames[:], uint32(op)) }

// MarshalText and UnmarshalText write and read a record's spelling.
func (op ReduceOp) MarshalText() ([]byte, error) { return []byte(op.String()), nil }
func (op *ReduceOp) UnmarshalText(text []byte) error {
	return numberOf(reduceNames[:], text, (*uint32)(op))
}

func nameOf(names []string, i uint32) string {
	if int64(i) < int64(len(names)) {
		return names[i]
	}
	return "unknown"
}

func numberOf(names []string, text []byte, to *uint32) error {
	for i, name := range names {
		if name == string(text) {
			*to = uint32(i)
			return nil
		}
	}
	return exitcode.Errorf(exitcode.BadData, "%q is not one of %q", text, names)
}

// Transfer is one half of a point-to-point exchange: to or from Peer, a rank of the group.
type Transfer struct {
	Peer int
	Send bool
	T    device.Tensor
}

// Collective is what one rank calls: which tensors take part depends on the op.
//
//	all_reduce, reduce, broadcast   In is Out: changed in place
//	all_gather, gather              Out is as long as everybody's In; gather: at root alone
//	scatter, reduce_scatter         In is as long as everybody's Out; scatter: at root alone
//	all_to_all, exchange            Transfers; all_to_all: one to and one from each rank, in rank order
//	barrier                         none
type Collective struct {
	Op        Op
	Reduce    ReduceOp
	Root      int // a rank of the group; of ops that are rooted
	In, Out   device.Tensor
	Transfers []Transfer
}

// Share is the tensor that each rank has, whose size and dtype all must agree on;
// none where ranks may differ.
func (c *Collective) Share() device.Tensor {
	if c.Op == Scatter || c.Op == ReduceScatter {
		return c.Out
	}
	return c.In
}

// InPlace reports whether the output overwrites the input.
func (c *Collective) InPlace() bool {
	return c.Out.Given() && c.Out.Data == c.In.Data && c.Out.Len() == c.In.Len()
}

// Work is a collective under way. Wait orders the rank's stream after it and
// returns its error; it need not wait on the host. Until then the collective's
// tensors may be neither read, written nor freed; what only goes may be read.
type Work interface{ Wait() error }

// Behind is a Work that a device does behind the host's back: Wait only orders the rank's
// stream after it.
type Behind interface {
	Work
	// Tell has begun called when the device comes to the collective, and over when that is
	// done, once each and in this order, soon after; neither where it could not be started.
	Tell(begun, over func())
}

// Finished is a Work that is over.
func Finished(err error) Work { return finished{err} }

type finished struct{ err error }

func (f finished) Wait() error { return f.err }

// Engine carries out the collectives of one rank in one group, which have been
// checked. What comes between, to record, to stage or to break them, is an Engine
// over another.
type Engine interface{ Start(c *Collective) Work }

// Membership is a rank's position in a group.
type Membership struct {
	Name    string
	Members []int // ranks of the world, in the group's order
	Rank    int   // this one's number among them
}

// Size is the number of ranks.
func (m *Membership) Size() int { return len(m.Members) }

// Call is how a collective stands in ledgers and errors.
func (m *Membership) Call(c *Collective) Call {
	call := Call{Group: m.Name, Members: m.Members, Rank: m.Members[m.Rank], Op: c.Op, Reduce: c.Reduce, Root: -1}
	if c.Op.Rooted() {
		call.Root = m.Members[c.Root]
	}
	if t := c.Share(); t.Given() {
		call.Count, call.DType = t.Len(), t.DType
	}
	return call
}

// Message is how one half of an exchange stands there; seq counts from one member to
// the other.
func (m *Membership) Message(t *Transfer, seq int64) Call {
	call := Call{Group: m.Name, Members: m.Members, Rank: m.Members[m.Rank], Seq: seq, Op: Receive, Root: m.Members[t.Peer], Count: t.T.Len(), DType: t.T.DType}
	if t.Send {
		call.Op = Send
	}
	return call
}

// String names the group as errors do.
func (m *Membership) String() string { return fmt.Sprintf("group %s %v", m.Name, m.Members) }
