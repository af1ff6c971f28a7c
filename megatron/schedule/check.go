package schedule

import (
	"fmt"
	"strings"

	"monotron/internal/exitcode"
)

// Proof is what CheckLists found about lists that are sound.
type Proof struct {
	Live []int // most (chunk, micro-batch) alive at once, a stage
}

// CheckLists proves that lists[stage] can run together: each stage forwards and
// backwards every (chunk, micro-batch) once and gradients add up in order, every
// value is there when it is used, every send has its receive in the same order,
// and no stage waits in a circle even where each exchange waits for its partners
// (Overlap or not). The error (exitcode.Internal) names stage and action.
func CheckLists(lists [][]Action, chunks, micros int, forwardOnly bool) (p Proof, err error) {
	p.Live = make([]int, len(lists))
	for stage, acts := range lists {
		s := &stageCheck{stage: stage, stages: len(lists), chunks: chunks, micros: micros, forwardOnly: forwardOnly,
			values: make([]state, 2*chunks*micros), next: make([]int, 2*chunks)}
		if p.Live[stage], err = s.check(acts); err != nil {
			return p, err
		}
	}
	m, err := match(lists)
	if err != nil {
		return p, err
	}
	return p, m.rendezvous()
}

// stageCheck follows one list.
type stageCheck struct {
	stage, stages, chunks, micros int
	forwardOnly                   bool

	values []state // of each forward and backward
	next   []int   // micro-batch that a chunk runs next, forward and backward
	ran    int     // forwards and backwards
	kept   int     // values received and not used, or made and not sent
	alive  int
}

// state of one forward or backward of a chunk.
type state struct{ here, ran, unsent bool }

func (s *stageCheck) check(acts []Action) (live int, err error) {
	for i, a := range acts {
		step := s.run
		if a.Kind == Exchange {
			step = s.exchange
		}
		if err := step(a); err != nil {
			return 0, exitcode.Errorf(exitcode.Internal, "schedule: internal error: stage %d, action %d, %v: %w", s.stage, i, a, err)
		}
		live = max(live, s.alive)
		if s.forwardOnly && a.Kind == Forward {
			s.alive--
		}
	}
	return live, s.atEnd()
}

// at is the state at a boundary, nil where the model has none.
func (s *stageCheck) at(p valueKey) *state {
	if p.chunk < 0 || p.chunk >= s.chunks || p.micro < 0 || p.micro >= s.micros {
		return nil
	}
	return &s.values[(side(p.grad)*s.chunks+p.chunk)*s.micros+p.micro]
}

// run checks a forward or a backward.
func (s *stageCheck) run(a Action) error {
	// The value that the action computes: activation or gradient of a micro-batch in a chunk.
	at := valueKey{a.Kind == Backward, a.Chunk, a.Micro}
	value := s.at(at)
	if value == nil {
		return fmt.Errorf("the chunk or the micro-batch does not exist: there are %d chunks and %d micro-batches", s.chunks, s.micros)
	}
	next := &s.next[side(at.grad)*s.chunks+at.chunk]
	// Each runs once, in order, a backward after its forward, with its input received.
	switch {
	case at.grad && s.forwardOnly:
		return fmt.Errorf("the list has a backward pass, but must have none")
	case value.ran:
		return fmt.Errorf("the same pass has already run")
	case *next != a.Micro:
		return fmt.Errorf("micro-batch %d of chunk %d must be next", *next, a.Chunk)
	case at.grad && !s.at(valueKey{false, a.Chunk, a.Micro}).ran:
		return fmt.Errorf("the forward pass of this micro-batch has not run")
	case s.from(at) >= 0 && !value.here:
		return fmt.Errorf("the input of this pass has not been received")
	}
	// The input is used up, the output waits to be sent.
	*next++
	s.ran++
	if value.here {
		s.kept--
	}
	*value = state{ran: true, unsent: s.to(at) >= 0}
	if value.unsent {
		s.kept++
	}
	// A forward keeps activations, a backward frees them.
	s.alive += 1 - 2*side(at.grad)
	return nil
}

// exchange checks that what is sent is there, what is received is to be used, and
// both go where the next part of the model is.
func (s *stageCheck) exchange(a Action) error {
	if len(a.Transfers) == 0 {
		return fmt.Errorf("the exchange has no values")
	}
	for _, t := range a.Transfers {
		at := valueKey{t.Grad, t.Chunk, t.Micro}
		value := s.at(at)
		switch {
		case a.Overlap && t.Grad != a.Transfers[0].Grad:
			return fmt.Errorf("an overlapped exchange has both activations and gradients, which is not possible")
		case t.Send && (value == nil || !value.unsent || t.Peer != s.to(at)):
			return fmt.Errorf("%v: this stage does not have the value", t)
		case !t.Send && (value == nil || value.here || value.ran || t.Peer != s.from(at)):
			return fmt.Errorf("%v: send and receive do not match: the other stage has not computed the value, or the value was already received", t)
		case t.Send:
			value.unsent = false
			s.kept--
		default:
			value.here = true
			s.kept++
		}
	}
	return nil
}

// from is the stage that gives the input of a run at this boundary, -1: none.
func (s *stageCheck) from(at valueKey) int {
	if at.grad {
		return s.neighbour(at.chunk, +1)
	}
	return s.neighbour(at.chunk, -1)
}

// to is the stage that needs the output of a run at this boundary.
func (s *stageCheck) to(at valueKey) int {
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
	if s.ran != want || s.kept > 0 {
		return exitcode.Errorf(exitcode.Internal, "schedule: internal error: stage %d runs %d of %d forwards and backwards, and %d values are neither used nor sent",
			s.stage, s.ran, want, s.kept)
	}
	return nil
}

// action is a position in the lists.
type action struct{ stage, index int }

// half is one end of a value's way: a transfer of its stage, counted from the stage's first, and the action
// that it is in.
type half struct{ action, transfer int32 }

// matched are lists whose transfers know the exchange at their other end.
type matched struct {
	lists [][]Action
	first [][]int32  // [stage][action]: its first transfer; at the end, how many the stage has
	other [][]action // [stage][transfer]
}

// of is a half's transfer.
func (m *matched) of(stage int, h half) *Transfer {
	return &m.lists[stage][h.action].Transfers[h.transfer-m.first[stage][h.action]]
}

// meets are the exchanges that an action must meet.
func (m *matched) meets(stage, index int) []action {
	return m.other[stage][m.first[stage][index]:m.first[stage][index+1]]
}

// match pairs the i-th send from one stage to another with the i-th receive.
func match(lists [][]Action) (*matched, error) {
	// Transfers are numbered through, stage by stage.
	m := &matched{lists, make([][]int32, len(lists)), make([][]action, len(lists))}
	for stage, acts := range lists {
		m.first[stage] = make([]int32, 1, len(acts)+1)
		n := int32(0)
		for i, a := range acts {
			for _, t := range a.Transfers {
				if t.Peer < 0 || t.Peer >= len(lists) || t.Peer == stage {
					return nil, exitcode.Errorf(exitcode.Internal, "schedule: internal error: stage %d, action %d: %v is not possible with %d stages", stage, i, t, len(lists))
				}
			}
			n += int32(len(a.Transfers))
			m.first[stage] = append(m.first[stage], n)
		}
		m.other[stage] = make([]action, n)
	}
	// Every wire, a pair of stages, has its sends and receives in order.
	w, all := newWires(lists), len(lists)*len(lists)
	halves := [2][]half{make([]half, w.first[0][all]), make([]half, w.first[1][all])}
	for stage, acts := range lists {
		for i := range acts {
			for k := range acts[i].Transfers {
				n, end := w.number(stage, &acts[i].Transfers[k])
				halves[end][n] = half{int32(i), m.first[stage][i] + int32(k)}
			}
		}
	}
	// The i-th of both ends belong together.
	for wire := range all {
		on := func(end int) []half { return halves[end][w.first[end][wire]:w.first[end][wire+1]] }
		if err := m.meet(on(0), on(1), wire/len(lists), wire%len(lists)); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// meet pairs what one stage sends with what another receives.
func (m *matched) meet(sends, receives []half, from, to int) error {
	for i := range max(len(sends), len(receives)) {
		if i >= len(receives) {
			return exitcode.Errorf(exitcode.Internal, "schedule: internal error: stage %d, action %d: %v, but stage %d receives only %d values from this stage", from, sends[i].action, *m.of(from, sends[i]), to, len(receives))
		}
		if i >= len(sends) {
			return exitcode.Errorf(exitcode.Internal, "schedule: internal error: stage %d, action %d: %v, but stage %d sends only %d values to this stage", to, receives[i].action, *m.of(to, receives[i]), from, len(sends))
		}
		s, r := sends[i], receives[i]
		sent, received := m.of(from, s), m.of(to, r)
		if virtual(sent, from, len(m.lists), true) != virtual(received, to, len(m.lists), false) {
			return exitcode.Errorf(exitcode.Internal, "schedule: internal error: value %d from stage %d to stage %d: the sender has %v (action %d), but the receiver has %v (action %d)", i, from, to, *sent, s.action, *received, r.action)
		}
		m.other[from][s.transfer] = action{to, int(r.action)}
		m.other[to][r.transfer] = action{from, int(s.action)}
	}
	return nil
}

// virtual names a value the same at both its ends: by the boundary it crosses.
func virtual(t *Transfer, stage, stages int, sender bool) [3]int {
	boundary := t.Chunk*stages + stage // after this virtual stage
	if sender == t.Grad {
		boundary-- // it crosses the one before
	}
	return [3]int{side(t.Grad), boundary, t.Micro}
}

// rendezvous walks through all lists at once; an exchange ends when every one it
// must meet has begun. Whoever cannot continue waits in a circle.
func (m *matched) rendezvous() error {
	lists := m.lists
	at := make([]int, len(lists)) // the action a stage is at
	begun := func(a action) bool { return at[a.stage] >= a.index }
	stuck := func(stage int) (on int, is bool) {
		for _, other := range m.meets(stage, at[stage]) {
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

// circle says which stage waits for which, from a stage that is stuck.
func circle(lists [][]Action, at []int, stage int, stuck func(int) (int, bool)) error {
	var faults []string
	for seen := map[int]bool{}; !seen[stage]; {
		seen[stage] = true
		on, _ := stuck(stage)
		faults = append(faults, fmt.Sprintf("stage %d at action %d, %v, waits for stage %d", stage, at[stage], lists[stage][at[stage]], on))
		stage = on
	}
	return exitcode.Errorf(exitcode.Internal, "schedule: internal error: deadlock: stages wait for each other: %s", strings.Join(faults, "; "))
}
