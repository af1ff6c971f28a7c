package inproc

import (
	"fmt"
	"strings"
	"time"

	"monotron/internal/exitcode"
)

// checkStandstill ends the world when every rank that has not ended sleeps for
// something that only another sleeper, or one that has ended, could bring. The
// caller holds the lock.
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
		w.fail(exitcode.Errorf(exitcode.Internal, "deadlock: all ranks wait for each other: %s", w.sleepers()))
	}
}

// late ends the world because rank has waited as long as it may.
func (w *World) late(t *task, rank int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !t.over {
		w.fail(exitcode.Errorf(exitcode.Internal, "rank %d has waited for its peers for %v (--distributed-timeout-minutes): %s", rank, w.Timeout, w.sleepers()))
	}
}

// sleepers says where every rank is.
func (w *World) sleepers() string {
	var lines []string
	for rank, r := range w.ranks {
		switch last := r.newest; {
		case r.ended:
			lines = append(lines, fmt.Sprintf("rank %d has ended", rank))
		case r.waiting != nil && !r.waiting.over:
			lines = append(lines, fmt.Sprintf("rank %d is in %s", rank, r.waiting.lacks()))
		case last != nil:
			lines = append(lines, fmt.Sprintf("rank %d has been computing since %s, %v ago", rank, last, time.Since(last.Posted).Round(time.Millisecond)))
		default:
			lines = append(lines, fmt.Sprintf("rank %d has not called any operation yet", rank))
		}
	}
	return strings.Join(lines, "; ")
}
