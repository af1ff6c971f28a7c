package schedule

import (
	"errors"
	"math"
	"testing"
	"time"
)

// onClock is a simulated stage seen through a meter whose time is the clock's.
type onClock struct{ *stageClock }

func (c onClock) time() time.Time { return time.Unix(0, int64(math.Round(c.now*1e9))) }

// Claim: what the meter measures on a simulated clock is the timeline, and the
// bubble of equal stages is the formula's.
func TestMeterAgainstTheTimeline(t *testing.T) {
	for _, c := range []Config{{Stages: 4, Micros: 8}, {Stages: 3, Chunks: 2, Micros: 6}, {Name: GPipeName, Stages: 2, Micros: 3}} {
		times := Even(c, 0.25, 0.5, 0)
		line, err := Simulate(c, times)
		if err != nil {
			t.Fatal(err)
		}
		lists, _, err := c.All()
		if err != nil {
			t.Fatal(err)
		}
		s := &execution{times: times, meetings: meetings(lists)}
		measured, failed := make(Measured, c.Stages), make(chan error, c.Stages)
		for stage := range lists {
			go func() {
				var err error
				on := &stageClock{execution: s, stage: stage}
				measured[stage], err = RunMeasured(lists[stage], on, on, onClock{on}.time)
				failed <- err
			}()
		}
		for range lists {
			if err := <-failed; err != nil {
				t.Fatal(err)
			}
		}
		for stage, u := range measured {
			if math.Abs(u.Busy().Seconds()-line.Busy(stage)) > 1e-6 || u.Forward*2 != u.Backward {
				t.Errorf("%+v, stage %d: %+v, the timeline says busy %g", c, stage, u, line.Busy(stage))
			}
		}
		if want := c.BubbleFraction(); math.Abs(measured.Bubble()-want) > 1e-6 {
			t.Errorf("%+v: bubble %g, the formula says %g", c, measured.Bubble(), want)
		}
	}
}

// Claim: the line says who did what.
func TestMeasuredLine(t *testing.T) {
	ms := time.Millisecond
	m := Measured{{10 * ms, 20 * ms, 15 * ms, 45 * ms}, {10 * ms, 20 * ms, 5 * ms, 35 * ms}}
	want := "pipeline stages (ms) | forward: 10.0 10.0 | backward: 20.0 20.0 | waiting: 15.0 5.0 | bubble: 50.0% of the work (equal stages: 50.0%)"
	if got := m.Line(Config{Stages: 2, Micros: 2}); got != want {
		t.Errorf("%s, want\n%s", got, want)
	}
	if b := (Measured{{}, {}}).Bubble(); b != 0 {
		t.Errorf("stages that did nothing have a bubble of %g", b)
	}
}

// Claim: a measured run fails as the run does.
func TestMeasuredRunFails(t *testing.T) {
	if _, err := RunMeasured(OneFOneB(0, 2, 1), broken{Exchange}, broken{Exchange}, nil); !errors.Is(err, errBroken) {
		t.Error(err)
	}
}
