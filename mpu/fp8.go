package mpu

import (
	"monotron/csrc/device"
	"monotron/mpu/comm"
)

// FP8Recipe is how the scales of 8-bit operands are chosen, by Transformer Engine's recipes.
type FP8Recipe int

// FP8Blockwise (Float8BlockScaling): powers of two, inputs and gradients 1 x 128 along what a product sums, weights
// 128 x 128. FP8MX (MXFP8BlockScaling): powers of two by E8M0, all operands 1 x 32 along what a product sums.
// FP8Tensorwise (Float8CurrentScaling): f32, one for a tensor. FP8Delayed (DelayedScaling): the same, from the
// magnitudes of earlier steps.
const (
	FP8Blockwise FP8Recipe = iota
	FP8MX
	FP8Tensorwise
	FP8Delayed
)

// Block is the side of a block, which no rank may have a part of; 1 where there are none.
func (r FP8Recipe) Block() int {
	return [...]int{FP8Blockwise: 128, FP8MX: 32, FP8Tensorwise: 1, FP8Delayed: 1}[r]
}

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
	Delayed   *Delayed    // of FP8Delayed
}

// layerFP8 is FP8 for one layer; nil: its operands are not rounded.
type layerFP8 struct {
	*FP8
	scaling *scaling // of FP8Delayed
}

func (f *FP8) layer(name string) *layerFP8 {
	if f == nil {
		return nil
	}
	l := &layerFP8{FP8: f}
	if f.Recipe == FP8Delayed {
		l.scaling = f.Delayed.add(name, f.Gradients, nil)
	}
	return l
}

// operands are the operands of a layer's products in one pass, each with a number f32 [1] of its complete tensor: its
// largest magnitude with FP8Tensorwise, its scale with FP8Delayed.
type operands struct {
	*layerFP8
	d                       *device.Device
	s                       *device.Scope
	input, gradient, weight device.Tensor
}

// of measures the tensors here of input, gradient (none: {}) and weights; the region's ranks and those of Tokens have
// the other parts of the complete ones. The results live in scope s. With FP8Tensorwise it is a collective of both
// groups.
func (f *layerFP8) of(d *device.Device, s *device.Scope, r Region, x, dy device.Tensor, parts []part) (operands, error) {
	o := operands{layerFP8: f, d: d, s: s}
	switch {
	case f == nil:
	case f.Recipe == FP8Delayed:
		l := f.scaling
		o.input, o.gradient, o.weight = l.scale[fp8Input], l.scale[fp8Gradient], l.scale[fp8Weight]
		if dy.Given() { // forward has measured the others
			x, parts = device.Tensor{}, nil
		}
		measure(d, l.seen, x, dy, parts)
	case f.Recipe == FP8Tensorwise:
		most := s.Alloc(device.F32, fp8Operands)
		d.Fill(most, 0)
		o.input, o.gradient, o.weight = most.Slice(0, fp8Input, 1), most.Slice(0, fp8Gradient, 1), most.Slice(0, fp8Weight, 1)
		measure(d, [...]device.Tensor{fp8Input: o.input, fp8Gradient: o.gradient, fp8Weight: o.weight}, x, dy, parts)
		// A rank that has the same tensor as another changes nothing, so one collective serves all three.
		for _, g := range []*comm.Group{r.Group, f.Tokens} {
			if g == nil || g.Size() == 1 {
				continue
			}
			if err := g.AllReduce(most, comm.Max).Wait(); err != nil {
				return o, err
			}
		}
	}
	return o, nil
}

// measure raises the largest magnitudes of the operands to those of these tensors.
func measure(d *device.Device, most [fp8Operands]device.Tensor, x, dy device.Tensor, parts []part) {
	if x.Given() {
		d.MaxAbs(most[fp8Input], x, device.Tensor{})
	}
	if dy.Given() {
		d.MaxAbs(most[fp8Gradient], dy, device.Tensor{})
	}
	for _, p := range parts {
		d.MaxAbs(most[fp8Weight], p.weight.Value, device.Tensor{})
	}
}

// x is the input [tokens, in] of a product over channels; xOverTokens of one over tokens.
func (o operands) x(x device.Tensor) device.Tensor {
	return o.rounded(x, o.input, device.E4M3, 1, o.block())
}

func (o operands) xOverTokens(x device.Tensor) device.Tensor {
	if o.keepsWeightGradient() {
		return x
	}
	return o.rounded(x, o.input, device.E4M3, o.block(), 1)
}

// dy is the gradient [tokens, out] in the same way.
func (o operands) dy(dy device.Tensor) device.Tensor {
	return o.rounded(dy, o.gradient, o.gradients(), 1, o.block())
}

func (o operands) dyOverTokens(dy device.Tensor) device.Tensor {
	if o.keepsWeightGradient() {
		return dy
	}
	return o.rounded(dy, o.gradient, o.gradients(), o.block(), 1)
}

// keepsWeightGradient reports whether products over tokens have operands that are not rounded.
func (o operands) keepsWeightGradient() bool {
	return o.layerFP8 != nil && o.Recipe == FP8Delayed && !o.Delayed.WeightGradients
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
	if o.layerFP8 == nil {
		return 0
	}
	return int32(o.Recipe.Block())
}

func (o operands) side() int32 {
	if o.layerFP8 != nil && o.Recipe == FP8MX {
		return 1
	}
	return o.block()
}

func (o operands) gradients() int32 {
	if o.layerFP8 == nil {
		return device.E4M3
	}
	return o.Gradients
}

// rounded is x [m, n] in the format with scales of blocks rows x columns, or with that of the tensor, which follows from
// its number.
func (o operands) rounded(x, number device.Tensor, format, rows, columns int32) device.Tensor {
	switch {
	case o.layerFP8 == nil:
		return x
	case o.Recipe == FP8Tensorwise:
		out := o.s.Alloc(device.F32, x.Dims()...)
		o.d.RoundTensorFP8(device.RoundTensorFP8Args{Out: out, X: x, Most: number, Format: format})
		return out
	case o.Recipe == FP8Delayed:
		out := o.s.Alloc(device.F32, x.Dims()...)
		o.d.RoundTensorFP8(device.RoundTensorFP8Args{Out: out, X: x, Scale: number, Format: format})
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
	s := o.d.Arena.Scope(device.Workspace)
	defer s.Release()
	wide := a
	wide.C, wide.Bias, wide.Aux = widened(s, a.C, a.A.DType), widened(s, a.Bias, a.A.DType), widened(s, a.Aux, a.A.DType)
	converted(o.d, wide.Bias, a.Bias)
	o.d.Matmul(wide)
	converted(o.d, a.C, wide.C)
	converted(o.d, a.Aux, wide.Aux)
}

// widened is a tensor like t of dtype in scope s; t itself, if it is not smaller or not given.
func widened(s *device.Scope, t device.Tensor, dtype device.DType) device.Tensor {
	if !t.Given() || t.DType.Size() >= dtype.Size() {
		return t
	}
	return s.Alloc(dtype, t.Dims()...)
}

// converted copies src to dst, if one is the other widened.
func converted(d *device.Device, dst, src device.Tensor) {
	if dst.Data != src.Data {
		d.Copy(dst, src)
	}
}
