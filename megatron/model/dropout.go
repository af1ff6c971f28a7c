package model

import (
	"monotron/csrc/device"
	"monotron/mpu"
)

// hiddenDropout is the dropout, or the jitter, of rows of the residual stream at one point of
// the model.
// Its masks go by position: a rank that has several spans of positions asks span by span.
type hiddenDropout struct {
	pass      *Pass
	rate      float64 // 0: none
	jitter    float64 // 0: none; not both
	at        string
	positions mpu.Positions // of the rows
}

// add is DropoutAdd with the masks of the rows' positions.
func (h hiddenDropout) add(a device.DropoutAddArgs) {
	h.spans(func(rows func(Tensor) Tensor, drop device.Dropout) {
		h.pass.D.DropoutAdd(device.DropoutAddArgs{Out: rows(a.Out), X: rows(a.X), Bias: a.Bias, Residual: rows(a.Residual), Drop: drop})
	})
}

// backward sets dx from dy with add's masks; dx may be dy.
func (h hiddenDropout) backward(dx, dy Tensor) {
	h.spans(func(rows func(Tensor) Tensor, drop device.Dropout) {
		h.pass.D.DropoutBackward(device.DropoutBackwardArgs{DX: rows(dx), DY: rows(dy), Drop: drop})
	})
}

// none reports whether nothing is dropped in this pass.
func (h hiddenDropout) none() bool { return h.rate == 0 && h.jitter == 0 || !h.pass.Step.Given() }

// drawn names the random numbers of rows from a position on.
func (h hiddenDropout) drawn(position int64) device.Dropout {
	if h.none() {
		return device.Dropout{}
	}
	return device.Dropout{Stream: device.StreamKey(h.pass.Seed, h.at), Step: h.pass.Step, Samples: h.pass.Samples,
		Rate: float32(h.rate), Jitter: float32(h.jitter), Position: int32(position)}
}

// spans calls do for the rows of each span.
func (h hiddenDropout) spans(do func(rows func(Tensor) Tensor, drop device.Dropout)) {
	if h.none() || len(h.positions) == 1 {
		do(func(t Tensor) Tensor { return t }, h.drawn(h.positions[0].From))
		return
	}
	at, b := int64(0), h.pass.Batch
	for _, s := range h.positions {
		from := at
		do(func(t Tensor) Tensor {
			if !t.Given() {
				return t
			}
			return t.Slice(0, from*b, s.N*b)
		}, h.drawn(s.From))
		at += s.N
	}
}
