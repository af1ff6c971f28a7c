package telemetry

import (
	"math"
	"slices"
	"time"
)

// window gathers the iterations between two log lines. Means are over iterations
// whose step was not skipped. Unlike Megatron's, a window starts empty after the
// very first line too, so that the second line's loss is its own.
type window struct {
	advanced, skipped, nan int
	elapsed                time.Duration
	sums                   []Value
}

// means are what a log line says of a window.
type means struct {
	losses       []Value
	elapsed      time.Duration // an iteration
	skipped, nan int
}

// add takes one iteration. A loss that is not finite counts as a NaN iteration
// only when the step was skipped: otherwise it ends the run or shows in the mean.
func (w *window) add(s *Step) {
	w.elapsed += s.Elapsed
	if s.Skipped {
		w.skipped++
		if slices.ContainsFunc(s.Losses, func(v Value) bool { return math.IsNaN(v.Value) || math.IsInf(v.Value, 0) }) {
			w.nan++
		}
		return
	}
	w.advanced++
	for _, loss := range s.Losses {
		at := slices.IndexFunc(w.sums, func(v Value) bool { return v.Name == loss.Name })
		if at < 0 {
			w.sums = append(w.sums, loss)
			continue
		}
		w.sums[at].Value += loss.Value
	}
}

// take gives the means, the losses in the order they first came, and empties the window.
func (w *window) take() means {
	m := means{losses: slices.Clone(w.sums), skipped: w.skipped, nan: w.nan,
		elapsed: w.elapsed / time.Duration(max(1, w.advanced+w.skipped))}
	for i := range m.losses {
		m.losses[i].Value /= float64(max(1, w.advanced))
	}
	*w = window{}
	return m
}
