package comm

import (
	"fmt"
	"strings"

	"monotron/fault"
)

// checkStandstill ends the world when every rank that has not ended sleeps for
// something that only another sleeper, or one that has ended, could bring. With
// the lock held.
func (w *World) checkStandstill() {
	if w.err != nil || w.carrying > 0 {
		return
	}
	asleep := 0
	for _, r := range w.ranks {
		if r.ended {
			continue
		}
		if r.waiting == nil || r.waiting.over {
			return
		}
		asleep++
	}
	if asleep > 0 {
		w.fail(fault.Errorf(fault.Internal, "the ranks wait for each other and none can go on: %s", w.sleepers()))
	}
}

func (w *World) sleepers() string {
	var lines []string
	for rank, r := range w.ranks {
		if r.ended {
			lines = append(lines, fmt.Sprintf("rank %d has ended", rank))
		} else {
			lines = append(lines, fmt.Sprintf("rank %d is in %s", rank, r.waiting.lacks()))
		}
	}
	return strings.Join(lines, "; ")
}
