package model

import "monotron/csrc/device"

// forwardAfter is forward with the norm behind the half, as in OLMo 2:
// y = x + drop(norm(half(x) + bias)).
func (b *branch) forwardAfter(p *Pass, s *device.Scope, drop hiddenDropout, y, x Tensor) (saved *branchSaved, err error) {
	tmp := p.D.Arena.Scope(device.Activations)
	defer tmp.Release()
	inner := s
	if b.forgetHalf {
		inner = tmp
	}
	saved = &branchSaved{out: s.Like(x)}
	if saved.half, err = b.half.forward(p, inner, saved.out, x); err != nil {
		return nil, err
	}
	if bias := b.half.bias(); bias.Given() {
		p.D.DropoutAdd(device.DropoutAddArgs{Out: saved.out, X: saved.out, Bias: bias})
	}
	normed := tmp.Like(x)
	saved.stats = b.norm.forward(p, s, normed, saved.out)
	if y.Given() {
		drop.add(device.DropoutAddArgs{Out: y, X: normed, Residual: x})
	}
	if b.forgetHalf {
		saved.half = nil
	}
	return saved, nil
}

// backwardAfter is forwardAfter's.
func (b *branch) backwardAfter(p *Pass, saved *branchSaved, drop hiddenDropout, dx, dy, x Tensor) (err error) {
	tmp := p.D.Arena.Scope(device.Activations)
	defer tmp.Release()
	if saved.half == nil {
		if saved.half, err = b.halfAgain(p, tmp, x); err != nil {
			return err
		}
	}
	dnormed := dy
	if !drop.none() {
		dnormed = tmp.Like(x)
		drop.backward(dnormed, dy)
	}
	dout, dhalf := tmp.Like(x), tmp.Like(x)
	b.norm.backward(p, saved.stats, dout, dnormed, saved.out, Tensor{})
	if err := saved.half.backward(p, dhalf, dout, x); err != nil {
		return err
	}
	p.D.Add(dx, dhalf, dy)
	return nil
}
