package model

import (
	"math"

	"monotron/csrc/device"
	"monotron/megatron/spec"
	"monotron/mpu"
)

// routerScale is what the router of a mixture in parallel with an MLP has in addition to its scores (Gemma
// 4): its input is the normed residual stream times 1/√h, and the weights of the choices are multiplied by a
// trained factor of each expert.
type routerScale struct {
	norm   *norm
	by     float64
	factor *mpu.Param // [experts]
}

func newRouterScale(m *spec.Model, name string, p Parallel) *routerScale {
	if !m.ParallelMLP {
		return nil
	}
	t := &routerScale{norm: newNorm(m, name+".layernorm", m.HiddenSize).outside(p), by: 1 / math.Sqrt(float64(m.HiddenSize)),
		factor: mpu.Uncut(name+".expert_scale", mpu.Init{Kind: mpu.InitConstant, Value: 1}, int64(m.Experts.Num))}
	t.factor.Outside(p.region())
	return t
}

func (t *routerScale) params() []*mpu.Param {
	if t == nil {
		return nil
	}
	return append(t.norm.params(), t.factor)
}

// routerScaled is what the backward needs.
type routerScaled struct {
	in      Tensor // [rows, h]: what the scores are of
	stats   normSaved
	factors Tensor // f32 [rows·k, 1]: of each choice
	weights Tensor // f32 [rows, k]: before they are multiplied
}

// forward makes what the scores are of, out of x [rows, h].
func (t *routerScale) forward(p *Pass, s *device.Scope, x Tensor) *routerScaled {
	saved := &routerScaled{in: s.Like(x)}
	saved.stats = t.norm.forward(p, s, saved.in, x)
	p.D.Scale(device.ScaleArgs{Out: saved.in, X: saved.in, By: float32(t.by)})
	return saved
}

// multiply sets weights f32 [rows, k] to their product with the factors of the experts i32 [rows, k].
func (t *routerScale) multiply(p *Pass, s *device.Scope, saved *routerScaled, weights, experts Tensor) {
	tmp := p.D.Arena.Scope(device.Activations)
	defer tmp.Release()
	n := weights.Len()
	table := tmp.Alloc(weights.DType, t.factor.Shape[0], 1)
	p.D.Copy(table.Reshape(t.factor.Shape[0]), t.factor.Value)
	saved.factors, saved.weights = s.Alloc(weights.DType, n, 1), s.Like(weights)
	p.D.GatherRows(saved.factors, table, experts.Reshape(n))
	p.D.Copy(saved.weights, weights)
	column := weights.Reshape(n, 1)
	p.D.GateForward(device.GateForwardArgs{Y: column, X: column, G: saved.factors, Plain: 1})
}

// divide makes of the gradient of the product that of the weights, in s, and adds to that of the factors.
func (t *routerScale) divide(p *Pass, s *device.Scope, saved *routerScaled, dweights, experts Tensor) Tensor {
	n := dweights.Len()
	dfactors, dbefore := s.Alloc(dweights.DType, n, 1), s.Like(dweights)
	p.D.GateBackward(device.GateBackwardArgs{DX: dbefore.Reshape(n, 1), DG: dfactors, DY: dweights.Reshape(n, 1), X: saved.weights.Reshape(n, 1), G: saved.factors, Plain: 1})
	if f := t.factor; !f.Frozen {
		p.D.EmbeddingBackward(device.EmbeddingBackwardArgs{DTable: f.Grad.Reshape(f.Shape[0], 1), DOut: dfactors, IDs: experts.Reshape(n), Grid: f.Grid, Peak: f.Peak})
	}
	return dbefore
}

// backward sets dx from the gradient of the scores' input, which it uses up.
func (t *routerScale) backward(p *Pass, saved *routerScaled, dx, din, x Tensor) {
	p.D.Scale(device.ScaleArgs{Out: din, X: din, By: float32(t.by)})
	t.norm.backward(p, saved.stats, dx, din, x, Tensor{})
}
