package comm

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/mpu/comm/failure"
)

// Call is one collective, or one half of a point-to-point message, as one rank
// called it.
type Call struct {
	Group   string
	Members []int // of the group, as ranks of the world
	Rank    int   // of the world: who called
	Seq     int64 // of the group's collectives; of the messages from one member to another
	Op      Op
	Reduce  ReduceOp
	Root    int   // rank of the world the call names: root, or peer of a message; -1: none
	Count   int64 // elements each rank brings; 0 where ranks may differ
	DType   device.DType
	Posted  time.Time
	Ended   time.Time // zero: under way
}

// String names the call as errors do.
func (c *Call) String() string {
	return fmt.Sprintf("%s #%d of group %s %v", c.What(), c.Seq, c.Group, c.Members)
}

// What is the call without its group and number: what ranks must agree on.
func (c *Call) What() string {
	text := c.Op.String()
	if c.Reduce != 0 {
		text += "(" + c.Reduce.String() + ")"
	}
	if c.Count > 0 {
		text += fmt.Sprintf(" of %d %s", c.Count, c.DType)
	}
	if c.Root >= 0 {
		text += fmt.Sprintf(" with rank %d", c.Root)
	}
	return text
}

// Agrees reports whether two ranks called the same thing.
func (c *Call) Agrees(o *Call) bool {
	return c.Op == o.Op && c.Reduce == o.Reduce && c.Root == o.Root && c.Count == o.Count && c.DType == o.DType
}

// Mismatch is an error of ranks of one group that do not call the same, or whose
// messages differ at their two ends.
type Mismatch struct {
	Group   string
	Members []int
	Seq     int64
	Calls   []Call // that differ, by rank
}

// Differ makes the error of two calls that do not fit.
func Differ(a, b *Call) error {
	m := &Mismatch{Group: a.Group, Members: a.Members, Seq: a.Seq, Calls: []Call{*a, *b}}
	slices.SortFunc(m.Calls, func(a, b Call) int { return cmp.Compare(a.Rank, b.Rank) })
	return exitcode.With(exitcode.Internal, m)
}

// Fill sets in a verdict what is known: who has noticed is not who is wrong.
func (m *Mismatch) Fill(v *failure.Verdict) {
	v.Kind, v.Rank = failure.Mismatch, -1
	if !m.ofMessage() {
		v.Differing = &failure.Differing{Group: m.Group, Members: m.Members, Seq: m.Seq, Ranks: [2]int{m.Calls[0].Rank, m.Calls[1].Rank}}
	}
}

// ofMessage reports whether it is a message's two ends that differ, not a collective.
func (m *Mismatch) ofMessage() bool {
	return !slices.ContainsFunc(m.Calls, func(c Call) bool { return c.Op != Send && c.Op != Receive })
}

func (m *Mismatch) Error() string {
	a, b := &m.Calls[0], &m.Calls[1]
	if m.ofMessage() {
		return m.message(a, b)
	}
	return fmt.Sprintf("the ranks of group %s %v do not call the same operations: #%d is %s on rank %d, but %s on rank %d",
		m.Group, m.Members, m.Seq, a.What(), a.Rank, b.What(), b.Rank)
}

// message describes two halves that differ.
func (m *Mismatch) message(from, to *Call) string {
	if from.Op == Receive {
		from, to = to, from
	}
	return fmt.Sprintf("message #%d of group %s %v from rank %d to rank %d has %d elements of type %s at the sender, but %d of type %s at the receiver",
		m.Seq, m.Group, m.Members, from.Rank, to.Rank, from.Count, from.DType, to.Count, to.DType)
}
