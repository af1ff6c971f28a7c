package inproc

import (
	"testing"
	"time"

	"monotron/csrc/device"
	"monotron/csrc/ref"
)

// Claim: the bound counts what reduce-scatter and all-gather must touch, for two
// ranks five times a tensor, and a ratio comes out.
func TestBenchCountsBytes(t *testing.T) {
	s, err := Bench(func() (*device.Device, error) { return ref.Open(), nil }, 2, 1<<20, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Bound.Seconds() * s.Copy / float64(s.Bytes); got < 4.99 || got > 5.01 || s.Ratio() <= 0 {
		t.Errorf("%v: touches %g times the tensor, want 5", s, got)
	}
}
