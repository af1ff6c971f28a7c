package schedule

import (
	"fmt"
	"strings"

	"monotron/fault"
)

// Proof is what CheckLists found about lists that are sound.
type Proof struct {
	Live []int // most (chunk, micro-batch) alive at once, a stage
}

// CheckLists proves that lists[stage] can run together: each stage forwards and
// backwards every (chunk, micro-batch) once and gradients add up in order, every
// value is there when it is used, every send has its receive in the same order,
// and no stage waits in a circle even where each exchange waits for its partners
// (Overlap or not). The error (fault.Internal) names stage and action.
func CheckLists(lists [][]Action, chunks, micros int, forwardOnly bool) (p Proof, err error) {
	p.Live = make([]int, len(lists))
	for stage, acts := range lists {
		s := stageCheck{stage: stage, stages: len(lists), chunks: chunks, micros: micros, forwardOnly: forwardOnly,
			ran: map[place]bool{}, here: map[place]bool{}, unsent: map[place]bool{}, next: map[side2]int{}}
		if p.Live[stage], err = s.check(acts); err != nil {
			return p, err
		}
	}
	links, err := match(lists)
	if err != nil {
		return p, err
	}
	return p, rendezvous(lists, links)
}

// stageCheck follows one list.
type stageCheck struct {
	stage, stages, chunks, micros int
	forwardOnly                   bool

	ran    map[place]bool // forwards (grad false) and backwards done
	here   map[place]bool // received, not used
	unsent map[place]bool // made, to be sent
	next   map[side2]int  // micro-batch that a chunk runs next
	alive  int
}

// side2 is a chunk in one direction.
type side2 struct {
	grad  bool
	chunk int
}

func (s *stageCheck) check(acts []Action) (live int, err error) {
	for i, a := range acts {
		step := s.run
		if a.Kind == Exchange {
			step = s.exchange
		}
		if err := step(a); err != nil {
			return 0, fault.Errorf(fault.Internal, "schedule: stage %d, action %d, %v: %w", s.stage, i, a, err)
		}
		live = max(live, s.alive)
		if s.forwardOnly && a.Kind == Forward {
			s.alive--
		}
	}
	return live, s.atEnd()
}

// run checks a forward or a backward.
func (s *stageCheck) run(a Action) error {
	at := place{a.Kind == Backward, a.Chunk, a.Micro}
	lane := side2{at.grad, at.chunk}
	switch {
	case a.Chunk < 0 || a.Chunk >= s.chunks || a.Micro < 0 || a.Micro >= s.micros:
		return fmt.Errorf("there are %d chunks and %d micro-batches", s.chunks, s.micros)
	case at.grad && s.forwardOnly:
		return fmt.Errorf("a list without backwards has one")
	case s.ran[at]:
		return fmt.Errorf("it has run before")
	case s.next[lane] != a.Micro:
		return fmt.Errorf("micro-batch %d of chunk %d is next", s.next[lane], a.Chunk)
	case at.grad && !s.ran[place{false, a.Chunk, a.Micro}]:
		return fmt.Errorf("it comes before its forward")
	case s.from(at) >= 0 && !s.here[at]:
		return fmt.Errorf("its input has not been received")
	}
	s.ran[at] = true
	s.next[lane]++
	delete(s.here, at)
	if s.to(at) >= 0 {
		s.unsent[at] = true
	}
	s.alive++
	if at.grad {
		s.alive -= 2
	}
	return nil
}

// exchange checks that what is sent is there, what is received is to be used, and
// both go where the next part of the model is.
func (s *stageCheck) exchange(a Action) error {
	if len(a.Transfers) == 0 {
		return fmt.Errorf("an exchange of nothing")
	}
	for _, t := range a.Transfers {
		at := place{t.Grad, t.Chunk, t.Micro}
		if a.Overlap && t.Grad != a.Transfers[0].Grad {
			return fmt.Errorf("an overlapped exchange holds activations and gradients")
		}
		if t.Send {
			if !s.unsent[at] || t.Peer != s.to(at) {
				return fmt.Errorf("%v: there is no such value for that stage", t)
			}
			delete(s.unsent, at)
			continue
		}
		if s.here[at] || s.ran[at] || t.Peer != s.from(at) {
			return fmt.Errorf("%v: that stage has no such value for this one, or it is here", t)
		}
		s.here[at] = true
	}
	return nil
}

// from is the stage that gives what a run at this place needs, -1: none.
func (s *stageCheck) from(at place) int {
	if at.grad {
		return s.neighbour(at.chunk, +1)
	}
	return s.neighbour(at.chunk, -1)
}

// to is the stage that needs what a run at this place made.
func (s *stageCheck) to(at place) int {
	if at.grad {
		return s.neighbour(at.chunk, -1)
	}
	return s.neighbour(at.chunk, +1)
}

// neighbour is the stage of the virtual stage before or after a chunk of this one.
func (s *stageCheck) neighbour(chunk, step int) int {
	v := chunk*s.stages + s.stage + step
	if v < 0 || v >= s.chunks*s.stages {
		return -1
	}
	return v % s.stages
}

func (s *stageCheck) atEnd() error {
	want := 2 * s.chunks * s.micros
	if s.forwardOnly {
		want /= 2
	}
	if len(s.ran) != want || len(s.here) > 0 || len(s.unsent) > 0 {
		return fault.Errorf(fault.Internal, "schedule: stage %d runs %d of %d forwards and backwards, leaves %d values unsent and %d unused",
			s.stage, len(s.ran), want, len(s.unsent), len(s.here))
	}
	return nil
}

// action is a place in the lists.
type action struct{ stage, index int }

// match pairs the i-th send from one stage to another with the i-th receive, and
// tells for each exchange the exchanges it must meet.
func match(lists [][]Action) (map[action][]action, error) {
	type channel struct{ from, to int }
	type end struct {
		at action
		t  Transfer
	}
	sends, receives := map[channel][]end{}, map[channel][]end{}
	for stage, acts := range lists {
		for i, a := range acts {
			for _, t := range a.Transfers {
				if t.Peer < 0 || t.Peer >= len(lists) || t.Peer == stage {
					return nil, fault.Errorf(fault.Internal, "schedule: stage %d, action %d: %v, of %d stages", stage, i, t, len(lists))
				}
				e := end{action{stage, i}, t}
				if t.Send {
					c := channel{stage, t.Peer}
					sends[c] = append(sends[c], e)
				} else {
					c := channel{t.Peer, stage}
					receives[c] = append(receives[c], e)
				}
			}
		}
	}
	meets := map[action][]action{}
	for from := range lists {
		for to := range lists {
			s, r := sends[channel{from, to}], receives[channel{from, to}]
			for i := range max(len(s), len(r)) {
				if i >= len(r) {
					return nil, fault.Errorf(fault.Internal, "schedule: stage %d, action %d: %v: stage %d receives %d values from there, not %d", from, s[i].at.index, s[i].t, to, len(r), len(s))
				}
				if i >= len(s) {
					return nil, fault.Errorf(fault.Internal, "schedule: stage %d, action %d: %v: stage %d sends %d values there, not %d", to, r[i].at.index, r[i].t, from, len(s), len(r))
				}
				if virtual(s[i].t, from, len(lists), true) != virtual(r[i].t, to, len(lists), false) {
					return nil, fault.Errorf(fault.Internal, "schedule: value %d from stage %d to %d: one %v (action %d), the other %v (action %d)", i, from, to, s[i].t, s[i].at.index, r[i].t, r[i].at.index)
				}
				meets[s[i].at] = append(meets[s[i].at], r[i].at)
				meets[r[i].at] = append(meets[r[i].at], s[i].at)
			}
		}
	}
	return meets, nil
}

// virtual names a value the same at both its ends: by the boundary it crosses.
func virtual(t Transfer, stage, stages int, sender bool) [3]int {
	boundary := t.Chunk*stages + stage // after this virtual stage
	if sender == t.Grad {
		boundary-- // it crosses the one before
	}
	return [3]int{side(t.Grad), boundary, t.Micro}
}

// rendezvous walks through all lists at once; an exchange ends when every one it
// must meet has begun. Whoever cannot go on waits in a circle.
func rendezvous(lists [][]Action, meets map[action][]action) error {
	at := make([]int, len(lists)) // the action a stage is at
	begun := func(a action) bool { return at[a.stage] >= a.index }
	stuck := func(stage int) (on int, is bool) {
		for _, other := range meets[action{stage, at[stage]}] {
			if !begun(other) {
				return other.stage, true
			}
		}
		return 0, false
	}
	for moved := true; moved; {
		moved = false
		for stage, acts := range lists {
			for at[stage] < len(acts) {
				if _, is := stuck(stage); is {
					break
				}
				at[stage]++
				moved = true
			}
		}
	}
	for stage, acts := range lists {
		if at[stage] < len(acts) {
			return circle(lists, at, stage, stuck)
		}
	}
	return nil
}

// circle tells who waits for whom, from a stage that is stuck.
func circle(lists [][]Action, at []int, stage int, stuck func(int) (int, bool)) error {
	var told []string
	for seen := map[int]bool{}; !seen[stage]; {
		seen[stage] = true
		on, _ := stuck(stage)
		told = append(told, fmt.Sprintf("stage %d at action %d, %v, waits for stage %d", stage, at[stage], lists[stage][at[stage]], on))
		stage = on
	}
	return fault.Errorf(fault.Internal, "schedule: stages wait in a circle: %s", strings.Join(told, "; "))
}
