package model

import (
	"monotron/csrc/device"
	"monotron/mpu"
)

// Layers that go through the positions of a sample in order have all of them on one rank. With leaves,
// the gradients of parameters cut by heads or channels have a leaf for each sample.

// sample views one sample of a pass, or all of them.
type sample struct {
	pass   *Pass
	number int64 // −1: all
}

// samples are those whose gradients are added one by one: of a sum on a grid each, else all as one.
func (p *Pass) samples(of *mpu.Param) (all []sample) {
	if !of.Grid.Given() {
		return []sample{{p, -1}}
	}
	for i := range p.Batch {
		all = append(all, sample{p, i})
	}
	return all
}

// rows are those of the sample in a tensor of rows i·b+j.
func (v sample) rows(t Tensor) Tensor {
	if v.number < 0 || !t.Given() {
		return t
	}
	b := v.pass.Batch
	shape, stride := t.Dims(), append([]int64{}, t.Stride[:t.Rank]...)
	shape[0], stride[0] = shape[0]/b, b*stride[0]
	return device.Strided(t.Slice(0, v.number, 1).Data, t.DType, shape, stride)
}

// of is its part of a tensor [b·n, ..], sample by sample.
func (v sample) of(t Tensor) Tensor {
	if v.number < 0 || !t.Given() {
		return t
	}
	n := t.Shape[0] / v.pass.Batch
	return t.Slice(0, v.number*n, n)
}

// batch is how many samples it is.
func (v sample) batch() int32 {
	if v.number < 0 {
		return int32(v.pass.Batch)
	}
	return 1
}

// gradient is where the gradient of a part of w goes: to it, or to zeros in s; then add adds it to the sum.
func (v sample) gradient(s *device.Scope, w *mpu.Param, part func(Tensor) Tensor) (to Tensor, add func()) {
	p := v.pass
	if v.number < 0 {
		return part(gradient(p, s, w)), func() {}
	}
	sum := part(w.Grad)
	leaf := s.Alloc(device.F32, sum.Dims()...)
	p.D.Fill(leaf, 0)
	return leaf, func() { p.D.GridAdd(device.GridAddArgs{Sum: sum, X: leaf, Grid: w.Grid, Peak: w.Peak}) }
}

// convolveBack is a convolution's backward, with a part of its weight w and of its bias; nil: none. DX (=) and the
// gradients of both (+=).
func (p *Pass) convolveBack(w, bias *mpu.Param, part func(Tensor) Tensor, a device.CausalConvBackwardArgs) {
	s := p.D.Arena.Scope(device.Activations)
	defer s.Release()
	all := a
	for _, v := range p.samples(w) {
		dw, add := v.gradient(s, w, part)
		a.DX, a.DY, a.X, a.DW, a.W = v.rows(all.DX), v.rows(all.DY), v.rows(all.X), dw, part(w.Value)
		a.DocStart, a.Batch = v.of(p.DocStart), v.batch()
		if bias == nil {
			p.D.CausalConvBackward(a)
			add()
			continue
		}
		dbias, addBias := v.gradient(s, bias, part)
		a.DBias, a.Bias = dbias, part(bias.Value)
		p.D.CausalConvBackward(a)
		add()
		addBias()
	}
}
