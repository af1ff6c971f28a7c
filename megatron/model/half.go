package model

import (
	"monotron/csrc/device"
	"monotron/mpu"
)

// half is what stands between a norm and the residual stream: attention, an MLP, a
// mixture of experts.
type half interface {
	params() []*mpu.Param
	// forward sets y = half(x) without the bias, keeping in s what backward needs.
	// Without a y it makes only what is kept.
	forward(p *Pass, s *device.Scope, y, x Tensor) (halfSaved, error)
	// bias is added to y where the half joins the residual stream; none is possible.
	bias() Tensor
}

// halfSaved is what a half's forward kept.
type halfSaved interface {
	// backward sets dx from dy; x is forward's input. What was kept is used up.
	backward(p *Pass, dx, dy, x Tensor) error
}

// mixer is a half in which positions see each other.
type mixer interface {
	half
	// prepare takes what depends on the position and is no parameter.
	prepare(d *device.Device, t *positionTables)
	// newBlocks makes the same in blocks, of blockBytes each.
	newBlocks(d *device.Device, dtype device.DType, blocks int64) Tensor
	blockBytes(dtype device.DType) int64
}

// branch is one half of a layer with its norm: y = residual + drop(half(norm x) + bias), where
// the residual is x itself but for a half that works beside another.
type branch struct {
	norm  *norm
	half  half
	place string // of its dropout, in the layer
	after bool   // the norm follows the half: see forwardAfter
	// Not kept between forward and backward, but computed again:
	forgetNorm bool // the normed input
	forgetHalf bool // what the half keeps
}

// branchSaved is what a branch's backward needs besides its input.
type branchSaved struct {
	normed Tensor // none: forgotten
	out    Tensor // what a norm after the half takes
	stats  normSaved
	half   halfSaved // nil: forgotten
}

// forward sets y, keeping in scope s what backward needs. Without a y it makes only
// what is kept.
func (b *branch) forward(p *Pass, s *device.Scope, drop hiddenDropout, y, x, residual Tensor) (saved *branchSaved, err error) {
	if b.after {
		return b.forwardAfter(p, s, drop, y, x)
	}
	tmp := p.D.Arena.Scope(device.Activations)
	defer tmp.Release()
	norms, inner := s, s
	if b.forgetNorm {
		norms = tmp
	}
	if b.forgetHalf {
		inner = tmp
	}
	saved = &branchSaved{normed: norms.Like(x)}
	saved.stats = b.norm.forward(p, s, saved.normed, x)
	var out Tensor
	if y.Given() {
		out = tmp.Like(x)
	}
	if saved.half, err = b.half.forward(p, inner, out, saved.normed); err != nil {
		return nil, err
	}
	if y.Given() {
		drop.add(device.DropoutAddArgs{Out: y, X: out, Bias: b.half.bias(), Residual: residual})
	}
	if b.forgetNorm {
		saved.normed = Tensor{}
	}
	if b.forgetHalf {
		saved.half = nil
	}
	return saved, nil
}

// backward sets dx from dy; x is forward's input, through what else goes into dx: dy where x
// is the residual too. It uses up what was saved.
func (b *branch) backward(p *Pass, saved *branchSaved, drop hiddenDropout, dx, dy, x, through Tensor) (err error) {
	if b.after {
		return b.backwardAfter(p, saved, drop, dx, dy, x)
	}
	tmp := p.D.Arena.Scope(device.Activations)
	defer tmp.Release()
	normed := saved.normed
	if !normed.Given() {
		normed = tmp.Like(x)
		b.norm.forward(p, tmp, normed, x)
	}
	if saved.half == nil {
		if saved.half, err = b.halfAgain(p, tmp, normed); err != nil {
			return err
		}
	}
	dout, dnormed := dy, tmp.Like(x)
	if !drop.none() {
		dout = tmp.Like(x)
		drop.backward(dout, dy)
	}
	if err := saved.half.backward(p, dnormed, dout, normed); err != nil {
		return err
	}
	b.norm.backward(p, saved.stats, dx, dnormed, x, through)
	return nil
}

// halfAgain makes what the half did not keep; x is its input.
func (b *branch) halfAgain(p *Pass, tmp *device.Scope, x Tensor) (halfSaved, error) {
	p.Again = true
	defer func() { p.Again = false }()
	return b.half.forward(p, tmp, Tensor{}, x)
}

func (b *branch) params() []*mpu.Param { return append(b.norm.params(), b.half.params()...) }
