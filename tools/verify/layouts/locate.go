package layouts

import (
	"fmt"

	"monotron/csrc/device"
	"monotron/megatron/training"
	"monotron/mpu"
)

// look records the residual stream of the first sample, without dropout, as it
// enters the first layer and leaves each.
func (t *trial) look(r *training.Rank, e *training.Engine, first *training.Micro) error {
	if r.Place.DP != 0 {
		return e.Peek([]*training.Micro{first}, nil, nil)
	}
	var trouble error
	see := func(depth int, x device.Tensor) {
		t.mu.Lock()
		defer t.mu.Unlock()
		if err := t.seen(r, depth, x, int64(len(first.Tokens))); trouble == nil {
			trouble = err
		}
	}
	if err := e.Peek([]*training.Micro{first}, see, nil); err != nil {
		return err
	}
	return trouble
}

// seen adds x [positions here · b, h] to what is known of a depth.
func (t *trial) seen(r *training.Rank, depth int, x device.Tensor, batch int64) error {
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
	return t.out.hidden[depth].place(r.Number, stream, []int64{int64(t.config.SeqLength), h}, own,
		[]mpu.Piece{{From: []int64{first, 0}, Size: []int64{rows, h}}})
}

const stream = "residual stream"

// locate names where a difference starts: the first layer whose output is off, or
// in the order of backward the first parameter whose gradient is, and the rank.
func locate(got, want *Outcome, b Bounds) string {
	for depth := range min(len(got.hidden), len(want.hidden)) {
		mine, theirs := got.hidden[depth][stream], want.hidden[depth][stream]
		if mine == nil || theirs == nil {
			continue
		}
		if d := distance("", mine.values, theirs.values, nil) / tensorScale(theirs); !(d <= b.Grad) {
			return fmt.Sprintf("forward of %s, rank %d: off by %.2g", module(depth), mine.giver(mine.first(theirs, b.Grad)), d)
		}
	}
	least := gradientScale(want)
	for i := len(want.order) - 1; i >= 0; i-- {
		name := want.order[i]
		mine, theirs := got.grads[name], want.grads[name]
		if mine == nil || theirs == nil || len(mine.values) != len(theirs.values) {
			return "gradient of " + name + " is missing"
		}
		if d := distance(name, mine.values, theirs.values, nil) / least(theirs); !(d <= b.Grad) {
			return fmt.Sprintf("gradient of %s, rank %d: off by %.2g", name, mine.giver(mine.first(theirs, b.Grad)), d)
		}
	}
	return "after the first step's gradients: clipping, update, or the data of a later step"
}

func module(depth int) string {
	if depth == 0 {
		return "the embedding"
	}
	return fmt.Sprintf("layer %d", depth-1)
}

// first is the first element that is off by more than a share of the largest.
func (t *tensor) first(want *tensor, share float64) int64 {
	most := 0.0
	for _, v := range want.values {
		most = max(most, v, -v)
	}
	for i, v := range want.values {
		if !(abs(t.values[i]-v) <= share*most) {
			return int64(i)
		}
	}
	return 0
}

func abs(x float64) float64 { return max(x, -x) }
