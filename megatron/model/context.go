package model

import (
	"monotron/csrc/device"
	"monotron/mpu"
)

// contextOf is how a layer's attention exchanges with the ranks that share its sequences.
func (p Parallel) contextOf(layer int) (mpu.Context, mpu.ContextKind) {
	c := mpu.Context{Group: p.Context, Heads: 1}
	if size(p.Context) == 1 {
		return c, ""
	}
	kind := mpu.Ring
	switch len(p.ContextKinds) {
	case 0:
	case 1:
		kind = p.ContextKinds[0]
	default:
		kind = p.ContextKinds[layer]
	}
	switch kind {
	case mpu.ExchangeHeads:
		c.Heads = c.Size()
	case mpu.HeadsInsideRing:
		c.Heads = p.ContextHeads
	}
	return c, kind
}

// exchange is the way for a pass.
func (a *attention) exchange(p *Pass) exchange {
	if a.kind == "" {
		at := p.Positions[0]
		if p.Cache != nil {
			at.From = p.Cache.Used
		}
		return alone{at}
	}
	whole := p.Seq() * int64(a.context.Size())
	positions := a.context.Positions(whole)
	var inner exchange
	switch {
	case len(positions) == 1:
		inner = alone{positions[0]}
	case a.kind == mpu.GatherKeys:
		inner = gathered{a.context, positions}
	default:
		inner = ring{a.context, positions}
	}
	if a.context.Heads > 1 {
		return turned{a.context, positions, inner}
	}
	return inner
}

// gathered brings the keys of all positions here, for as long as they are needed.
type gathered struct {
	context   mpu.Context
	positions mpu.Positions
}

// gather is the keys and values of all positions, in their order: the forward pass has the
// bits of one rank.
func (e gathered) gather(p *Pass, s *device.Scope, c core, h heads) (Tensor, error) {
	tmp := p.D.Arena.Scope(device.Communication)
	defer tmp.Release()
	own := c.keys(p, tmp, p.DType, p.Seq())
	pack(p, own, h)
	all := c.keys(p, s, p.DType, p.Seq()*int64(e.context.Size()))
	return all, p.exchanged(func() error { return e.context.Gather(p.D, all, own) })
}

// seen are the keys and values that queries at a span can see.
func (e gathered) seen(p *Pass, all Tensor, at mpu.Span) heads {
	kv := all.Slice(0, 0, (at.From+at.N)*p.Batch)
	return heads{k: kv.Slice(2, 0, 1), v: kv.Slice(2, 1, 1)}
}

func (e gathered) forward(p *Pass, s *device.Scope, c core, o Tensor, h heads) (attended, error) {
	tmp := p.D.Arena.Scope(device.Communication)
	defer tmp.Release()
	out := c.room(p, s, o, e.positions)
	all, err := e.gather(p, tmp, c, h)
	if err != nil {
		return out, err
	}
	p.spans(e.positions, func(i int, at mpu.Span, rows func(Tensor) Tensor) {
		seen := e.seen(p, all, at)
		seen.q = rows(h.q)
		p.D.AttentionForward(c.call(p, at, 0, rows(out.o), out.lse[i], seen))
	})
	return out, nil
}

// backward sums the keys' gradients in f32 before anything is rounded.
func (e gathered) backward(p *Pass, c core, out attended, h, grads heads, do Tensor) error {
	tmp := p.D.Arena.Scope(device.Communication)
	defer tmp.Release()
	all, err := e.gather(p, tmp, c, h)
	if err != nil {
		return err
	}
	sum, part := c.keys(p, tmp, statsType(p), all.Shape[0]/p.Batch), c.keys(p, tmp, statsType(p), all.Shape[0]/p.Batch)
	p.D.Fill(sum, 0)
	p.spans(e.positions, func(i int, at mpu.Span, rows func(Tensor) Tensor) {
		seen, to := e.seen(p, all, at), e.seen(p, part, at)
		seen.q = rows(h.q)
		p.D.AttentionBackward(device.AttentionBackwardArgs{DQ: rows(grads.q), DK: to.k, DV: to.v, DO: rows(do), Forward: c.call(p, at, 0, rows(out.o), out.lse[i], seen)})
		n := seen.k.Shape[0]
		p.D.Add(sum.Slice(0, 0, n), sum.Slice(0, 0, n), part.Slice(0, 0, n))
	})
	own := c.keys(p, tmp, statsType(p), p.Seq())
	if err := p.exchanged(func() error { return e.context.Scatter(p.D, own, sum) }); err != nil {
		return err
	}
	p.D.Copy(grads.k, own.Slice(2, 0, 1))
	p.D.Copy(grads.v, own.Slice(2, 1, 1))
	return nil
}

// turned exchanges the heads of the rows here for more positions of some heads, before an
// inner exchange sees them.
type turned struct {
	context   mpu.Context
	positions mpu.Positions // after the exchange
	inner     exchange
}

// room is for queries, keys and values after the exchange, by group of heads.
func (e turned) room(p *Pass, s *device.Scope, c core) Tensor {
	return s.Alloc(p.DType, e.positions.Len()*p.Batch, c.groups, c.a.perGroup+2, c.a.channels)
}

func (e turned) views(c core, all Tensor) heads {
	n := c.a.perGroup
	return heads{q: all.Slice(2, 0, n), k: all.Slice(2, n, 1), v: all.Slice(2, n+1, 1)}
}

func (e turned) forward(p *Pass, s *device.Scope, c core, o Tensor, h heads) (at attended, err error) {
	c = c.share(e.context.Head(), e.context.Heads)
	all := e.room(p, s, c)
	if err := p.exchanged(func() error { return e.context.HeadsToPositions(p.D, all, h.q, h.k, h.v) }); err != nil {
		return at, err
	}
	if at, err = e.inner.forward(p, s, c, s.Alloc(p.DType, c.shape(p, e.positions.Len())...), e.views(c, all)); err != nil {
		return at, err
	}
	at.turned = all
	return at, p.exchanged(func() error { return e.context.PositionsToHeads(p.D, []Tensor{o}, at.o) })
}

func (e turned) backward(p *Pass, c core, at attended, _, grads heads, do Tensor) error {
	tmp := p.D.Arena.Scope(device.Activations)
	defer tmp.Release()
	c = c.share(e.context.Head(), e.context.Heads)
	more, dall := tmp.Like(at.o), e.room(p, tmp, c)
	if err := p.exchanged(func() error { return e.context.HeadsToPositions(p.D, more, do) }); err != nil {
		return err
	}
	if err := e.inner.backward(p, c, at, e.views(c, at.turned), e.views(c, dall), more); err != nil {
		return err
	}
	return p.exchanged(func() error { return e.context.PositionsToHeads(p.D, []Tensor{grads.q, grads.k, grads.v}, dall) })
}
