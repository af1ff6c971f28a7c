package layouts

import (
	"errors"
	"fmt"

	"monotron/csrc/device"
	"monotron/megatron/model"
	"monotron/megatron/training"
	"monotron/mpu"
)

// look records the first sample's pass forward, without dropout: the residual
// stream as it enters the first layer and leaves each, and the token losses.
func (t *trial) look(r *training.Rank, e *training.Engine, first *training.Micro) error {
	if r.Place.DP != 0 {
		return e.Peek([]*training.Micro{first}, nil, nil)
	}
	var trouble error
	keep := func(depth int, name string, x device.Tensor) {
		t.mu.Lock()
		defer t.mu.Unlock()
		if err := t.seen(r, depth, name, x, int64(len(first.Tokens))); trouble == nil {
			trouble = err
		}
	}
	err := e.Peek([]*training.Micro{first}, func(depth int, x device.Tensor) { keep(depth, stream, x) }, func(_ *model.Pass, out *model.Output) {
		keep(t.config.Model.NumLayers+1, tokenLosses, out.Loss.Reshape(out.Loss.Len(), 1))
	})
	return errors.Join(err, trouble)
}

// seen adds x [positions here · b, width] to what is known of a depth.
func (t *trial) seen(r *training.Rank, depth int, name string, x device.Tensor, batch int64) error {
	for len(t.out.hidden) <= depth {
		t.out.hidden = append(t.out.hidden, tensors{})
	}
	h, rows := x.Last(), x.Shape[0]/batch
	first := int64(0)
	if rows < int64(t.config.SeqLength) {
		first = int64(r.Place.TP) * rows
	}
	raw := make([]byte, x.Bytes())
	r.Device.Read(raw, x)
	all := device.ToFloat64(x.DType, raw)
	var own []float64
	for i := range rows {
		own = append(own, all[i*batch*h:][:h]...)
	}
	return t.out.hidden[depth].place(r.Number, name, []int64{int64(t.config.SeqLength), h}, own,
		[]mpu.Piece{{From: []int64{first, 0}, Size: []int64{rows, h}}})
}

// What is known of a depth: of 0 what enters the first layer, of 1 what leaves it,
// and so on; last the token losses.
const (
	stream      = "residual stream"
	tokenLosses = "token losses"
)

// locate names where a difference starts: the first layer whose output is off, or
// in the order of backward the first parameter whose gradient is, and the rank.
func locate(got, want *Outcome, b Bounds) string {
	for depth, theirs := range want.hidden {
		if depth >= len(got.hidden) {
			return fmt.Sprintf("forward of %s, which no rank showed", want.module(depth))
		}
		for name, t := range theirs {
			mine := got.hidden[depth][name]
			if mine == nil {
				return fmt.Sprintf("forward of %s, which no rank showed", want.module(depth))
			}
			if d := distance("", mine.values, t.values, nil) / tensorScale(t); !(d <= b.Grad) {
				return fmt.Sprintf("forward of %s, rank %d: off by %.2g", want.module(depth), mine.giver(mine.first(t, b.Grad)), d)
			}
		}
	}
	for step := range want.grads {
		if where := locateGradient(got, want, step, b.grad(step, want)); where != "" {
			return where
		}
	}
	return "after the last step's gradients: clipping or update"
}

// locateGradient names the first gradient of a step, in the order of backward, that
// is off by more than a bound, and the rank; "": none is. In a later step that may
// come from the step before: its clipping or update.
func locateGradient(got, want *Outcome, step int, bound float64) string {
	least := gradientScale(want.grads[step])
	for i := len(want.order) - 1; i >= 0; i-- {
		name := want.order[i]
		mine, theirs := got.grads[step][name], want.grads[step][name]
		if mine == nil || theirs == nil || len(mine.values) != len(theirs.values) {
			return fmt.Sprintf("step %d: gradient of %s is missing", step+1, name)
		}
		if d := distance(name, mine.values, theirs.values, nil) / least(theirs); !(d <= bound) {
			return fmt.Sprintf("step %d: gradient of %s, rank %d: off by %.2g", step+1, name, mine.giver(mine.first(theirs, bound)), d)
		}
	}
	return ""
}

func (o *Outcome) module(depth int) string {
	switch depth {
	case 0:
		return "the embedding"
	case len(o.hidden) - 1:
		return "the output layer"
	}
	return fmt.Sprintf("layer %d", depth-1)
}

// first is the first element that is off by more than a share of the largest.
func (t *tensor) first(want *tensor, share float64) int64 {
	most := float32(0)
	for _, v := range want.values {
		most = max(most, v, -v)
	}
	for i, v := range want.values {
		if !(abs(t.values[i]-v) <= float32(share)*most) {
			return int64(i)
		}
	}
	return 0
}

func abs(x float32) float32 { return max(x, -x) }
