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
		kind = p.ContextKinds[min(layer, len(p.ContextKinds)-1)]
	}
	switch kind {
	case mpu.ExchangeHeads:
		c.Heads = c.Size()
	case mpu.HeadsInsideRing:
		c.Heads = p.ContextHeads
	}
	return c, kind
}

// hasAll reports whether no other rank has positions of the pass.
func (a *attention) hasAll(p *Pass) bool { return a.kind == "" || p.Full }

// exchange is the way for a pass.
func (a *attention) exchange(p *Pass) exchange {
	// No exchange: this rank has all positions.
	if a.hasAll(p) {
		local := a.withSinks(alone{p.Positions[0]}, p.Positions[:1])
		if p.AsGenerated != nil {
			return generated{local}
		}
		return local
	}
	// A prompt whose keys and values go into blocks: all ranks need all of them, in order, to decode later.
	shared := sharedSamples{a.context, p.documents(p.Seq() * int64(a.context.Size()))}
	if p.Paged != nil {
		return a.withSinks(gathered{shared, p.Positions}, p.Positions)
	}
	// Heads are exchanged for positions first (turned), then ranks that still share positions gather keys or
	// send them around. One row of ranks: the exchange of heads has brought all positions.
	positions := shared.context.Positions(shared.documents, shared.context.Row())
	var inner exchange
	switch {
	case shared.context.Rows() == 1:
		inner = alone{positions[0]}
	case a.kind == mpu.GatherKeys:
		inner = gathered{shared, positions}
	default:
		inner = ring{shared, positions}
	}
	inner = a.withSinks(inner, positions)
	if a.context.Heads > 1 {
		return turned{shared, positions, inner}
	}
	return inner
}

// sharedSamples are the ranks that share samples, and the documents of these.
type sharedSamples struct {
	context   mpu.Context
	documents mpu.Positions
}

// gathered brings the keys of all positions here, for as long as they are needed.
type gathered struct {
	sharedSamples
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
	return all, p.exchanged(func() error { return e.context.Gather(p.D, e.documents, all, own) })
}

// keyBlock is a multiple of the keys that any device takes at a time: keys from a multiple of it on are
// added up as those from the first on are.
const keyBlock = 512

// seen are the positions of keys that queries at a span can see, and some before them.
func (e gathered) seen(p *Pass, c core, at mpu.Span) mpu.Span {
	from := c.firstSeen(p, at) / keyBlock * keyBlock
	return mpu.Span{From: from, N: at.From + at.N - from}
}

// keysAt are those of `all` at a span.
func keysAt(p *Pass, all Tensor, at mpu.Span) heads {
	kv := all.Slice(0, at.From*p.Batch, at.N*p.Batch)
	return heads{k: kv.Slice(2, 0, 1), v: kv.Slice(2, 1, 1)}
}

func (e gathered) forward(p *Pass, s *device.Scope, c core, o Tensor, h heads) (attended, error) {
	tmp := p.D.Arena.Scope(device.Communication)
	defer tmp.Release()
	out := c.newAttended(p, s, o, e.positions)
	all, err := e.gather(p, tmp, c, h)
	if err != nil {
		return out, err
	}
	if p.Paged != nil && !c.a.borrowed && !c.a.latentCache {
		c.a.keep(p, all)
	}
	p.spans(e.positions, func(i int, at mpu.Span, rows func(Tensor) Tensor) {
		span := e.seen(p, c, at)
		seen := keysAt(p, all, span)
		seen.q = rows(h.q)
		p.D.AttentionForward(c.call(p, at, span.From, rows(out.o), out.lse[i], seen))
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
		span := e.seen(p, c, at)
		seen, to := keysAt(p, all, span), keysAt(p, part, span)
		seen.q = rows(h.q)
		p.D.AttentionBackward(device.AttentionBackwardArgs{DQ: rows(grads.q), DK: to.k, DV: to.v, DO: rows(do),
			Forward: c.call(p, at, span.From, rows(out.o), out.lse[i], seen)})
		added := sum.Slice(0, span.From*p.Batch, span.N*p.Batch)
		p.D.Add(added, added, part.Slice(0, span.From*p.Batch, span.N*p.Batch))
	})
	own := c.keys(p, tmp, statsType(p), p.Seq())
	if err := p.exchanged(func() error { return e.context.Scatter(p.D, e.documents, own, sum) }); err != nil {
		return err
	}
	p.D.Copy(grads.k, own.Slice(2, 0, 1))
	p.D.Copy(grads.v, own.Slice(2, 1, 1))
	return nil
}

// turned exchanges the heads of the rows here for more positions of some heads, before an
// inner exchange sees them.
type turned struct {
	sharedSamples
	positions mpu.Positions // after the exchange
	inner     exchange
}

// alloc makes queries, keys and values after the exchange, by group of heads: [n·b, groups, perGroup+2, d].
func (e turned) alloc(p *Pass, s *device.Scope, c core) Tensor {
	return s.Alloc(p.DType, e.positions.Len()*p.Batch, c.groups, c.a.perGroup+2, c.a.channels)
}

func (e turned) views(c core, all Tensor) heads {
	n := c.a.perGroup
	return heads{q: all.Slice(2, 0, n), k: all.Slice(2, n, 1), v: all.Slice(2, n+1, 1)}
}

func (e turned) forward(p *Pass, s *device.Scope, c core, o Tensor, h heads) (at attended, err error) {
	c = c.share(e.context.Head(), e.context.Heads)
	all := e.alloc(p, s, c)
	if err := p.exchanged(func() error { return e.context.HeadsToPositions(p.D, e.documents, all, h.q, h.k, h.v) }); err != nil {
		return at, err
	}
	if at, err = e.inner.forward(p, s, c, s.Alloc(p.DType, c.shape(p, e.positions.Len())...), e.views(c, all)); err != nil {
		return at, err
	}
	at.turned = all
	return at, p.exchanged(func() error { return e.context.PositionsToHeads(p.D, e.documents, []Tensor{o}, at.o) })
}

func (e turned) backward(p *Pass, c core, at attended, _, grads heads, do Tensor) error {
	tmp := p.D.Arena.Scope(device.Activations)
	defer tmp.Release()
	c = c.share(e.context.Head(), e.context.Heads)
	more, dall := tmp.Like(at.o), e.alloc(p, tmp, c)
	if err := p.exchanged(func() error { return e.context.HeadsToPositions(p.D, e.documents, more, do) }); err != nil {
		return err
	}
	if err := e.inner.backward(p, c, at, e.views(c, at.turned), e.views(c, dall), more); err != nil {
		return err
	}
	return p.exchanged(func() error {
		return e.context.PositionsToHeads(p.D, e.documents, []Tensor{grads.q, grads.k, grads.v}, dall)
	})
}
