package mpu

import "monotron/csrc/device"

// expertOperands are the operands of an expert layer's products in one pass, which FP8 rounds, where it is given: the
// rows and the weight of each expert are a tensor, as in Transformer Engine's GroupedLinear. The scales are those of
// FP8Delayed.
type expertOperands struct {
	*layerFP8
	d       *device.Device
	s       *device.Scope
	rows    device.Tensor // i32 [experts + 1]: where rows of each expert begin
	weights device.Tensor // i32 [experts + 1]: where the rows of each expert's weight begin, in all of them
}

// experts is FP8 for a layer of experts, of each of which so many rows of the weight are here.
func (f *FP8) experts(name string, at ExpertShare, rows int64) *layerFP8 {
	if f == nil {
		return nil
	}
	l := &layerFP8{FP8: f, scaling: f.Delayed.add(name, f.Gradients, &at)}
	l.scaling.weightRows = rows
	return l
}

// ofExperts measures the rows of input and gradient (none: {}), which have offsets, and in forward the weights
// [experts, out, in]. The results live in scope s.
func (f *layerFP8) ofExperts(d *device.Device, s *device.Scope, offsets, x, dy device.Tensor, weight *Param) expertOperands {
	o := expertOperands{layerFP8: f, d: d, s: s, rows: offsets}
	if f == nil {
		return o
	}
	o.weights = f.scaling.weights
	if dy.Given() { // forward has measured the others
		d.MaxAbs(f.scaling.seen[fp8Gradient], dy, offsets)
		return o
	}
	d.MaxAbs(f.scaling.seen[fp8Input], x, offsets)
	d.MaxAbs(f.scaling.seen[fp8Weight], flat(weight.Value), o.weights)
	return o
}

// flat is the weights [experts, out, in] as rows [experts*out, in].
func flat(w device.Tensor) device.Tensor { return w.Reshape(w.Shape[0]*w.Shape[1], w.Shape[2]) }

// x, dy and w are the operands of products over channels.
func (o expertOperands) x(x device.Tensor) device.Tensor { return o.rounded(x, fp8Input, o.rows) }

func (o expertOperands) dy(dy device.Tensor) device.Tensor {
	return o.rounded(dy, fp8Gradient, o.rows)
}

func (o expertOperands) w(w device.Tensor) device.Tensor {
	if o.layerFP8 == nil {
		return w
	}
	return o.rounded(flat(w), fp8Weight, o.weights).Reshape(w.Dims()...)
}

// overRows are the operands of a product over rows: gradient and input.
func (o expertOperands) overRows(dy, x device.Tensor) (a, b device.Tensor) {
	if o.layerFP8 == nil || !o.Delayed.WeightGradients {
		return dy, x
	}
	return o.dy(dy), o.x(x)
}

func (o expertOperands) rounded(x device.Tensor, operand int, offsets device.Tensor) device.Tensor {
	if o.layerFP8 == nil {
		return x
	}
	out := o.s.Alloc(device.F32, x.Dims()...)
	o.d.RoundTensorFP8(device.RoundTensorFP8Args{Out: out, X: x, Scale: o.scaling.scale[operand], Offsets: offsets, Format: o.scaling.format[operand]})
	return out
}

// product is d.GroupedMatmul, whose result and bias may have a smaller dtype than the operands: it is then made in
// f32 and rounded once.
func (o expertOperands) product(a device.GroupedMatmulArgs) {
	wide := a
	wide.C, wide.Bias = widened(o.s, a.C, a.A.DType), widened(o.s, a.Bias, a.A.DType)
	converted(o.d, wide.Bias, a.Bias)
	o.d.GroupedMatmul(wide)
	converted(o.d, a.C, wide.C)
}
