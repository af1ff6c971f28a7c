package report

import (
	"math"
	"slices"
	"time"
)

// Window gathers the iterations between two log lines. Means are over iterations
// whose step was not skipped. Unlike Megatron's, a window starts empty after the
// very first line too, so that the second line's loss is its own.
type Window struct {
	Advanced, Skipped, NaN int
	Elapsed                time.Duration
	sums                   []Value
}

// Add takes one iteration: its losses, whether its step was skipped (overflow of
// fp16), and its duration. A loss that is not finite counts as a NaN iteration
// only when the step was skipped: otherwise it ends the run or shows in the mean.
func (w *Window) Add(losses []Value, skipped bool, elapsed time.Duration) {
	w.Elapsed += elapsed
	if skipped {
		w.Skipped++
		if slices.ContainsFunc(losses, func(v Value) bool { return math.IsNaN(v.Value) || math.IsInf(v.Value, 0) }) {
			w.NaN++
		}
		return
	}
	w.Advanced++
	for _, loss := range losses {
		at := slices.IndexFunc(w.sums, func(v Value) bool { return v.Name == loss.Name })
		if at < 0 {
			w.sums = append(w.sums, loss)
			continue
		}
		w.sums[at].Value += loss.Value
	}
}

// Means are the mean losses in the order they first came.
func (w *Window) Means() []Value {
	means := slices.Clone(w.sums)
	for i := range means {
		means[i].Value /= float64(max(1, w.Advanced))
	}
	return means
}

// PerIteration is the mean duration of an iteration.
func (w *Window) PerIteration() time.Duration {
	return w.Elapsed / time.Duration(max(1, w.Advanced+w.Skipped))
}

// Fill copies what the window knows into a log line, and empties the window.
func (w *Window) Fill(it *Iteration) {
	it.Losses, it.Elapsed = w.Means(), w.PerIteration()
	it.SkippedIterations, it.NaNIterations = w.Skipped, w.NaN
	*w = Window{}
}
