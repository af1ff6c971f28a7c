package telemetry

import (
	"slices"
	"testing"
)

// Claim (docs/logging.md): a score compares a rank's own work with the fastest rank of its kind,
// and with its own fastest line.
func TestScores(t *testing.T) {
	var s Scorer
	if got := s.Score([]float64{3}, []int{0}); got != nil {
		t.Errorf("one rank has the scores %v", got)
	}
	kinds := []int{0, 1, 0, 1}
	for _, c := range []struct{ seconds, others, past []float64 }{
		{[]float64{1, 8, 2, 4}, []float64{1, 0.5, 0.5, 1}, []float64{1, 1, 1, 1}},
		{[]float64{2, 4, 2, 4}, []float64{1, 1, 1, 1}, []float64{0.5, 1, 1, 1}},
		{[]float64{1, 8, 4, 0}, []float64{1, 0, 0.25, 1}, []float64{1, 0.5, 0.5, 1}},
	} {
		got := s.Score(c.seconds, kinds)
		if !slices.Equal(got.Others, c.others) || !slices.Equal(got.Past, c.past) {
			t.Errorf("of %v: %v and %v, want %v and %v", c.seconds, got.Others, got.Past, c.others, c.past)
		}
	}
}
