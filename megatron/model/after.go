package model

import "monotron/csrc/device"

// forwardParts is forward of a branch that does more with the sublayer's output than add it:
//
//	out = scale·post(sublayer(norm x) + bias)   post: OLMo 2, Gemma 2; scale: Granite
//	y = behind(residual + drop(out))        behind: OPT-350m
func (b *branch) forwardParts(p *Pass, s *device.Scope, drop hiddenDropout, y, x, residual Tensor) (saved *branchSaved, err error) {
	tmp := p.D.Arena.Scope(device.Activations)
	defer tmp.Release()
	norms, inner := b.scopes(s, tmp)
	saved = &branchSaved{}
	// in, out: [rows, h]
	in := x
	if b.norm != nil {
		saved.normed = norms.Like(x)
		saved.stats = b.norm.forward(p, s, saved.normed, x)
		in = saved.normed
	}
	needed := y.Given() || b.post != nil || b.behind != nil // by what is kept
	// The output is kept where a norm of it follows, whose backward reads it.
	var out Tensor
	switch {
	case b.post != nil:
		saved.out = s.Like(x)
		out = saved.out
	case needed:
		out = tmp.Like(x)
	}
	if err = b.forwardSublayer(p, inner, saved, out, in); err != nil {
		return nil, err
	}
	if needed {
		b.joinResidual(p, s, tmp, saved, drop, y, out, residual)
	}
	b.dropRecomputed(saved)
	return saved, nil
}

// joinResidual makes y of the sublayer's output, which it may change where nobody keeps it.
func (b *branch) joinResidual(p *Pass, s, tmp *device.Scope, saved *branchSaved, drop hiddenDropout, y, out, residual Tensor) {
	if bias := b.sublayer.bias(); bias.Given() {
		p.D.DropoutAdd(device.DropoutAddArgs{Out: out, X: out, Bias: bias})
	}
	if b.post != nil {
		normed := tmp.Like(out)
		saved.outStats = b.post.forward(p, s, normed, out)
		out = normed
	}
	b.times(p, out, out)
	switch {
	case b.behind != nil:
		saved.sum = s.Like(out)
		drop.add(device.DropoutAddArgs{Out: saved.sum, X: out, Residual: residual})
		to := y
		if !to.Given() {
			to = tmp.Like(out)
		}
		saved.behindStats = b.behind.forward(p, s, to, saved.sum)
	case y.Given():
		drop.add(device.DropoutAddArgs{Out: y, X: out, Residual: residual})
	}
}

// times sets y = scale·x, where there is a scale; y may be x.
func (b *branch) times(p *Pass, y, x Tensor) {
	if b.scale != 0 && b.scale != 1 {
		p.D.Scale(device.ScaleArgs{Out: y, X: x, By: float32(b.scale)})
	}
}

// backwardParts is forwardParts'.
func (b *branch) backwardParts(p *Pass, saved *branchSaved, drop hiddenDropout, dx, dy, x, through Tensor) error {
	tmp := p.D.Arena.Scope(device.Activations)
	defer tmp.Release()
	if b.behind != nil {
		dsum := tmp.Like(dy)
		b.behind.backward(p, saved.behindStats, dsum, dy, saved.sum, Tensor{})
		dy, through = dsum, dsum
	}
	dout := dy
	if !drop.none() {
		dout = tmp.Like(x)
		drop.backward(dout, dy)
	}
	if b.scale != 0 && b.scale != 1 {
		scaled := tmp.Like(x)
		b.times(p, scaled, dout)
		dout = scaled
	}
	if b.post != nil {
		dsublayer := tmp.Like(x)
		b.post.backward(p, saved.outStats, dsublayer, dout, saved.out, Tensor{})
		dout = dsublayer
	}
	return b.backwardSublayer(p, saved, dx, dout, x, through)
}
