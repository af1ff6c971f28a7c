package health

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"monotron/mpu/comm/failure"
)

// Time-outs of phases that are learnt from the run (Settings.Factor): a rank that stays in a phase
// for longer than some times what any rank has stayed in it so far ends the run, also where it is
// busy, which is not a stall.

const (
	// learntSteps are to be over on every rank before time-outs hold.
	learntSteps = 3
	// leastTimeouts is how many of Settings.Limit a time-out is at least.
	leastTimeouts = 2
	// grownReported is by how much a time-out grows before it is reported again.
	grownReported = 1.5
)

// limits are the time-outs of phases; 0: none has been learnt. The caller holds the lock.
func (w *Watcher) limits() (limits [Phases]time.Duration) {
	if w.settings.Factor <= 0 {
		return limits
	}
	for i := range w.ranks {
		b := w.ranks[i].beat
		if b == nil || b.Steps <= learntSteps {
			return [Phases]time.Duration{}
		}
		for p := Startup + 1; p < Phases; p++ {
			if b.Longest[p] > 0 {
				limits[p] = max(limits[p], leastTimeouts*w.settings.Limit, time.Duration(w.settings.Factor*b.Longest[p]*float64(time.Second)))
			}
		}
	}
	return limits
}

// learnt is a line on the time-outs where they are new or have grown; "": it is not due. The caller
// holds the lock.
func (w *Watcher) learnt(limits [Phases]time.Duration) string {
	due, parts := false, []string(nil)
	for p, limit := range limits {
		if limit == 0 {
			continue
		}
		due = due || float64(limit) > grownReported*float64(w.limited[p])
		parts = append(parts, fmt.Sprintf("%s %.0f s", Phase(p), limit.Seconds()))
	}
	if !due {
		return ""
	}
	w.limited = limits
	return fmt.Sprintf("time-outs learned from this run: %s (%g times the longest time that a rank has spent in the phase, and at least %.0f s)", strings.Join(parts, ", "), w.settings.Factor, (leastTimeouts * w.settings.Limit).Seconds())
}

// outlasting is the verdict on a rank that stays in a phase for too long; nil: none does. Of
// several it is one that does not wait for the others, else whom they wait for.
func (w *Watcher) outlasting(limits [Phases]time.Duration, now time.Time) *failure.Verdict {
	// Who has been in a phase for too long.
	var late []int
	for i := range w.ranks {
		v := &w.ranks[i]
		if v.over || v.beat == nil || now.Sub(v.heard) > grace || limits[v.beat.Phase] == 0 {
			continue
		}
		if stay(v, now) > limits[v.beat.Phase] {
			late = append(late, i)
		}
	}
	if late == nil {
		return nil
	}
	// Whom to blame.
	s := newStill(&frozen{slices.Clone(w.ranks), w.groups})
	rank := late[0]
	if free := slices.IndexFunc(late, func(i int) bool { return w.ranks[i].beat.Waiting == nil }); free >= 0 {
		rank = late[free]
	} else if culprit := s.culprit(); culprit >= 0 {
		rank = culprit
	}
	verdict, b := s.verdict(failure.Stall, rank), w.ranks[rank].beat
	verdict.Text = fmt.Sprintf("rank %d has been in %s for %.0f s; the time-out learned from this run is %.0f s (--phase-timeout-factor %g)", rank, At(b.Phase, b.Step), stay(&w.ranks[rank], now).Seconds(),
		limits[w.ranks[late[0]].beat.Phase].Seconds(), w.settings.Factor)
	if n := len(late) - 1; n > 0 && slices.Contains(late, rank) {
		verdict.Text += fmt.Sprintf("; %d other ranks wait in the same phase", n)
	}
	return verdict
}

// stay is how long a rank has been in its phase.
func stay(v *view, now time.Time) time.Duration {
	return time.Duration(v.beat.Since)*time.Millisecond + now.Sub(v.heard)
}
