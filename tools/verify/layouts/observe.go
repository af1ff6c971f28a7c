package layouts

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/megatron/engine"
	"monotron/megatron/model"
	"monotron/mpu"
	"monotron/mpu/ranks"
)

// views are what passes forward showed, by depth: of 0 what enters the first layer,
// of 1 what leaves it, and so on; last the token losses.
type views []tensors

const (
	stream      = "residual stream"
	tokenLosses = "token losses"
)

// at is what is known of a depth.
func (v *views) at(depth int) tensors {
	for len(*v) <= depth {
		*v = append(*v, tensors{})
	}
	return (*v)[depth]
}

// observe records the first sample's pass forward, without dropout: the residual
// stream [s, h] as it enters the first layer and leaves each, and the token losses.
func (t *trial) observe(r *ranks.Rank, e *engine.Engine, first *engine.Micro) error {
	micros := []*engine.Micro{first}
	if r.Coordinates.DP != 0 {
		return e.Peek(micros, engine.Observer{})
	}
	return t.peek(e, micros, func(depth int, name string, x device.Tensor) error {
		rows, here := t.rows(r, e, x, first)
		width := len(rows[0])
		var own []float64
		for i := 0; i < len(rows); i += len(first.Tokens) {
			own = append(own, rows[i]...)
		}
		var pieces []mpu.Piece
		at := int64(0)
		for _, span := range here {
			pieces = append(pieces, mpu.Piece{From: []int64{span.From, 0}, Size: []int64{span.N, int64(width)}, Local: at * int64(width)})
			at += span.N
		}
		return t.out.hidden.at(depth).addBoxes(r.Number, name, []int64{int64(t.config.SeqLength), int64(width)}, own, pieces)
	})
}

// evaluate computes the mean loss of the first batch after the training, without
// dropout, and records what every sample's pass shows [s]: of each row of the residual
// stream its product with a random vector, which a difference of the row changes by
// about its own norm. Each sample is compared by itself: a fault in one pass touches one
// micro-batch, and the norm of all samples would water it down.
func (t *trial) evaluate(r *ranks.Rank, e *engine.Engine, batch []*engine.Micro) error {
	err := t.peek(e, batch, func(depth int, name string, x device.Tensor) error {
		samples := batch[e.Micro()].Tokens
		rows, here := t.rows(r, e, x, batch[e.Micro()])
		// Row i·samples + j belongs to sample j: its own rows, at the positions that this rank has.
		for j, ids := range samples {
			number := t.data.number(ids)
			if first := int64(t.config.GlobalBatchSize * t.config.Tuning.Sequences()); number < 0 || number >= first {
				return exitcode.Errorf(exitcode.Differs, "the first step read sample %d, but it must read only the first %d samples, as the run on one rank does", number, first)
			}
			var own []float64
			for i := j; i < len(rows); i += len(samples) {
				own = append(own, sketch(rows[i]))
			}
			var pieces []mpu.Piece
			at := int64(0)
			for _, span := range here {
				pieces = append(pieces, mpu.Piece{From: []int64{span.From}, Size: []int64{span.N}, Local: at})
				at += span.N
			}
			if err := t.out.after.at(depth).addBoxes(r.Number, fmt.Sprintf("%s of sample %d", name, number), []int64{int64(t.config.SeqLength)}, own, pieces); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	// The loss of all ranks.
	sum, tokens, err := e.Totals()
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.Last() {
		t.out.evaluation, t.out.tokens = sum/max(1, tokens), append(t.out.tokens, tokens)
	}
	return t.out.hear(r.Number, t.steps, []float64{sum / max(1, tokens)})
}

// peek runs micro-batches forward and shows keep, one rank at a time, what there is
// to see.
func (t *trial) peek(e *engine.Engine, micros []*engine.Micro, keep func(depth int, name string, x device.Tensor) error) error {
	var trouble error
	show := func(depth int, name string, x device.Tensor) {
		t.mu.Lock()
		defer t.mu.Unlock()
		if trouble == nil {
			trouble = keep(depth, name, x)
		}
	}
	err := e.Peek(micros, engine.Observer{
		Layer: func(depth int, x device.Tensor) { show(depth, stream, x) },
		Done: func(_ *model.Pass, out *model.Output) {
			show(t.config.Model.NumLayers+1, tokenLosses, out.Loss.Reshape(out.Loss.Len(), 1))
		},
	})
	return errors.Join(err, trouble)
}

// rows are those of x [positions here · b, width] of a micro-batch, and the positions here.
func (t *trial) rows(r *ranks.Rank, e *engine.Engine, x device.Tensor, m *engine.Micro) (rows [][]float64, here mpu.Positions) {
	raw := make([]byte, x.Bytes())
	r.Device.Read(raw, x)
	all, width := device.ToFloat64(x.DType, raw), int(x.Last())
	for i := 0; i < len(all); i += width {
		rows = append(rows, all[i:][:width])
	}
	here = e.Positions(m)
	if int64(len(rows)/len(m.Tokens)) < here.Len() { // sequence parallelism
		here = here.Cut(r.Coordinates.TP, r.Sizes.TP)
	}
	return rows, here
}

// sketch is the product of a row with a vector of normal numbers, which no two
// columns share; of a single number it is that number.
func sketch(row []float64) float64 {
	if len(row) == 1 {
		return row[0]
	}
	normal := rand.New(rand.NewPCG(uint64(len(row)), 11))
	sum := 0.0
	for _, v := range row {
		sum += v * normal.NormFloat64()
	}
	return sum
}
