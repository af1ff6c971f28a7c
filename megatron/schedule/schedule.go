// Package schedule makes pipeline schedules: lists of actions, pure functions
// of (stage, stages, micro-batches), and the one executor that runs them. Its
// value type is free: tensors when training, seconds when simulating.
package schedule

import "fmt"

// Kind of an action.
type Kind int

const (
	Forward Kind = iota
	Backward
)

func (k Kind) String() string { return [...]string{"F", "B"}[k] }

// Action is one thing a stage does with one micro-batch.
type Action struct {
	Kind  Kind
	Micro int
}

func (a Action) String() string { return fmt.Sprintf("%s%d", a.Kind, a.Micro) }

// OneFOneB is the schedule of Narayanan et al. (arXiv 2104.04473, section
// 2.2.1): enough forwards to fill the pipeline behind this stage, then one forward
// and one backward in turn, then the backwards that are left. At most
// stages-stage micro-batches are alive. With one stage it is F0 B0 F1 B1 ..
func OneFOneB(stage, stages, micros int) []Action {
	warmup := min(stages-stage-1, micros)
	var acts []Action
	for m := range warmup {
		acts = append(acts, Action{Forward, m})
	}
	for m := warmup; m < micros; m++ {
		acts = append(acts, Action{Forward, m}, Action{Backward, m - warmup})
	}
	for m := micros - warmup; m < micros; m++ {
		acts = append(acts, Action{Backward, m})
	}
	return acts
}

// Stage carries actions out.
type Stage interface {
	Forward(micro int) error
	Backward(micro int) error
}

// Run carries out acts in order and stops at the first error.
func Run(acts []Action, s Stage) error {
	for _, a := range acts {
		do := s.Forward
		if a.Kind == Backward {
			do = s.Backward
		}
		if err := do(a.Micro); err != nil {
			return fmt.Errorf("%v of micro-batch %d: %w", [...]string{"forward", "backward"}[a.Kind], a.Micro, err)
		}
	}
	return nil
}

// Live is the largest number of micro-batches between forward and backward, or
// an error where a list does not forward and then backward each micro-batch once.
func Live(acts []Action, micros int) (int, error) {
	state := make([]int, micros) // 0 not begun, 1 alive, 2 done
	alive, most := 0, 0
	for i, a := range acts {
		want := int(a.Kind)
		if a.Micro < 0 || a.Micro >= micros || state[a.Micro] != want {
			return 0, fmt.Errorf("schedule: action %d (%v) comes out of order", i, a)
		}
		state[a.Micro]++
		alive += 1 - 2*want
		most = max(most, alive)
	}
	for m, s := range state {
		if s != 2 {
			return 0, fmt.Errorf("schedule: micro-batch %d is never finished", m)
		}
	}
	return most, nil
}
