package comm

import (
	"fmt"
	"time"

	"monotron/csrc/device"
)

// Call is one collective, or one half of a point-to-point message, as one rank
// called it.
type Call struct {
	Group   string
	Members []int  // of the group, as ranks of the world
	Seq     int64  // of the group's collectives; of the messages from one member to another
	Op      string // all_reduce, send, ...
	Reduce  string // sum, max, or nothing
	Root    int    // rank of the world the call names: root, or peer of a message; -1: none
	Count   int64  // elements each rank brings; 0 where ranks may differ
	DType   device.DType
	Posted  time.Time
	Ended   time.Time // zero: under way
}

// String names the call as errors do.
func (c *Call) String() string {
	return fmt.Sprintf("%s #%d of group %s %v", c.what(), c.Seq, c.Group, c.Members)
}

// what is the call without its place: what ranks must agree on.
func (c *Call) what() string {
	text := c.Op
	if c.Reduce != "" {
		text += "(" + c.Reduce + ")"
	}
	if c.Count > 0 {
		text += fmt.Sprintf(" of %d %s", c.Count, c.DType)
	}
	if c.Root >= 0 {
		text += fmt.Sprintf(" with rank %d", c.Root)
	}
	return text
}

// agrees tells whether two ranks called the same thing.
func (c *Call) agrees(o *Call) bool {
	return c.Op == o.Op && c.Reduce == o.Reduce && c.Root == o.Root && c.Count == o.Count && c.DType == o.DType
}

// ledger keeps a rank's newest call, for errors; package watch keeps a thousand.
type ledger struct{ newest *Call }

func (l *ledger) add(c *Call) { l.newest = c }

// last is the newest call; nil: none yet.
func (l *ledger) last() *Call { return l.newest }
