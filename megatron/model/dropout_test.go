package model

import (
	"slices"
	"testing"

	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/mpu"
)

// Claim (docs/parallel.md, what stays equal): a hidden dropout mask goes by position and sample. Ranks that
// have several spans of positions drop, forward and backward, what one rank drops there.
func TestDropoutOfSpansIsThatOfTheFullPass(t *testing.T) {
	const s, b, h = 24, 2, 8
	d := ref.Open()
	defer d.Arena.Close()
	step, samples := d.Arena.Alloc(device.Workspace, device.I64, 1), d.Arena.Alloc(device.Workspace, device.I32, b)
	device.WriteSlice(d, step, []int64{3})
	device.WriteSlice(d, samples, []int32{5, 9})
	dropped := func(here mpu.Positions) (forward, backward []float32) {
		p := &Pass{D: d, DType: device.F32, Positions: here, Batch: b, Step: step, Samples: samples, Seed: 1}
		x, y, dx := d.Arena.Alloc(device.Activations, device.F32, p.Tokens(), h), d.Arena.Alloc(device.Activations, device.F32, p.Tokens(), h), d.Arena.Alloc(device.Activations, device.F32, p.Tokens(), h)
		d.Fill(x, 1)
		drop := hiddenDropout{pass: p, rate: 0.5, at: "here", positions: here}
		drop.add(device.DropoutAddArgs{Out: y, X: x, Residual: x})
		drop.backward(dx, x)
		return device.ReadSlice[float32](d, y), device.ReadSlice[float32](d, dx)
	}
	forward, backward := dropped(mpu.AllPositions(s))
	if slices.Min(forward) == slices.Max(forward) || slices.Min(backward) == slices.Max(backward) {
		t.Fatal("nothing was dropped, or everything")
	}
	for rank := range 2 {
		here := mpu.AllPositions(s).ZigZag(rank, 2)
		y, dx := dropped(here)
		at := int64(0)
		for _, span := range here {
			n, from := span.N*b*h, span.From*b*h
			if !slices.Equal(y[at:at+n], forward[from:from+n]) || !slices.Equal(dx[at:at+n], backward[from:from+n]) {
				t.Errorf("rank %d: positions %v have other masks than those of the whole", rank, span)
			}
			at += n
		}
	}
}
