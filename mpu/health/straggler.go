package health

import (
	"fmt"
	"sort"
	"strings"
)

// stragglers is a remark on the slowest rank of each phase since the last one; ""
// where none is due. The caller holds the lock.
func (w *Watcher) stragglers() string {
	if w.settings.Remark == nil || len(w.ranks) < 2 {
		return ""
	}
	least := int64(-1)
	for i := range w.ranks {
		b := w.ranks[i].beat
		if b == nil || w.ranks[i].over {
			return ""
		}
		if w.marked != nil && b.Steps < w.marked[i].Steps+w.settings.Every {
			return ""
		}
		if least < 0 || b.Step < least {
			least = b.Step
		}
	}
	line := ""
	if w.marked != nil {
		line = w.slowest(least)
	}
	w.marked = make([]Beat, len(w.ranks))
	for i := range w.ranks {
		w.marked[i] = *w.ranks[i].beat
	}
	return line
}

// slowest says, by phase, which rank works longest, in milliseconds a step; what it
// waits for others does not count.
func (w *Watcher) slowest(step int64) string {
	var parts []string
	for _, p := range []Phase{Data, Forward, Backward, Reduce, Optimizer} {
		worst, times := 0, make([]float64, len(w.ranks))
		for i := range w.ranks {
			b, m := w.ranks[i].beat, &w.marked[i]
			times[i] = 1000 * (b.Own[p] - m.Own[p]) / float64(max(1, b.Steps-m.Steps))
			if times[i] > times[worst] {
				worst = i
			}
		}
		slow := times[worst]
		sort.Float64s(times)
		parts = append(parts, fmt.Sprintf("%s: rank %d, %.1f ms (median %.1f)", p, worst, slow, times[len(times)/2]))
	}
	return fmt.Sprintf("stragglers at step %d, with their own work per step: %s", step, strings.Join(parts, "; "))
}
