package inference

import (
	"math"

	"monotron/csrc/device"
	"monotron/fault"
	"monotron/megatron/model"
	"monotron/mpu"
)

// logitRows is how many positions' logits exist at once.
const logitRows = 64

// Logits runs the model on prompt and shows each position's logits in order:
// f32 [vocab], the model's opinion of the token after that position. The slice
// is each's to keep.
func (g *Generator) Logits(prompt []int32, each func(position int, logits []float32) error) error {
	if err := g.CheckPrompt(prompt, 0); err != nil {
		return err
	}
	d, n := g.Device, int64(len(prompt))
	scope := d.Arena.Scope(device.Activations)
	defer scope.Release()
	p := &model.Pass{D: d, DType: g.DType, Positions: mpu.AllPositions(n), Batch: 1, IDs: scope.Alloc(device.I32, n), PositionIDs: scope.Alloc(device.I32, n)}
	positions := make([]int32, n)
	for i := range positions {
		positions[i] = int32(i)
	}
	device.WriteSlice(d, p.IDs, prompt)
	device.WriteSlice(d, p.PositionIDs, positions)
	return g.forward(p, nil, func(hidden model.Tensor) error {
		for at := int64(0); at < n; at += logitRows {
			rows := min(n-at, logitRows)
			flat, err := g.logits(p, hidden, at, rows)
			if err != nil {
				return err
			}
			for i := range int(rows) {
				if err := each(int(at)+i, flat[i*g.Vocab:(i+1)*g.Vocab:(i+1)*g.Vocab]); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// LogSoftmax turns logits into log-probabilities, in float64.
func LogSoftmax(logits []float32) []float64 { return logSoftmax(logits) }

// checkLogits refuses numbers that no choice can rest on.
func checkLogits(logits []float32) error {
	for id, x := range logits {
		if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
			return fault.Errorf(fault.BadData, "the logit of token %d is %g: the weights hold numbers that are not finite, or values too large for their type", id, x)
		}
	}
	return nil
}
