package training

import (
	"errors"
	"testing"
	"time"
)

// Claim: a first measurement that was too low is repeated at once, later ones at most each half
// minute; a machine that has grown slower or faster is measured again; what a step has
// reached is possible, so that no MFU is above 1; a measurement that fails changes nothing.
func TestPeakIsMeasuredAgain(t *testing.T) {
	start := time.Unix(1e9, 0)
	next, failure := 100.0, error(nil)
	p := &peak{speed: 10, at: start, measured: 1, measure: func() (float64, error) { return next, failure }}
	for _, step := range []struct {
		at      time.Duration
		speed   float64 // of the step
		truth   float64 // what a measurement would give
		failure error
		checks  bool
		want    float64 // believed then
	}{
		{1, 5, 10, nil, false, 10},
		{2, 44.8, 100, nil, true, 100}, // 448%
		{3, 50, 100, nil, false, 100},
		{4, 120, 100, nil, false, 120}, // too soon for a measurement
		{40, 60, 100, nil, false, 120},
		{41, 20, 40, nil, true, 40}, // others work here too
		{42, 20, 40, nil, false, 40},
		{90, 30, 80, errors.New("no memory"), true, 40},
		{91, 30, 80, nil, false, 40},
		{130, 60, 80, nil, true, 80},
	} {
		now := start.Add(step.at * time.Second)
		next, failure = step.truth, step.failure
		checks := p.doubted(step.speed/p.believed(), now)
		if checks {
			if err := p.again(now); !errors.Is(err, step.failure) {
				t.Error(err)
			}
		}
		p.reached(step.speed)
		if checks != step.checks || p.believed() != step.want {
			t.Errorf("at %d s: looks %v, believes %g; want %v, %g", step.at, checks, p.believed(), step.checks, step.want)
		}
	}
	var none *peak
	if none.believed() != 0 {
		t.Error("what was not measured is believed")
	}
}
