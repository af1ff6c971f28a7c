package estimate

import (
	"fmt"
	"math"

	"monotron/csrc/device"
	"monotron/megatron/training"
	"monotron/mpu/comm"
	"monotron/mpu/ranks"
)

// MeetingTimes is what ranks that share threads lose at a collective beside what it moves: they
// do not come at the same moment, and those that slept have to be woken.
type MeetingTimes struct {
	Ranks   int     `yaml:"ranks"`   // that met, one a thread or more
	Seconds float64 `yaml:"seconds"` // of each meeting
	Late    float64 `yaml:"late"`    // share of the work since the last meeting, by which the last one comes later than the mean
}

// after is what a meeting loses after so many seconds of work.
func (t MeetingTimes) after(work float64) float64 { return t.Seconds + t.Late*work }

// meeting is that of the nearest number of ranks.
func (x *measured) meeting(n int) (best MeetingTimes) {
	far := math.Inf(1)
	for _, t := range x.meetings {
		if d := math.Abs(math.Log2(float64(t.Ranks) / float64(n))); d < far {
			best, far = t, d
		}
	}
	return best
}

// Met is a step of ranks that all meet each other, as it was and as its parts say.
type Met struct {
	Step     float64 // seconds
	Parts    float64 // its ops on the threads that they share, and its collectives by themselves
	Meetings float64
	Work     float64 // a rank's between them, all together
}

// FitMeetings finds what meetings of n ranks lose: what the steps' parts do not say.
func FitMeetings(n int, steps []Met) MeetingTimes {
	var mm, mw, ww, ml, wl float64 // sums over steps, each as a share of the step
	for _, s := range steps {
		m, w, lost := s.Meetings/s.Step, s.Work/s.Step, 1-s.Parts/s.Step
		mm, mw, ww, ml, wl = mm+m*m, mw+m*w, ww+w*w, ml+m*lost, wl+w*lost
	}
	t := MeetingTimes{Ranks: n}
	if det := mm*ww - mw*mw; det > 1e-9*mm*ww {
		t.Seconds, t.Late = (ml*ww-wl*mw)/det, (wl*mm-ml*mw)/det
	}
	switch { // neither takes less than nothing
	case t.Late <= 0 && mm > 0:
		t.Seconds, t.Late = max(0, ml/mm), 0
	case t.Seconds <= 0 && ww > 0:
		t.Seconds, t.Late = 0, max(0, wl/ww)
	}
	return t
}

// Meet rehearses a step of c's first rank: how many there are in it, and what they take by themselves.
func (m *Machine) Meet(c training.Config, micros int) (count, seconds float64, err error) {
	if m.measured == nil {
		m.index()
	}
	job, err := training.Rehearsal(c, micros)
	if err != nil {
		return 0, 0, err
	}
	d := device.Counting(m.Device, nil, device.Watching{})
	defer d.Close()
	w := &shareMeter{machine: m, into: stageLoad{forward: make([]load, 1), backward: make([]load, 1)}}
	rank, err := ranks.Imagine(job.Config.Ranks(nil), 0, d, comm.Imagined{Started: w.started})
	if err != nil {
		return 0, 0, err
	}
	rank.Heard = w.heard
	err = job.Rehearse(rank, 2, w.look())
	for _, l := range []load{w.into.forward[0], w.into.backward[0], w.into.rest} {
		seconds += l.wait
	}
	return w.meetings, seconds, err
}

// checkMeetings looks at what `monotron measure` writes of them.
func (m *Machine) checkMeetings() (problems []error) {
	for _, t := range m.Meetings {
		if t.Ranks < 2 || t.Ranks > 1<<16 || !(t.Seconds >= 0 && t.Seconds < 10) || !(t.Late >= 0 && t.Late < 10) {
			problems = append(problems, fmt.Errorf("meetings: %d ranks, %g seconds, late %g; it must be at least 2 ranks, and from 0 to 10", t.Ranks, t.Seconds, t.Late))
		}
	}
	return problems
}
