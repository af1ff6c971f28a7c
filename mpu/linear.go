package mpu

import (
	"monotron/csrc/device"
	"monotron/mpu/comm"
)

// ColumnParallelLinear is y = x·Wᵀ + b with the rows of W [out, in] cut over the
// tensor-parallel ranks: each makes its own columns of y.
type ColumnParallelLinear struct {
	Weight, Bias *Param // Bias nil: none
	tp           comm.Group
}

// NewColumnParallelLinear makes the layer `name`. Its rows here are the given
// stretches {first, rows} of the global matrix: gated fc1 has two, its gate's and its up's.
func NewColumnParallelLinear(tp comm.Group, name string, out, in int64, stretches [][2]int64, bias bool, init Init) *ColumnParallelLinear {
	rows := int64(0)
	for _, s := range stretches {
		rows += s[1]
	}
	l := &ColumnParallelLinear{tp: tp, Weight: Rows(name+".weight", init, []int64{out, in}, stretches, rows)}
	if bias {
		l.Bias = Rows(name+".bias", Init{Kind: InitConstant}, []int64{out}, stretches, rows)
	}
	return l
}

// Forward: x [tokens, in] -> y [tokens, out/tp]. With an epilogue aux receives
// what goes into the activation.
func (l *ColumnParallelLinear) Forward(d *device.Device, y, x device.Tensor, epilogue device.Epilogue, aux device.Tensor) {
	a := device.MatmulArgs{C: y, A: x, B: l.Weight.Value, TransB: 1, Epilogue: epilogue, Aux: aux}
	if l.Bias != nil {
		a.Bias = l.Bias.Value
	}
	d.Matmul(a)
}

// Backward: dx [tokens, in] = dy·W summed over the ranks; gradients of weight and bias +=.
func (l *ColumnParallelLinear) Backward(d *device.Device, dx, dy, x device.Tensor) error {
	d.Matmul(device.MatmulArgs{C: dx, A: dy, B: l.Weight.Value})
	weightGradient(d, l.Weight, l.Bias, dy, x)
	return CopyToRegionBackward(l.tp, dx)
}

// RowParallelLinear is y = x·Wᵀ with the columns of W [out, in] cut over the
// ranks. Its bias is not added here: it comes once, after the sum over ranks,
// fused with dropout and residual (Megatron's skip_bias_add).
type RowParallelLinear struct {
	Weight, Bias *Param // Bias nil: none
	tp           comm.Group
}

// NewRowParallelLinear makes the layer `name` with its share of the columns of
// the global matrix here.
func NewRowParallelLinear(tp comm.Group, name string, out, in int64, bias bool, init Init) *RowParallelLinear {
	n := in / int64(tp.Size())
	w := &Param{Name: name + ".weight", Init: init, Global: []int64{out, in}, Shape: []int64{out, n}, Owner: true,
		Pieces: []Piece{{From: []int64{0, n * int64(tp.Rank())}, Size: []int64{out, n}}}}
	l := &RowParallelLinear{tp: tp, Weight: w}
	if bias {
		l.Bias = Whole(name+".bias", Init{Kind: InitConstant}, out)
		l.Bias.Owner = tp.Rank() == 0
	}
	return l
}

// Forward: x [tokens, in/tp] -> y [tokens, out], summed over the ranks, without bias.
func (l *RowParallelLinear) Forward(d *device.Device, y, x device.Tensor) error {
	d.Matmul(device.MatmulArgs{C: y, A: x, B: l.Weight.Value, TransB: 1})
	return ReduceFromRegionForward(l.tp, y)
}

// Backward: dx [tokens, in/tp] = dy·W; gradients of weight and bias +=.
func (l *RowParallelLinear) Backward(d *device.Device, dx, dy, x device.Tensor) {
	d.Matmul(device.MatmulArgs{C: dx, A: dy, B: l.Weight.Value})
	weightGradient(d, l.Weight, l.Bias, dy, x)
}

// BiasValue is the bias for the fused op after the layer, or none.
func (l *RowParallelLinear) BiasValue() device.Tensor {
	if l.Bias == nil {
		return device.Tensor{}
	}
	return l.Bias.Value
}

// weightGradient accumulates dW += dyᵀ·x and db += Σ dy into the f32 main gradients.
func weightGradient(d *device.Device, w, b *Param, dy, x device.Tensor) {
	d.Matmul(device.MatmulArgs{C: w.Grad, A: dy, B: x, TransA: 1, Accumulate: 1})
	if b != nil {
		d.ColumnSum(b.Grad, dy)
	}
}
