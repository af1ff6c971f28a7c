package device

import (
	"slices"
	"testing"
	"time"
	"unsafe"
)

// slowGPU is a stream whose marks are reached when a test says so.
type slowGPU struct {
	Streams
	marks   []*mark
	reached int // how many of them
}

type mark struct {
	number  int
	stamped bool
	dropped bool
}

func (g *slowGPU) Ops() Stream { return nil }
func (g *slowGPU) put(stamped bool) (Mark, error) {
	p := &mark{number: len(g.marks), stamped: stamped}
	g.marks = append(g.marks, p)
	return Mark(unsafe.Pointer(p)), nil
}
func (g *slowGPU) Mark(Stream) (Mark, error)    { return g.put(false) }
func (g *slowGPU) stamp(Stream) (Mark, error)   { return g.put(true) }
func (g *slowGPU) Reached(m Mark) (bool, error) { return (*mark)(m).number < g.reached, nil }
func (g *slowGPU) Drop(m Mark)                  { (*mark)(m).dropped = true }

// between is a second from each mark to the next.
func (g *slowGPU) between(from, to Mark) (time.Duration, error) {
	a, b := (*mark)(from), (*mark)(to)
	if !a.stamped || !b.stamped || a.dropped || b.dropped {
		panic("these marks have no times")
	}
	return time.Duration(b.number-a.number) * time.Second, nil
}

// Claim (trail.go): who asks when the device comes to a position gets that, in order, by the
// device's clock, however late somebody polls; a mark stands for some ops, and what has been
// passed shows to other goroutines without waiting.
func TestTrail(t *testing.T) {
	g := &slowGPU{reached: 1}
	trail := newTrail(g)
	began, durations := trail.last.at, []time.Duration{}
	ask := func() { trail.stamp(func(at time.Time) { durations = append(durations, at.Sub(began)) }) }
	ask() // mark 1
	over := trail.call()
	for range 2 * markEvery {
		trail.passing() // marks 2 and 3
	}
	ask() // mark 4
	if p := trail.Progress(); len(durations) != 0 || p != (Progress{Ahead: 4, Begun: 1}) {
		t.Errorf("%v before anything was done: %+v", durations, p)
	}
	over()
	g.reached = 4
	trail.Poll()
	if p := trail.Progress(); !slices.Equal(durations, []time.Duration{time.Second}) || p != (Progress{Passed: 3, Ahead: 1, Begun: 1, Over: 1}) {
		t.Errorf("%v, %+v", durations, p)
	}
	g.reached = 5
	trail.Poll()
	if !slices.Equal(durations, []time.Duration{time.Second, 4 * time.Second}) {
		t.Errorf("%v", durations)
	}
	ask()
	trail.close()
	g.reached = 6
	trail.Poll()
	if len(durations) != 2 || trail.stamp(nil) {
		t.Error("a closed trail goes on")
	}
	for _, m := range g.marks {
		if !m.dropped {
			t.Errorf("mark %d is left", m.number)
		}
	}
}
