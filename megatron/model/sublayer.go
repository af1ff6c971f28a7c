package model

import (
	"monotron/csrc/device"
	"monotron/mpu"
)

// sublayer is what stands between a norm and the residual stream: attention, an MLP, a
// mixture of experts.
type sublayer interface {
	params() []*mpu.Param
	// forward sets y = sublayer(x) without the bias, keeping in s what backward needs.
	// Without a y it makes only what is kept.
	forward(p *Pass, s *device.Scope, y, x Tensor) (sublayerSaved, error)
	// bias is added to y where the sublayer joins the residual stream; none is possible.
	bias() Tensor
}

// sublayerSaved is what a sublayer's forward kept.
type sublayerSaved interface {
	// backward sets dx from dy; x is forward's input. What was kept is used up.
	backward(p *Pass, dx, dy, x Tensor) error
}

// mixer is a sublayer in which positions see each other.
type mixer interface {
	sublayer
	// prepare takes the tables that depend on the position.
	prepare(d *device.Device, t *positionTables)
	// newBlocks makes the same in blocks, of blockBytes each.
	newBlocks(d *device.Device, dtype device.DType, blocks int64) Tensor
	blockBytes(dtype device.DType) int64
}

// branch is one sublayer with its norms: y = residual + drop(sublayer(norm x) + bias), where
// the residual is x itself, except for a sublayer that runs in parallel with another. See forwardParts for what
// some models do with the sublayer's output.
type branch struct {
	norm     *norm // of the input; nil: none
	sublayer sublayer
	at       string // of its dropout, in the layer

	post   *norm   // of the sublayer's output; nil: none
	scale  float64 // of the residual branch; 0: 1
	behind *norm   // of the sum with the residual; nil: none
	shared bool    // the norm is the other branch's too

	// Not kept between forward and backward, but computed again:
	recomputeNorm     bool // the normed input
	recomputeSublayer bool // what the sublayer keeps
}

// plain reports whether the sublayer's output is added without a norm or a scale.
func (b *branch) plain() bool {
	return b.norm != nil && b.post == nil && b.behind == nil && (b.scale == 0 || b.scale == 1)
}

// branchSaved is what a branch's backward needs in addition to its input.
type branchSaved struct {
	normed   Tensor // none: recomputed
	stats    normSaved
	sublayer sublayerSaved // nil: recomputed
	kept     *mpu.Kept     // of the sublayer's adapters

	out         Tensor // what the norm of the output takes
	outStats    normSaved
	sum         Tensor // what the norm behind takes
	behindStats normSaved
}

// forward sets y, keeping in scope s what backward needs. Without a y it makes only
// what is kept.
func (b *branch) forward(p *Pass, s *device.Scope, drop hiddenDropout, y, x, residual Tensor) (saved *branchSaved, err error) {
	if !b.plain() {
		return b.forwardParts(p, s, drop, y, x, residual)
	}
	tmp := p.D.Arena.Scope(device.Activations)
	defer tmp.Release()
	norms, inner := b.scopes(s, tmp)
	// normed, out: [rows, h]
	saved = &branchSaved{normed: norms.Like(x)}
	saved.stats = b.norm.forward(p, s, saved.normed, x)
	var out Tensor
	if y.Given() {
		out = tmp.Like(x)
	}
	if err = b.forwardSublayer(p, inner, saved, out, saved.normed); err != nil {
		return nil, err
	}
	if y.Given() {
		// y = residual + dropout(out + bias), one kernel.
		drop.add(device.DropoutAddArgs{Out: y, X: out, Bias: b.sublayer.bias(), Residual: residual})
	}
	b.dropRecomputed(saved)
	return saved, nil
}

// scopes are where the norm's output and what the sublayer keeps live: in s until backward, or where backward
// computes them again in tmp, until forward returns.
func (b *branch) scopes(s, tmp *device.Scope) (norms, inner *device.Scope) {
	norms, inner = s, s
	if b.recomputeNorm {
		norms = tmp
	}
	if b.recomputeSublayer {
		inner = tmp
	}
	return norms, inner
}

// forwardSublayer sets y = sublayer(x), and in saved what backward needs, which lives in s.
func (b *branch) forwardSublayer(p *Pass, s *device.Scope, saved *branchSaved, y, x Tensor) (err error) {
	if p.Grad {
		saved.kept = mpu.Keep(s)
	}
	p.Kept = saved.kept
	saved.sublayer, err = b.sublayer.forward(p, s, y, x)
	p.Kept = nil
	return err
}

// dropRecomputed drops what backward computes again.
func (b *branch) dropRecomputed(saved *branchSaved) {
	if b.recomputeNorm {
		saved.normed = Tensor{}
	}
	if b.recomputeSublayer {
		saved.sublayer, saved.kept = nil, nil
	}
}

// backward sets dx from dy; x is forward's input, through what else goes into dx: dy where x
// is the residual too. It uses up what was saved.
func (b *branch) backward(p *Pass, saved *branchSaved, drop hiddenDropout, dx, dy, x, through Tensor) (err error) {
	if !b.plain() {
		return b.backwardParts(p, saved, drop, dx, dy, x, through)
	}
	tmp := p.D.Arena.Scope(device.Activations)
	defer tmp.Release()
	dout := dy
	if !drop.none() {
		dout = tmp.Like(x)
		drop.backward(dout, dy)
	}
	return b.backwardSublayer(p, saved, dx, dout, x, through)
}

// backwardSublayer is backward of norm and sublayer, whose output has the gradient dout.
func (b *branch) backwardSublayer(p *Pass, saved *branchSaved, dx, dout, x, through Tensor) (err error) {
	tmp := p.D.Arena.Scope(device.Activations)
	defer tmp.Release()
	// in: [rows, h], the input of attention or MLP, computed again where it was not kept.
	in := x
	if b.norm != nil {
		if in = saved.normed; !in.Given() {
			in = tmp.Like(x)
			b.norm.forward(p, tmp, in, x)
		}
	}
	if saved.sublayer == nil {
		if err = b.sublayerAgain(p, tmp, saved, in); err != nil {
			return err
		}
	}
	// din: gradient of the normed input; through: gradient by the residual, which skips norm and sublayer.
	din := tmp.Like(x)
	p.Kept = saved.kept
	err = saved.sublayer.backward(p, din, dout, in)
	if p.Kept = nil; err != nil {
		return err
	}
	switch {
	case b.norm != nil:
		b.norm.backward(p, saved.stats, dx, din, x, through)
	case through.Given():
		p.D.Add(dx, din, through)
	default:
		p.D.Copy(dx, din)
	}
	return nil
}

// sublayerAgain makes what the sublayer did not keep; x is its input.
func (b *branch) sublayerAgain(p *Pass, tmp *device.Scope, saved *branchSaved, x Tensor) error {
	p.Again = true
	defer func() { p.Again = false }()
	return b.forwardSublayer(p, tmp, saved, Tensor{}, x)
}

// params has the norms of the input first, those of the output last; no branch has none.
func (b *branch) params() (ps []*mpu.Param) {
	if b == nil {
		return nil
	}
	if b.norm != nil && !b.shared {
		ps = b.norm.params()
	}
	ps = append(ps, b.sublayer.params()...)
	for _, n := range []*norm{b.post, b.behind} {
		if n != nil {
			ps = append(ps, n.params()...)
		}
	}
	return ps
}
