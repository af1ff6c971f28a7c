package model

import (
	"monotron/csrc/device"
	"monotron/megatron/spec"
	"monotron/mpu"
)

// norm is LayerNorm or RMSNorm over the last dimension.
type norm struct {
	gamma, beta *mpu.Param // beta nil where there is none, as in RMSNorm
	kind        device.NormKind
	onePlus     int32
	eps         float32
}

func newNorm(m *spec.Model, name string, width int) *norm {
	n := &norm{eps: float32(m.NormEpsilon)}
	one := mpu.Init{Kind: mpu.InitConstant, Value: 1}
	if m.NormOnePlus {
		n.onePlus, one.Value = 1, 0
	}
	n.gamma = mpu.Uncut(name+".weight", one, int64(width))
	if m.Normalization == spec.RMSNorm {
		n.kind = device.RMSNormKind
	}
	if m.HasNormBias() {
		n.beta = mpu.Uncut(name+".bias", mpu.Init{Kind: mpu.InitConstant}, int64(width))
	}
	return n
}

// outside marks a norm that works on what lies outside the cut layers.
func (n *norm) outside(p Parallel) *norm {
	for _, w := range n.params() {
		w.Outside(p.region())
	}
	return n
}

func (n *norm) params() []*mpu.Param {
	if n.beta == nil {
		return []*mpu.Param{n.gamma}
	}
	return []*mpu.Param{n.gamma, n.beta}
}

// normSaved is what a norm's backward needs in addition to its input.
type normSaved struct{ mean, rstd Tensor }

// forward sets y = norm(x).
func (n *norm) forward(p *Pass, s *device.Scope, y, x Tensor) normSaved {
	saved := normSaved{rstd: s.Alloc(statsType(p), x.Rows())}
	a := device.NormForwardArgs{Y: y, X: x, Gamma: n.gamma.Value, Rstd: saved.rstd, Eps: n.eps, Kind: n.kind, OnePlus: n.onePlus}
	if n.kind == device.LayerNormKind {
		saved.mean = s.Alloc(statsType(p), x.Rows())
		a.Mean = saved.mean
	}
	if n.beta != nil {
		a.Beta = n.beta.Value
	}
	p.D.NormForward(a)
	return saved
}

// backward sets dx = norm'(x)·dy (+ residual where given).
func (n *norm) backward(p *Pass, saved normSaved, dx, dy, x, residual Tensor) {
	s := p.D.Arena.Scope(device.Activations)
	defer s.Release()
	if n.gamma.Frozen {
		n.backwardRows(p, saved, dx, dy, x, residual, []Tensor{gradient(p, s, n.gamma), gradient(p, s, n.beta)}, mpu.Leaves{})
		return
	}
	if n.gamma.Grid.Given() && x.Rank == 4 {
		n.backwardHeads(p, saved, dx, dy, x)
		return
	}
	p.Leaves.AddTo(p.D, n.params(), x.Shape[0], func(grads []Tensor, leaves mpu.Leaves) {
		n.backwardRows(p, saved, dx, dy, x, residual, append(grads, Tensor{}), leaves)
	})
}

// backwardHeads is backward of [tokens, groups, heads, d] where a leaf is of one head, for ranks cut heads too.
func (n *norm) backwardHeads(p *Pass, saved normSaved, dx, dy, x Tensor) {
	s := p.D.Arena.Scope(device.Activations)
	defer s.Release()
	tokens, groups, heads := x.Shape[0], x.Shape[1], x.Shape[2]
	for i := range groups * heads {
		head := func(t Tensor) Tensor { // [tokens, d]
			one := t.Slice(1, i/heads, 1).Slice(2, i%heads, 1)
			return device.Strided(one.Data, t.DType, []int64{tokens, t.Shape[3]}, []int64{t.Stride[0], 1})
		}
		stat := func(t Tensor) Tensor { // [tokens], of [tokens·groups·heads]
			if !t.Given() {
				return t
			}
			return packed(p, s, device.Strided(t.Slice(0, i, 1).Data, t.DType, []int64{tokens}, []int64{groups * heads}))
		}
		n.backward(p, normSaved{mean: stat(saved.mean), rstd: stat(saved.rstd)}, head(dx), head(dy), head(x), Tensor{})
	}
}

// backwardRows is backward with gradients of gamma, and of beta if there is one, in grads, or of each leaf of the rows.
func (n *norm) backwardRows(p *Pass, saved normSaved, dx, dy, x, residual Tensor, grads []Tensor, leaves mpu.Leaves) {
	p.D.NormBackward(device.NormBackwardArgs{DX: dx, DY: dy, X: x, Residual: residual, Gamma: n.gamma.Value, DGamma: grads[0], DBeta: grads[1],
		Mean: saved.mean, Rstd: saved.rstd, Kind: n.kind, OnePlus: n.onePlus, Chunk: int32(leaves.Chunk), Batch: int32(leaves.Batch)})
}

// packed is t with its elements one after the other: itself, or a copy in s.
func packed(p *Pass, s *device.Scope, t Tensor) Tensor {
	if t.Contiguous() {
		return t
	}
	c := s.Like(t)
	p.D.Copy(c, t)
	return c
}

// gradient is where an op that always makes a weight's gradient adds it: of a frozen
// weight to memory that nobody reads; none of no weight.
func gradient(p *Pass, s *device.Scope, w *mpu.Param) Tensor {
	switch {
	case w == nil:
		return Tensor{}
	case w.Frozen:
		return s.Alloc(statsType(p), w.Shape...)
	}
	return w.Grad
}
