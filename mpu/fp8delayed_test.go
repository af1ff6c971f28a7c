package mpu_test

import (
	"encoding/binary"
	"math"
	"os"
	"strings"
	"testing"

	"monotron/csrc/device"
	"monotron/internal/golden"
	"monotron/mpu"
)

// Shapes of golden/fp8-delayed.
const (
	delayedSteps, delayedMicros                = 8, 2
	delayedTokens, delayedIn, delayedOut int64 = 12, 10, 14
)

// delayedVariants are the settings that golden/fp8-delayed has results of.
var delayedVariants = map[string]struct {
	gradients int32
	delayed   mpu.Delayed
}{
	"latest":  {device.E5M2, mpu.Delayed{Length: 1, WeightGradients: true}},
	"largest": {device.E5M2, mpu.Delayed{Length: 3, Largest: true, WeightGradients: true}},
	"margin":  {device.E4M3, mpu.Delayed{Length: 4, Largest: true, Margin: 1, WeightGradients: true}},
	"wgrad":   {device.E5M2, mpu.Delayed{Length: 2}},
}

func delayedFloats(t *testing.T, name string) []float32 {
	t.Helper()
	raw, err := os.ReadFile(golden.Dir(t, "fp8-delayed", name+".bin"))
	if err != nil {
		t.Fatal(err)
	}
	x := make([]float32, len(raw)/4)
	for i := range x {
		x[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return x
}

// Claim: over steps of two micro-batches a linear layer has the scales of Transformer Engine's DelayedScaling, to the bit, and the outputs and
// gradients that follow from them, whichever way the layer would be cut; also where the forward pass is made twice, and where others evaluate.
func TestDelayedScales(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device.Device) {
		for variant, v := range delayedVariants {
			for _, dtype := range []device.DType{device.F32, device.BF16} {
				for kind, layer := range fp8Layers {
					table := v.delayed
					f := &mpu.FP8{Recipe: mpu.FP8Delayed, Gradients: v.gradients, Delayed: &table}
					l := layer(d, mpu.LinearConfig{Name: "layer", Out: delayedOut, In: delayedIn, FP8: f})
					mpu.Allocate(d, []*mpu.Param{l.weight}, dtype, true)
					table.Prepare(d)
					delayedRun(t, d, variant, kind, l, &table)
				}
			}
		}
	})
}

// delayedRun trains the layer as golden/fp8-delayed does.
func delayedRun(t *testing.T, d *device.Device, variant, kind string, layer fp8Layer, table *mpu.Delayed) {
	t.Helper()
	dtype := layer.weight.Value.DType
	tensor := func(rows, columns int64) device.Tensor {
		return d.Arena.Zeroed(device.Workspace, dtype, rows, columns)
	}
	x, dy, y, dx := tensor(delayedTokens, delayedIn), tensor(delayedTokens, delayedOut), tensor(delayedTokens, delayedOut), tensor(delayedTokens, delayedIn)
	part := func(all []float32, i int, like device.Tensor) []float32 { return all[i*int(like.Len()):][:like.Len()] }
	name := strings.Join([]string{variant, kind, dtype.String()}, " ")
	xs, dys, ws := delayedFloats(t, "x"), delayedFloats(t, "dy"), delayedFloats(t, "w")
	ys, dxs, dws, scales := delayedFloats(t, variant+".y"), delayedFloats(t, variant+".dx"), delayedFloats(t, variant+".dw"), delayedFloats(t, variant+".scales")
	forward := func() {
		if err := layer.forward(y, x); err != nil {
			t.Fatal(err)
		}
	}
	for step := range delayedSteps {
		writeFP8(d, layer.weight.Value, part(ws, step, layer.weight.Value))
		d.Fill(layer.weight.Grad, 0)
		// An evaluation measures, but before the step begins.
		d.Fill(x, 1e4)
		forward()
		table.Begin()
		for micro := range delayedMicros {
			i := step*delayedMicros + micro
			writeFP8(d, x, part(xs, i, x))
			writeFP8(d, dy, part(dys, i, dy))
			forward()
			forward() // recomputed
			delayedNear(t, name+" y", readFP8(d, y), part(ys, i, y), dtype)
			if err := layer.backward(dx, dy, x); err != nil {
				t.Fatal(err)
			}
			delayedNear(t, name+" dx", readFP8(d, dx), part(dxs, i, dx), dtype)
		}
		delayedNear(t, name+" dw", readFP8(d, layer.weight.Grad), part(dws, step, layer.weight.Grad), device.F32)
		if err := table.Update(nil); err != nil {
			t.Fatal(err)
		}
		got := readFP8(d, table.Stored(true, true)[0].Tensor)
		for i, want := range scales[3*step:][:3] {
			if got[i] != want {
				t.Errorf("%s, step %d: scale %d is %g, want %g", name, step, i, got[i], want)
			}
		}
	}
}

// delayedNear is fp8Near of results that may all be 0.
func delayedNear(t *testing.T, name string, got, want []float32, dtype device.DType) {
	t.Helper()
	for i, w := range want {
		if w != 0 {
			fp8Near(t, name, got, want, dtype)
			return
		}
		if got[i] != 0 {
			t.Errorf("%s: element %d is %g, want 0", name, i, got[i])
			return
		}
	}
}

// Claim: a number that is not finite stays, as do the others by the scale of the step; no scale is made of it, and with the largest of a history
// none until it has left that.
func TestDelayedScalesOfInfinity(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device.Device) {
		for _, largest := range []bool{false, true} {
			f := &mpu.FP8{Recipe: mpu.FP8Delayed, Delayed: &mpu.Delayed{Length: 2, Largest: largest, WeightGradients: true}}
			l := fp8Column(d, mpu.LinearConfig{Name: "layer", Out: 16, In: 16, FP8: f})
			mpu.Allocate(d, []*mpu.Param{l.weight}, device.F32, true)
			f.Delayed.Prepare(d)
			x, y := d.Arena.Zeroed(device.Workspace, device.F32, 1, 16), d.Arena.Zeroed(device.Workspace, device.F32, 1, 16)
			identity := make([]float32, 16*16)
			for i := range 16 {
				identity[17*i] = 1
			}
			writeFP8(d, l.weight.Value, identity)
			inf := float32(math.Inf(1))
			// A history of 2 has the infinity of step 1 until that of step 3 is there.
			kept := float32(448.0 / 2)
			after := []float32{kept, kept, 448.0 / 4, 448.0 / 8}
			if largest {
				after[2] = kept
			}
			for step, most := range []float32{2, inf, 4, 8} {
				f.Delayed.Begin()
				values := make([]float32, 16)
				values[3], values[4] = most, 0.3
				writeFP8(d, x, values)
				if err := l.forward(y, x); err != nil {
					t.Fatal(err)
				}
				if err := f.Delayed.Update(nil); err != nil {
					t.Fatal(err)
				}
				got := readFP8(d, f.Delayed.Stored(true, true)[0].Tensor)[0]
				if got != after[step] {
					t.Errorf("largest %v, step %d: scale %g, want %g", largest, step, got, after[step])
				}
				if first := readFP8(d, y)[3]; step == 1 && !math.IsInf(float64(first), 1) && !math.IsNaN(float64(first)) {
					t.Errorf("largest %v: infinity became %g", largest, first)
				}
			}
		}
	})
}

// Claim: each expert has scales of its own, as those of a layer that sees the expert's rows alone: the second expert here has in every step what the
// first had in the step before, and in the first step neither rows nor a weight that is not 0.
func TestDelayedScalesOfExperts(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device.Device) {
		for variant, v := range delayedVariants {
			for _, dtype := range []device.DType{device.F32, device.BF16} {
				table := v.delayed
				f := &mpu.FP8{Recipe: mpu.FP8Delayed, Gradients: v.gradients, Delayed: &table}
				each := func(string) func(int64) string { return nil }
				// Of four experts two are here, the others on another rank.
				l := mpu.NewExpertLinear(mpu.ExpertShare{Experts: 4, First: 1, Here: 2, Parts: 1},
					mpu.LinearConfig{Name: "layer", Out: delayedOut, In: delayedIn, Rows: [][2]int64{{0, delayedOut}}, FP8: f, Each: each})
				mpu.Allocate(d, []*mpu.Param{l.Weight}, dtype, true)
				table.Prepare(d)
				delayedExperts(t, d, variant, l, &table)
			}
		}
	})
}

// delayedExperts trains the layer of two experts.
func delayedExperts(t *testing.T, d *device.Device, variant string, l *mpu.ExpertLinear, table *mpu.Delayed) {
	t.Helper()
	dtype, name := l.Weight.Value.DType, "experts "+variant
	ys, dxs, dws, scales := delayedFloats(t, variant+".y"), delayedFloats(t, variant+".dx"), delayedFloats(t, variant+".dw"), delayedFloats(t, variant+".scales")
	// of are, of numbers with n each [step, micro-batch], those of the experts that have rows in this step.
	of := func(all []float32, step, micro int, n int64) (both []float32) {
		for s := step; s >= max(0, step-1); s-- {
			both = append(both, all[int64(s*delayedMicros+micro)*n:][:n]...)
		}
		return both
	}
	xs, dys, ws := delayedFloats(t, "x"), delayedFloats(t, "dy"), delayedFloats(t, "w")
	const weight = delayedOut * delayedIn
	for step := range delayedSteps {
		rows := int64(delayedTokens)
		w, dw := make([]float32, 2*weight), make([]float32, 2*weight)
		copy(w, ws[step*int(weight):][:weight])
		copy(dw, dws[step*int(weight):][:weight])
		if step > 0 {
			rows *= 2
			copy(w[weight:], ws[(step-1)*int(weight):][:weight])
			copy(dw[weight:], dws[(step-1)*int(weight):][:weight])
		}
		writeFP8(d, l.Weight.Value, w)
		d.Fill(l.Weight.Grad, 0)
		offsets := d.Arena.Alloc(device.Workspace, device.I32, 3)
		device.WriteSlice(d, offsets, []int32{0, int32(delayedTokens), int32(rows)})
		tensor := func(columns int64) device.Tensor {
			return d.Arena.Zeroed(device.Workspace, dtype, rows, columns)
		}
		x, dy, y, dx := tensor(delayedIn), tensor(delayedOut), tensor(delayedOut), tensor(delayedIn)
		table.Begin()
		for micro := range delayedMicros {
			writeFP8(d, x, of(xs, step, micro, delayedTokens*delayedIn))
			writeFP8(d, dy, of(dys, step, micro, delayedTokens*delayedOut))
			l.Forward(d, nil, y, x, offsets)
			delayedNear(t, name+" y", readFP8(d, y), of(ys, step, micro, delayedTokens*delayedOut), dtype)
			l.Backward(d, dx, dy, x, offsets, device.Tensor{})
			delayedNear(t, name+" dx", readFP8(d, dx), of(dxs, step, micro, delayedTokens*delayedIn), dtype)
		}
		delayedNear(t, name+" dw", readFP8(d, l.Weight.Grad), dw, device.F32)
		if err := table.Update(nil); err != nil {
			t.Fatal(err)
		}
		got := readFP8(d, table.Stored(true, true)[0].Tensor) // [operand, expert]
		for operand := range 3 {
			want := [2]float32{scales[3*step+operand], 1}
			if step > 0 {
				want[1] = scales[3*(step-1)+operand]
			}
			if here := [2]float32(got[4*operand+1:]); here != want {
				t.Errorf("%s, step %d: scales %d are %g, want %g", name, step, operand, here, want)
			}
		}
	}
}
