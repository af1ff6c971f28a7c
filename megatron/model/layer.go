package model

import (
	"fmt"

	"monotron/csrc/device"
	"monotron/megatron/spec"
	"monotron/mpu"
)

// layer, on [tokens, h], under sequence parallelism on the rank's rows of it, is
// x += drop(attention(norm1 x) + b); x += drop(mlp(norm2 x) + b).
type layer struct {
	m            *spec.Model
	number       int // global, 0-based
	region       mpu.Region
	norm1, norm2 *norm
	attention    *attention
	mlp          *mlp
	forget       Forget
}

func newLayer(m *spec.Model, number int, p Parallel) *layer {
	name := fmt.Sprintf("decoder.layers.%d", number)
	return &layer{
		m: m, number: number, region: p.region(),
		norm1: newNorm(m, name+".input_layernorm", m.HiddenSize).outside(p), attention: newAttention(m, number, name+".self_attention", p),
		norm2: newNorm(m, name+".pre_mlp_layernorm", m.HiddenSize).outside(p), mlp: newMLP(m, name+".mlp", p),
	}
}

// params are in Megatron's order within a layer.
func (l *layer) params() []*mpu.Param {
	var ps []*mpu.Param
	ps = append(ps, l.norm1.params()...)
	ps = append(ps, l.attention.params()...)
	ps = append(ps, l.norm2.params()...)
	return append(ps, l.mlp.params()...)
}

// layerSaved is what the layer's backward needs besides its input.
type layerSaved struct {
	scope     *device.Scope
	n1, n2    Tensor // normed inputs of attention and mlp; none when forgotten
	s1, s2    normSaved
	attention *attentionSaved
	middle    Tensor // the residual stream between the halves
	mlp       *mlpSaved
}

// forward sets y = layer(x), keeping in scope s what backward needs. Without a y
// it makes only what is kept: the end of a recomputed chunk, whose output the
// first time gave.
func (l *layer) forward(p *Pass, s *device.Scope, y, x Tensor) (saved *layerSaved, err error) {
	tmp := p.D.Arena.Scope(device.Activations)
	defer tmp.Release()
	saved = &layerSaved{scope: s, n1: s.Like(x), middle: s.Like(x)}
	saved.s1 = l.norm1.forward(p, s, saved.n1, x)
	branch := tmp.Like(x)
	if saved.attention, err = l.attention.forward(p, s, branch, saved.n1); err != nil {
		return nil, err
	}
	l.join(p, saved.middle, branch, l.attention.proj, x, "attention_output")
	if l.forget.Norms {
		s.Free(saved.n1)
		saved.n1 = Tensor{}
	}

	inner, norms := s, s
	if l.forget.MLP {
		inner = tmp
	}
	if l.forget.Norms {
		norms = tmp
	}
	saved.n2 = norms.Like(x)
	saved.s2 = l.norm2.forward(p, s, saved.n2, saved.middle)
	if !y.Given() {
		saved.mlp, err = l.mlp.inner(p, inner, saved.n2)
		return saved, err
	}
	if saved.mlp, err = l.mlp.forward(p, inner, branch, saved.n2); err != nil {
		return nil, err
	}
	l.join(p, y, branch, l.mlp.fc2, saved.middle, "mlp_output")
	if l.forget.MLP {
		saved.mlp = nil
	}
	if l.forget.Norms {
		saved.n2 = Tensor{}
	}
	return saved, nil
}

// join sets out = residual + drop(branch + bias).
func (l *layer) join(p *Pass, out, branch Tensor, from *mpu.RowParallelLinear, residual Tensor, place string) {
	p.D.DropoutAdd(device.DropoutAddArgs{Out: out, X: branch, Bias: from.BiasValue(), Residual: residual, Drop: l.drop(p, place)})
}

func (l *layer) drop(p *Pass, place string) device.Dropout {
	return p.dropout(l.m.HiddenDropout, fmt.Sprintf("layers.%d.%s", l.number, place), p.firstPosition(l.region))
}

// backward sets dx from dy; x is forward's input. It uses up what was saved and
// releases its scope.
func (l *layer) backward(p *Pass, saved *layerSaved, dx, dy, x Tensor) error {
	tmp := p.D.Arena.Scope(device.Activations)
	defer tmp.Release()
	defer saved.scope.Release()
	dbranch, dnorm, dmiddle := tmp.Like(x), tmp.Like(x), tmp.Like(x)

	n2 := l.remember(p, tmp, l.norm2, saved.n2, saved.middle)
	if saved.mlp == nil {
		var err error
		if saved.mlp, err = l.mlp.inner(p, tmp, n2); err != nil {
			return err
		}
	}
	if err := l.mlp.backward(p, saved.mlp, dnorm, l.unjoin(p, dbranch, dy, "mlp_output"), n2); err != nil {
		return err
	}
	l.norm2.backward(p, saved.s2, dmiddle, dnorm, saved.middle, dy)

	n1 := l.remember(p, tmp, l.norm1, saved.n1, x)
	if err := l.attention.backward(p, saved.attention, dnorm, l.unjoin(p, dbranch, dmiddle, "attention_output"), n1); err != nil {
		return err
	}
	l.norm1.backward(p, saved.s1, dx, dnorm, x, dmiddle)
	return nil
}

// unjoin is the gradient of a branch: dy through the dropout, dy itself without.
func (l *layer) unjoin(p *Pass, dbranch, dy Tensor, place string) Tensor {
	drop := l.drop(p, place)
	if drop.Rate == 0 {
		return dy
	}
	p.D.DropoutBackward(device.DropoutBackwardArgs{DX: dbranch, DY: dy, Drop: drop})
	return dbranch
}

// remember returns the normed input, computing it again where it was forgotten.
func (l *layer) remember(p *Pass, tmp *device.Scope, n *norm, kept, x Tensor) Tensor {
	if kept.Given() {
		return kept
	}
	again := tmp.Like(x)
	n.forward(p, tmp, again, x)
	return again
}
