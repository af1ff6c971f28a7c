package model

import "monotron/csrc/device"

// Ranks that share sequences exchange heads for positions around convolution and scan, as those of a gated
// delta net do (deltacontext.go). Gate and norm need no other rank's positions: they stay behind. B and C of a
// group that all ranks read go to each of them, and their gradients are added on the way back.

// outputs views what the scan gives, or its gradient, by rank.
func (n *mamba) outputs(e headsShared, t Tensor) Tensor {
	ranks := int64(e.context.Heads)
	return parted(t, 0, ranks, n.inner()/ranks)
}

// columnsByRank are views of x, B, C and dt in what the input projection gives, or in its gradient, by rank. A
// group that all ranks read is in the same columns for each.
func (n *mamba) columnsByRank(e headsShared, in Tensor) (x, b, c, dt Tensor) {
	ranks, wide, at := int64(e.context.Heads), n.groups*n.stateDim, n.mixedAt
	group := func(from int64) Tensor {
		if n.groups > 1 {
			return parted(in, from, ranks, wide/ranks)
		}
		t := parted(in, from, ranks, wide)
		t.Stride[1] = 0
		return t
	}
	return parted(in, at, ranks, n.inner()/ranks), group(at + n.inner()), group(at + n.inner() + wide), parted(in, n.dtAt, ranks, n.heads/ranks)
}

// spread sets saved.mixed and returns the time steps: all rows of this rank's share of the heads.
func (saved *mambaSaved) spread(p *Pass, s *device.Scope, e headsShared) (dt Tensor, err error) {
	n := saved.layer
	saved.heads = n.share(e.context.Head(), e.context.Heads)
	h := saved.heads
	x, b, c, dt := n.columnsByRank(e, saved.in)
	all := s.Alloc(p.DType, saved.in.Shape[0]*int64(e.context.Heads), h.channels()+h.heads)
	saved.mixed = all.Slice(1, 0, h.channels())
	return all.Slice(1, h.channels(), h.heads), e.bring(p, byChannel(all), x, b, c, dt)
}

// collect is spread's backward: it sets the columns of x, B, C and dt in din, the gradient of all heads of the
// rows here, from that of all rows of this rank's share.
func (n *mamba) collect(p *Pass, s *device.Scope, e headsShared, din, all Tensor) error {
	x, b, c, dt := n.columnsByRank(e, din)
	if n.groups > 1 {
		return e.back(p, []Tensor{x, b, c, dt}, byChannel(all))
	}
	ranks, rows, wide := e.context.Heads, din.Shape[0], 2*n.stateDim
	parts := s.Alloc(p.DType, rows, int64(ranks), wide, 1) // of B and C, of each rank's heads
	if err := e.back(p, []Tensor{x, parts, dt}, byChannel(all)); err != nil {
		return err
	}
	sum, next := s.Alloc(device.F32, rows, wide), s.Alloc(device.F32, rows, wide)
	part := func(rank int) Tensor { return parts.Slice(1, int64(rank), 1) }
	p.D.Copy(sum.Reshape(rows, 1, wide, 1), part(0))
	for rank := 1; rank < ranks; rank++ {
		p.D.Copy(next.Reshape(rows, 1, wide, 1), part(rank))
		p.D.Add(sum, sum, next)
	}
	p.D.Copy(din.Slice(1, n.mixedAt+n.inner(), wide), sum)
	return nil
}
