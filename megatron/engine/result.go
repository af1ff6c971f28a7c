package engine

import (
	"fmt"
	"time"

	"monotron/megatron/optimizer"
	"monotron/megatron/schedule"
)

// Result is what one training step reports.
type Result struct {
	Loss      float64   // Σ loss / Σ tokens of the global batch
	Ahead     []float64 // of each depth of multi-token prediction: the mean over micro-batches of each one's mean over its counted tokens
	Tokens    float64   // counted
	Votes     float64   // the sum of the ranks' values of Engine.Vote
	LR        float64   // used by this step
	Decay     float64   // weight decay of this step
	Scale     float64   // loss scale of this step
	Factor    float64   // Param.Grad holds the gradients times this
	Update    optimizer.Result
	Forward   time.Duration
	Backward  time.Duration
	UpdateFor time.Duration
	Mixtures  *Mixtures      // nil: a dense model
	Pipeline  schedule.Usage // what this rank's stage did, where it was measured
}

// NonFinite is a step whose loss or gradient is not finite; nothing was updated.
type NonFinite struct {
	Step     int64
	Loss     float64
	Elements int64 // of the gradient
}

func (n *NonFinite) Error() string {
	return fmt.Sprintf("iteration %d: loss %g, %d gradient elements are not finite; nothing was updated", n.Step, n.Loss, n.Elements)
}
