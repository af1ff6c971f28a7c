package health

import "fmt"

// Phase is what a rank is at.
type Phase uint32

// The phases of a run.
const (
	Startup Phase = iota
	Data
	Forward
	Backward
	Reduce
	Optimizer
	Save
	Eval
	Phases = iota
)

var phaseNames = [Phases]string{"startup", "data", "forward", "backward", "reduce", "optimizer", "save", "eval"}

// phaseTexts are phases as sentences name them.
var phaseTexts = [Phases]string{"the setup", "the data loader", "the forward pass", "the backward pass", "the gradients' reduction", "the optimizer", "saving", "the evaluation"}

func (p Phase) String() string {
	if p < Phases {
		return phaseNames[p]
	}
	return "unknown"
}

// ParsePhase reads a phase's name.
func ParsePhase(name string) (Phase, bool) {
	for i, n := range phaseNames {
		if n == name {
			return Phase(i), true
		}
	}
	return 0, false
}

// At says where a rank is: "the backward pass of step 7".
func At(p Phase, step int64) string {
	phase := "an unknown phase"
	if p < Phases {
		phase = phaseTexts[p]
	}
	if p == Startup || step <= 0 {
		return phase
	}
	if p == Eval || p == Save {
		return fmt.Sprintf("%s at step %d", phase, step)
	}
	return fmt.Sprintf("%s of step %d", phase, step)
}
