package model

import (
	"monotron/csrc/device"
	"monotron/megatron/spec"
	"monotron/mpu"
)

// groupNorm is an RMSNorm of each of several groups of neighbouring channels of a row, whose weights are not offset
// by 1. A tensor-parallel rank has complete groups; where there are fewer than ranks it joins the rows of all.
type groupNorm struct {
	*norm           // gamma [channels here], or of all ranks
	groups int64    // of the channels of gamma
	row    *headRow // nil: complete groups are here
}

func newGroupNorm(m *spec.Model, name string, groups int, width int64, p Parallel) *groupNorm {
	size, rank := int64(p.TP.Size()), int64(p.TP.Rank())
	one := mpu.Init{Kind: mpu.InitConstant, Value: 1}
	n := &groupNorm{norm: &norm{kind: device.RMSNormKind, eps: float32(m.NormEpsilon)}, groups: int64(groups)}
	if n.groups%size == 0 {
		here := width / size
		n.groups /= size
		n.gamma = mpu.Rows(name+".weight", one, []int64{width}, [][2]int64{{rank * here, here}}, here)
		return n
	}
	n.row = &headRow{region: mpu.Region{Group: p.TP}, sharers: 1}
	n.gamma = mpu.Uncut(name+".weight", one, width)
	n.gamma.Outside(n.row.region)
	return n
}

// each calls do with every group's columns of a tensor [tokens, channels of gamma], of weights or rows of their gradients, and statistics.
func (n *groupNorm) each(do func(columns, weights func(Tensor) Tensor, stat func(Tensor) Tensor)) {
	wide := n.gamma.Shape[0] / n.groups
	for i := range n.groups {
		do(func(t Tensor) Tensor { return t.Slice(1, i*wide, wide) }, func(t Tensor) Tensor { return t.Slice(int(t.Rank)-1, i*wide, wide) },
			func(t Tensor) Tensor { k := t.Shape[0] / n.groups; return t.Slice(0, i*k, k) })
	}
}

// joined is the row of a token with the channels of all ranks: x itself, or in s.
func (n *groupNorm) joined(p *Pass, s *device.Scope, x Tensor) (Tensor, error) {
	if n.row == nil {
		return x, nil
	}
	return n.row.join(p, s, x)
}

// own copies this rank's columns of a joined row to t, if it is not t.
func (n *groupNorm) own(p *Pass, t, row Tensor) {
	if n.row != nil {
		p.D.Copy(t, row.Slice(1, int64(n.row.region.Rank())*t.Shape[1], t.Shape[1]))
	}
}

// forward sets y = norm(x), both [tokens, channels here].
func (n *groupNorm) forward(p *Pass, s *device.Scope, y, x Tensor) (normSaved, error) {
	tmp := p.D.Arena.Scope(device.Activations)
	defer tmp.Release()
	row, err := n.joined(p, tmp, x)
	if err != nil {
		return normSaved{}, err
	}
	normed := y
	if n.row != nil {
		normed = tmp.Like(row)
	}
	saved := normSaved{rstd: s.Alloc(statsType(p), n.groups*x.Shape[0])}
	n.each(func(columns, weights, stat func(Tensor) Tensor) {
		p.D.NormForward(device.NormForwardArgs{Y: columns(normed), X: columns(row), Gamma: weights(n.gamma.Value), Rstd: stat(saved.rstd), Eps: n.eps, Kind: n.kind})
	})
	n.own(p, y, normed)
	return saved, nil
}

// backward sets dx = norm'(x)·dy; dx may be dy.
func (n *groupNorm) backward(p *Pass, saved normSaved, dx, dy, x Tensor) error {
	tmp := p.D.Arena.Scope(device.Activations)
	defer tmp.Release()
	row, err := n.joined(p, tmp, x)
	if err != nil {
		return err
	}
	drow, err := n.joined(p, tmp, dy)
	if err != nil {
		return err
	}
	to := dx
	if n.row != nil {
		to = drow
	}
	all := func(grad Tensor, leaves mpu.Leaves) {
		n.each(func(columns, weights, stat func(Tensor) Tensor) {
			p.D.NormBackward(device.NormBackwardArgs{DX: columns(to), DY: columns(drow), X: columns(row), Gamma: weights(n.gamma.Value), DGamma: weights(grad),
				Rstd: stat(saved.rstd), Kind: n.kind, Chunk: int32(leaves.Chunk), Batch: int32(leaves.Batch)})
		})
	}
	if n.gamma.Frozen {
		all(gradient(p, tmp, n.gamma), mpu.Leaves{})
	} else {
		p.Leaves.AddTo(p.D, n.params(), x.Shape[0], func(grads []Tensor, leaves mpu.Leaves) { all(grads[0], leaves) })
	}
	n.own(p, dx, to)
	return nil
}
