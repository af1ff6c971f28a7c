package model

import (
	"monotron/csrc/device"
	"monotron/mpu"
)

// In generation the cache holds, for each position, the latent c and the rotary key r that keys and values of
// all heads are made of, [rank + rope], and attention takes them as they are (DeepSeek-V2, section 2.1.2):
// with the rows Wk and Wv of a head's up projection
//
//	q·k = q·(Wk c) + q'·r = (Wkᵀq)·c + q'·r        Σ p·v = Wv·(Σ p·c)
//
// Heads share one key, which is the value too.

// cachedWidth is how many channels the cache has of a position.
func (a *latent) cachedWidth() int64 { return a.rank + a.ropeDim }

func (a *latent) newBlocks(d *device.Device, dtype device.DType, blocks int64) Tensor {
	return d.Arena.Alloc(device.Activations, dtype, a.cacheShape(blocks)...)
}

func (a *latent) cacheShape(blocks int64) []int64 {
	return []int64{blocks, 1, 1, device.PagedBlock * a.cachedWidth()}
}

// blockBytes is what a block of positions takes at this layer, on every tensor-parallel rank.
func (a *latent) blockBytes(dtype device.DType) int64 {
	return device.PagedBlock * a.cachedWidth() * dtype.Size()
}

// inCache is the attention over the cache.
func (a *latent) inCache() *attention {
	return &attention{m: a.m, layer: a.layer, groups: 1, perGroup: a.heads, firstHead: a.firstHead, channels: a.cachedWidth()}
}

// cacheRows is what the cache has of the pass's positions, [tokens, 1, 1, rank + rope], in s; shared are
// their rotary keys.
func (a *latent) cacheRows(p *Pass, s *device.Scope, saved *latentSaved, shared Tensor) (Tensor, error) {
	rows := s.Alloc(p.DType, p.Tokens(), 1, 1, a.cachedWidth())
	latents, err := mpu.Enter(a.region, s, saved.kNormed)
	if err != nil {
		return rows, err
	}
	p.D.Copy(rows.Slice(3, 0, a.rank), latents.Reshape(p.Tokens(), 1, 1, a.rank))
	p.D.Copy(rows.Slice(3, a.rank, a.ropeDim), shared.Reshape(p.Tokens(), 1, 1, a.ropeDim))
	return rows, nil
}

// overLatents sets saved.o [tokens, heads·v] to the attention of rows whose latents go to blocks of a cache.
func (a *latent) overLatents(p *Pass, saved *latentSaved, shared, cache, tables, slots Tensor) error {
	s := p.D.Arena.Scope(device.Activations)
	defer s.Release()
	rows, err := a.cacheRows(p, s, saved, shared)
	if err != nil {
		return err
	}
	weight, tokens := a.kvUp.Weight.Value, p.Tokens() // [heads·(nope + v), rank]
	of := func(t Tensor, n int64) Tensor {            // the first n channels of a head, [tokens, n]
		return device.Strided(t.Data, t.DType, []int64{tokens, n}, []int64{t.Stride[0], 1})
	}
	// Queries by way of each head's keys.
	q, o, turned := s.Alloc(p.DType, tokens, 1, a.heads, a.cachedWidth()), s.Alloc(p.DType, tokens, 1, a.heads, a.cachedWidth()), s.Alloc(p.DType, a.rank, a.nope)
	for head := range a.heads {
		keys := weight.Slice(0, head*(a.nope+a.v), a.nope)
		p.D.Copy(turned, device.Strided(keys.Data, keys.DType, []int64{a.rank, a.nope}, []int64{1, keys.Stride[0]}))
		a.region.Product(p.D, of(q.Slice(2, head, 1), a.rank), of(saved.used.q.Slice(1, head, 1), a.nope), turned)
	}
	rotated := saved.used.q.Slice(3, a.nope, a.ropeDim)
	p.D.Copy(q.Slice(3, a.rank, a.ropeDim), device.Strided(rotated.Data, q.DType, []int64{tokens, 1, a.heads, a.ropeDim}, []int64{rotated.Stride[0], 1, rotated.Stride[1], 1}))
	a.inCache().paged(p, o, heads{q: q, k: rows}, cache, tables, slots)
	// Outputs by way of each head's values.
	for head := range a.heads {
		values := weight.Slice(0, head*(a.nope+a.v)+a.nope, a.v)
		a.region.Product(p.D, of(saved.o.Slice(1, head*a.v, a.v), a.v), of(o.Slice(2, head, 1), a.rank), values)
	}
	return nil
}

// keepLatents puts the latents of a prompt that ranks share into the first blocks, in order.
func (a *latent) keepLatents(p *Pass, saved *latentSaved, shared Tensor) error {
	s := p.D.Arena.Scope(device.Communication)
	defer s.Release()
	rows, err := a.cacheRows(p, s, saved, shared)
	if err != nil {
		return err
	}
	all := s.Alloc(p.DType, p.Tokens()*int64(a.context.Size()), 1, 1, a.cachedWidth())
	documents := p.documents(p.Seq() * int64(a.context.Size()))
	if err := p.exchanged(func() error { return a.context.Gather(p.D, documents, all, rows) }); err != nil {
		return err
	}
	a.inCache().keep(p, all)
	return nil
}
