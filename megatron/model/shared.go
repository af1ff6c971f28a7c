package model

import (
	"monotron/csrc/device"
)

// Layers that have no keys and values read those of an earlier layer (Gemma 4 E2B and E4B): these are kept
// with the micro-batch, whatever its layers recompute, and their gradients are added up there until that
// layer's backward takes them.

// lent are keys and values of a layer that later ones read, [tokens, groups, 1, d] as attention saw them.
type lent struct {
	k, v   Tensor
	dk, dv Tensor // sums of the gradients so far; none: nobody has added any
}

// lend keeps what a layer's attention saw of keys and values.
func (a *attention) lend(p *Pass, h heads) {
	if !a.lends || p.saved.lent[a.layer] != nil {
		return
	}
	kept := &lent{k: p.saved.bounds.Like(h.k), v: p.saved.bounds.Like(h.v)}
	p.D.Copy(kept.k, h.k)
	p.D.Copy(kept.v, h.v)
	p.saved.lent[a.layer] = kept
}

// addLent adds the gradients of a layer that has read keys and values to the sums.
func (a *attention) addLent(p *Pass, dk, dv Tensor) {
	to := p.saved.lent[a.source]
	if to.dk.Given() {
		p.D.Add(to.dk, to.dk, dk)
		p.D.Add(to.dv, to.dv, dv)
		return
	}
	to.dk, to.dv = p.saved.bounds.Like(dk), p.saved.bounds.Like(dv)
	p.D.Copy(to.dk, dk)
	p.D.Copy(to.dv, dv)
}

// takeLent adds what later layers have summed up to a layer's gradients of keys and values, which are contiguous.
func (a *attention) takeLent(p *Pass, dk, dv Tensor) {
	if from := p.saved.lent[a.layer]; a.lends && from != nil && from.dk.Given() {
		p.D.Add(dk, dk, from.dk)
		p.D.Add(dv, dv, from.dv)
	}
}

// cacheLayer is the layer whose blocks have the keys and values.
func (a *attention) cacheLayer() int {
	if a.borrowed {
		return a.source
	}
	return a.layer
}

// backwardQueries ends backward of attention without keys of its own: dq, rotated, to the gradient of x.
func (saved *attentionSaved) backwardQueries(p *Pass, s *device.Scope, dx, x Tensor, out heads) error {
	a := saved.attention
	a.addLent(p, out.k, out.v)
	a.rotate(p, heads{q: out.q}, 1)
	dqkv := s.Like(saved.qkv)
	if err := a.qNorm.backward(p, saved.qs, a.split(dqkv).q, out.q, a.split(saved.qkv).q); err != nil {
		return err
	}
	return a.qkv.Backward(p.D, &p.Hooks, dx, dqkv, x)
}
