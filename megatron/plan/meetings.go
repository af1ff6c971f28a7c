package plan

import (
	"fmt"
	"math"

	"monotron/csrc/device"
	"monotron/megatron/config"
	"monotron/megatron/engine"
	"monotron/megatron/training"
	"monotron/mpu/comm"
	"monotron/mpu/ranks"
)

// MeetingTimes is what ranks that share threads lose at a collective in addition to what it moves: they
// do not come at the same moment, and those that slept have to be woken. Of several groups it
// is what a rank's thread loses: while one group waits another computes, but not at once.
type MeetingTimes struct {
	Ranks   int     `yaml:"ranks"`            // that met, one a thread or more
	Groups  int     `yaml:"groups,omitempty"` // that met by themselves at the same time; left out: 1
	Seconds float64 `yaml:"seconds"`          // of each meeting
	Late    float64 `yaml:"late"`             // share of the work since the last meeting, by which the last one comes later than the mean
}

// after is what a meeting loses after so many seconds of work.
func (t MeetingTimes) after(work float64) float64 { return t.Seconds + t.Late*work }

// meeting is that of the nearest number of ranks, crowded: of several groups at once.
func (x *measured) meeting(n int, crowded bool) (best MeetingTimes) {
	far := math.Inf(1)
	for _, t := range x.meetings {
		if d := math.Abs(math.Log2(float64(t.Ranks) / float64(n))); d < far && t.Groups > 1 == crowded {
			best, far = t, d
		}
	}
	return best
}

// Met is a step of ranks that meet, as it was and as its parts say. Of one group that is its
// seconds, of several what a rank had of a thread.
type Met struct {
	Ranks    int // of a group
	Groups   int // 0: one
	Step     float64
	Parts    float64 // its ops on the threads that they share, and its collectives by themselves
	Meetings float64
	Work     float64 // a rank's between them, all together
}

// FitMeetings finds what meetings lose: what the steps' parts do not say.
func FitMeetings(steps []Met) (t MeetingTimes) {
	var mm, mw, ww, ml, wl float64 // sums over steps, each as a share of the step
	for _, s := range steps {
		m, w, lost := s.Meetings/s.Step, s.Work/s.Step, 1-s.Parts/s.Step
		mm, mw, ww, ml, wl = mm+m*m, mw+m*w, ww+w*w, ml+m*lost, wl+w*lost
	}
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

// Meet rehearses a step of c's first rank, of so many micro-batches, which took `step` seconds and
// `work` of them in ops.
func (m *Machine) Meet(c config.Run, micros int, step, work float64) (met Met, err error) {
	if m.measured == nil {
		m.index()
	}
	// A dry run of two steps, metered like a real rank.
	job, err := training.Rehearsal(c, micros)
	if err != nil {
		return met, err
	}
	d := device.Counting(m.Device, nil, device.Watching{})
	defer d.Close()
	w := &shareMeter{machine: m, into: stageLoad{forward: make([]load, 1), backward: make([]load, 1)}}
	rank, err := ranks.Imagine(engine.Ranks(&job.Config.Step, nil), 0, d, comm.Imagined{Started: w.started})
	if err != nil {
		return met, err
	}
	rank.Heard = w.heard
	_, err = job.Rehearse(rank, 2, w.observe())
	// Everything that this rank does, and what all ranks need on shared threads.
	all := w.into.rest
	all.add(w.into.forward[0], 1)
	all.add(w.into.backward[0], 1)
	sizes := c.Layout.Sizes()
	turns := max(1, float64(sizes.World())/float64(m.Threads))
	met = Met{Ranks: sizes.World(), Step: step, Parts: work*turns + all.wait, Meetings: w.meetings, Work: work}
	// With several tensor-parallel groups on one machine, one group's part.
	if sizes.TP > 1 && sizes.World() > sizes.TP {
		met.Ranks, met.Groups, met.Step, met.Parts = sizes.TP, sizes.World()/sizes.TP, step/turns, work+all.carry
	}
	return met, err
}

// checkMeetings checks what `monotron measure` writes of them.
func (m *Machine) checkMeetings() (problems []error) {
	for _, t := range m.Meetings {
		if t.Ranks < 2 || t.Ranks > 1<<16 || t.Groups < 0 || t.Groups > 1<<16 || !(t.Seconds >= 0 && t.Seconds < 10) || !(t.Late >= 0 && t.Late < 10) {
			problems = append(problems, fmt.Errorf("meetings: an entry has ranks %d, groups %d, seconds %g and late %g; ranks must be from 2 to 65536, groups from 0 to 65536, and seconds and late from 0 to 10", t.Ranks, t.Groups, t.Seconds, t.Late))
		}
	}
	return problems
}
