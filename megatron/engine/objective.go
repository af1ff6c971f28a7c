package engine

import (
	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/megatron/model"
	"monotron/megatron/schedule"
)

// Objective is a loss of a step that is not the mean over the counted tokens: a function of all
// losses of a sample's tokens. A step's gradient is divided by what the samples count.
type Objective interface {
	// Weigh is given the tokens' losses of a micro-batch, position by position: token i of sequence
	// j at i·len(m.Tokens)+j. It gives the slope of the loss by each of them, in the same order,
	// and adds up what the samples contribute: their losses and what they count. Every rank that
	// has the losses calls it.
	Weigh(m *Micro, losses []float32) (slopes []float32, loss, count float64)

	// ReadsAll reports whether Weigh reads losses of tokens that LossMask leaves out. Otherwise these may be 0.
	ReadsAll() bool
}

// setObjective has a pass on the last stage weigh its tokens by the objective.
func (e *Engine) setObjective(p *model.Pass, m *Micro, part schedule.Part) {
	if e.Objective == nil || !part.Head {
		return
	}
	p.Weigh = func(loss device.Tensor) error {
		if e.device.Counts() {
			return nil
		}
		if loss.DType != device.F32 {
			return exitcode.Errorf(exitcode.Internal, "internal error: an objective reads losses in f32, not %v; report this, and include the command line", loss.DType)
		}
		slopes, sum, count := e.Objective.Weigh(m, device.ReadSlice[float32](e.device, loss))
		e.weighed[0], e.weighed[1] = e.weighed[0]+sum, e.weighed[1]+count
		if p.Grad {
			device.WriteSlice(e.device, p.Weight, slopes)
		}
		return e.device.Err()
	}
}

// writeWeighed puts the objective's sums where the device has those of other losses.
func (e *Engine) writeWeighed() {
	if e.Objective != nil && !e.device.Counts() {
		device.WriteSlice(e.device, e.sums, e.weighed[:])
	}
}
