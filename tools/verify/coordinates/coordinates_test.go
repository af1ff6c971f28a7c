package coordinates

import (
	"math"
	"testing"

	"monotron/csrc/device"
	"monotron/csrc/ref"
)

// Claim: with muP no tensor moves by more than width^0.3, over widths in the ratio of 4;
// without it every layer moves by more than the root of the width.
func TestMuPKeepsActivations(t *testing.T) {
	check := func(standard bool) *Report {
		r, err := Check(Options{Widths: []int{64, 128, 256}, Steps: 4, LR: 0.01, Standard: standard, Open: func() (*device.Device, error) { return ref.Open(), nil }, OnWidth: func(int) {}})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if worst := check(false).Steepest(); math.Abs(worst.Slope) > 0.3 {
		t.Errorf("%s moves by width^%.2f with muP", worst.Name, worst.Slope)
	}
	for _, row := range check(true).Rows {
		if row.Slope < 0.5 {
			t.Errorf("%s moves by width^%.2f without muP", row.Name, row.Slope)
		}
	}
}

// Claim: the slope is that of a power.
func TestSlope(t *testing.T) {
	if got := slope([]int{1, 2, 4}, []float64{3, 12, 48}); math.Abs(got-2) > 1e-12 {
		t.Errorf("%g, want 2", got)
	}
}
