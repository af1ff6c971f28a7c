package model

import (
	"monotron/csrc/device"
	"monotron/mpu"
)

// Ranks that share sequences exchange heads for positions: a state reads positions one after the
// other, but knows nothing of other heads' states. Each rank then has all positions of some key
// heads with their value heads, and computes what one rank does.

// byHeads is the exchange of layers whose heads must see all positions in order.
func (p Parallel) byHeads() mpu.Context { return mpu.Context{Group: p.Context, Heads: size(p.Context)} }

// headsShared is such an exchange in a pass.
type headsShared struct{ sharedSamples }

// exchangeHeads is the exchange of a pass; of Heads 1 where all positions are here.
func exchangeHeads(p *Pass, context mpu.Context) headsShared {
	if p.Paged != nil {
		context.Heads = 1
	}
	return headsShared{sharedSamples{context, p.documents(p.Seq() * int64(context.Heads))}}
}

// bring sets all [positions·b, key heads of this rank, width, 1] from parts [tokens, key heads, their
// widths, 1] of the rows here.
func (e headsShared) bring(p *Pass, all Tensor, parts ...Tensor) error {
	return p.exchanged(func() error { return e.context.HeadsToPositions(p.D, e.documents, all, parts...) })
}

// back is the way back.
func (e headsShared) back(p *Pass, parts []Tensor, all Tensor) error {
	return p.exchanged(func() error { return e.context.PositionsToHeads(p.D, e.documents, parts, all) })
}

// parted views columns of t [rows, ..] from one on, n of each of several parts, as [rows, parts, n, 1].
func parted(t Tensor, from, parts, n int64) Tensor {
	return device.Strided(t.Slice(1, from, 1).Data, t.DType, []int64{t.Shape[0], parts, n, 1}, []int64{t.Stride[0], n, 1, 1})
}

// columnsByKey are views of the input projection's output, or of its gradient, by key head: queries,
// keys, values, gates, b and a.
func (h deltaHeads) columnsByKey(all Tensor) (parts []Tensor) {
	each, at := h.values/h.keys, int64(0)
	for _, n := range []int64{h.keyDim, h.keyDim, each * h.valueDim, each * h.valueDim, each, each} {
		parts = append(parts, parted(all, at, h.keys, n))
		at += h.keys * n
	}
	return parts
}

// outputs views what goes into the output projection by key head.
func (h deltaHeads) outputs(t Tensor) Tensor {
	n := h.values / h.keys * h.valueDim
	return t.Reshape(t.Shape[0], h.keys, n, 1)
}

// spread makes saved.in, all heads of the rows here, all rows of this rank's heads.
func (e headsShared) spread(p *Pass, s *device.Scope, saved *deltaSaved) error {
	n := saved.net
	saved.heads = n.share(e.context.Head(), e.context.Heads)
	h := saved.heads
	tmp := p.D.Arena.Scope(device.Communication)
	defer tmp.Release()
	rows := saved.in.Shape[0] * int64(e.context.Heads)
	all := tmp.Alloc(p.DType, rows, h.keys, h.columns()/h.keys, 1)
	if err := e.bring(p, all, n.columnsByKey(saved.in)...); err != nil {
		return err
	}
	s.Free(saved.in) // all of it is there
	saved.in = s.Alloc(p.DType, rows, h.columns())
	at := int64(0)
	for _, part := range h.columnsByKey(saved.in) {
		p.D.Copy(part, all.Slice(2, at, part.Shape[2]))
		at += part.Shape[2]
	}
	return nil
}

// collect is spread's backward: the gradient of all heads of the rows here.
func (e headsShared) collect(p *Pass, s *device.Scope, n *deltaNet, h deltaHeads, din Tensor) (Tensor, error) {
	tmp := p.D.Arena.Scope(device.Communication)
	defer tmp.Release()
	all := tmp.Alloc(p.DType, din.Shape[0], h.keys, h.columns()/h.keys, 1)
	at := int64(0)
	for _, part := range h.columnsByKey(din) {
		p.D.Copy(all.Slice(2, at, part.Shape[2]), part)
		at += part.Shape[2]
	}
	mine := s.Alloc(p.DType, p.Tokens(), n.columns())
	return mine, e.back(p, n.columnsByKey(mine), all)
}
