package mpu

import (
	"monotron/csrc/device"
	"monotron/mpu/comm"
)

// FP8Recipe is how the scales of 8-bit operands are chosen, by Transformer Engine's recipes.
type FP8Recipe int

// FP8Blockwise (Float8BlockScaling): powers of two, inputs and gradients 1 x 128 along what a product sums, weights
// 128 x 128. FP8MX (MXFP8BlockScaling): powers of two by E8M0, all operands 1 x 32 along what a product sums.
// FP8Tensorwise (Float8CurrentScaling): f32, one for a tensor.
const (
	FP8Blockwise FP8Recipe = iota
	FP8MX
	FP8Tensorwise
)

// Block is the side of a block, which no rank may have a part of; 1 where there are none.
func (r FP8Recipe) Block() int { return [...]int{FP8Blockwise: 128, FP8MX: 32, FP8Tensorwise: 1}[r] }

// FP8 rounds the operands of a linear layer's products to numbers of 8 bits. The product is then made of the values
// that these stand for, with sums in f32. So any device computes what a device with FP8 products computes, except for
// the order of sums. A nil FP8 rounds nothing.
//
// Values with power-of-two scales keep the operand's dtype. Those with a tensor's scale are f32, and so is the product,
// which is rounded to the layer's dtype at its end.
type FP8 struct {
	Recipe    FP8Recipe
	Gradients int32       // format of gradients: device.E4M3, or with Megatron's hybrid device.E5M2; the rest has E4M3
	Tokens    *comm.Group // ranks with other tokens of the micro-batch; nil: none. FP8Tensorwise takes the largest of theirs
}

// operands are the operands of a layer's products in one pass, each with the largest magnitude of its complete tensor
// f32 [1], which FP8Tensorwise alone needs.
type operands struct {
	*FP8
	d                       *device.Device
	s                       *device.Scope
	input, gradient, weight device.Tensor
}

// of measures the tensors here of input, gradient (none: {}) and weights; the region's ranks and those of Tokens have
// the other parts of the complete ones. The results live in scope s. It is a collective of both groups.
func (f *FP8) of(d *device.Device, s *device.Scope, r Region, x, dy device.Tensor, parts []part) (operands, error) {
	o := operands{FP8: f, d: d, s: s}
	if f == nil || f.Recipe != FP8Tensorwise {
		return o, nil
	}
	most := s.Alloc(device.F32, 3)
	d.Fill(most, 0)
	o.input, o.gradient, o.weight = most.Slice(0, 0, 1), most.Slice(0, 1, 1), most.Slice(0, 2, 1)
	d.MaxAbs(o.input, x, device.Tensor{})
	if dy.Given() {
		d.MaxAbs(o.gradient, dy, device.Tensor{})
	}
	for _, p := range parts {
		d.MaxAbs(o.weight, p.weight.Value, device.Tensor{})
	}
	// A rank that has the same tensor as another changes nothing, so one collective serves all three.
	for _, g := range []*comm.Group{r.Group, f.Tokens} {
		if g == nil || g.Size() == 1 {
			continue
		}
		if err := g.AllReduce(most, comm.Max).Wait(); err != nil {
			return o, err
		}
	}
	return o, nil
}

// x is the input [tokens, in] of a product over channels; xOverTokens of one over tokens.
func (o operands) x(x device.Tensor) device.Tensor {
	return o.rounded(x, o.input, device.E4M3, 1, o.block())
}

func (o operands) xOverTokens(x device.Tensor) device.Tensor {
	return o.rounded(x, o.input, device.E4M3, o.block(), 1)
}

// dy is the gradient [tokens, out] in the same way.
func (o operands) dy(dy device.Tensor) device.Tensor {
	return o.rounded(dy, o.gradient, o.gradients(), 1, o.block())
}

func (o operands) dyOverTokens(dy device.Tensor) device.Tensor {
	return o.rounded(dy, o.gradient, o.gradients(), o.block(), 1)
}

// w is W [out, in] of a product over in; wOverOut of one over out.
func (o operands) w(w device.Tensor) device.Tensor {
	return o.rounded(w, o.weight, device.E4M3, o.side(), o.block())
}

func (o operands) wOverOut(w device.Tensor) device.Tensor {
	return o.rounded(w, o.weight, device.E4M3, o.block(), o.side())
}

// block is the side of a block along what a product sums, side the other one of a weight's.
func (o operands) block() int32 {
	if o.FP8 == nil {
		return 0
	}
	return int32(o.Recipe.Block())
}

func (o operands) side() int32 {
	if o.FP8 != nil && o.Recipe == FP8MX {
		return 1
	}
	return o.block()
}

func (o operands) gradients() int32 {
	if o.FP8 == nil {
		return device.E4M3
	}
	return o.Gradients
}

// rounded is x [m, n] in the format with scales of blocks rows x columns, or of the tensor.
func (o operands) rounded(x, most device.Tensor, format, rows, columns int32) device.Tensor {
	switch {
	case o.FP8 == nil:
		return x
	case o.Recipe == FP8Tensorwise:
		out := o.s.Alloc(device.F32, x.Dims()...)
		o.d.RoundTensorFP8(device.RoundTensorFP8Args{Out: out, X: x, Most: most, Format: format})
		return out
	}
	rule := device.ScaleBelow
	if o.Recipe == FP8MX {
		rule = device.ScaleE8M0
	}
	out := o.s.Alloc(x.DType, x.Dims()...)
	o.d.RoundFP8(device.RoundFP8Args{Out: out, X: x, Rows: rows, Columns: columns, Format: format, Rule: rule})
	return out
}

// product is d.Matmul, whose results may have a smaller dtype than the operands: it is then made in f32, with bias and
// epilogue, and rounded once.
func (o operands) product(a device.MatmulArgs) {
	if a.C.DType.Size() >= a.A.DType.Size() && (!a.Bias.Given() || a.Bias.DType == a.A.DType) && (!a.Aux.Given() || a.Aux.DType == a.A.DType) {
		o.d.Matmul(a)
		return
	}
	s := o.d.Arena.Scope(device.Workspace)
	defer s.Release()
	// The same tensors in f32.
	wide := a
	if a.C.DType.Size() < device.F32.Size() {
		wide.C = s.Alloc(device.F32, a.C.Dims()...)
	}
	if a.Bias.Given() {
		wide.Bias = s.Alloc(device.F32, a.Bias.Dims()...)
		o.d.Copy(wide.Bias, a.Bias)
	}
	if a.Aux.Given() {
		wide.Aux = s.Alloc(device.F32, a.Aux.Dims()...)
	}
	o.d.Matmul(wide)
	// Back to their dtypes.
	if wide.C.Data != a.C.Data {
		o.d.Copy(a.C, wide.C)
	}
	if a.Aux.Given() {
		o.d.Copy(a.Aux, wide.Aux)
	}
}
