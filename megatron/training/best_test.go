package training

import (
	"math"
	"testing"
)

// Claim: the lowest loss counts, an equal one is not lower, a NaN is worse than any; the loss before the
// first step does not count.
func TestBest(t *testing.T) {
	var b Best
	for i, w := range []struct {
		loss      float64
		iteration int64 // of the lowest afterwards
		worse     int
	}{{1, 0, 0}, {math.NaN(), 0, 1}, {3, 10, 0}, {2, 15, 0}, {2, 15, 1}, {math.Inf(1), 15, 2}, {1.5, 30, 0}, {1.75, 30, 1}} {
		b.add(int64(5*i), w.loss)
		if b.Iteration != w.iteration || b.Worse != w.worse || b.Last != int64(5*i) {
			t.Errorf("after %v at %d: %+v, want the lowest at %d, %d evaluations ago", w.loss, 5*i, b, w.iteration, w.worse)
		}
	}
	if b.Start == nil || *b.Start != 1 || b.Loss != 1.5 {
		t.Errorf("%+v: want 1 before the first step, 1.5 now", b)
	}
}
