package model

import (
	"cmp"

	"monotron/csrc/device"
	"monotron/megatron/spec"
	"monotron/mpu"
)

// latent is multi-latent attention: spec.Latent says what it is. Projections make queries, keys
// and values of all heads; what follows (softmax, exchange with other ranks, blocks of a cache,
// output projection) is attention's, with as many query groups as heads.
//
// Down projections and the norms of latents are complete on every tensor-parallel rank and work on
// the rows that a rank has outside the cut layers; up projections are cut by heads.
type latent struct {
	*attention
	l              *spec.Latent
	region         mpu.Region
	qDown, kvDown  *mpu.RoundedLinear // qDown nil: queries come from x
	qUp, kvUp      *mpu.ColumnParallelLinear
	qNorm, kvNorm  *norm  // nil: none
	sumOverHeads   Tensor // [heads·d, rope]: ones that add up a rotary key's gradient over heads
	rank, ropeDim  int64
	nope, v, heads int64 // channels; heads here
}

func newLatent(m *spec.Model, layer int, name string, p Parallel) *latent {
	l, r := m.Latent, p.region()
	heads := int64(m.NumAttentionHeads)
	a := &latent{l: l, region: r, rank: int64(l.KVRank), ropeDim: int64(l.RopeDim), nope: int64(l.QKDim), v: int64(l.VDim), heads: heads / int64(r.Size()),
		attention: &attention{m: m, layer: layer, latentCache: true, groups: heads / int64(r.Size()), perGroup: 1, firstHead: heads / int64(r.Size()) * int64(r.Rank()), channels: int64(l.Channels()),
			proj: mpu.NewRowParallelLinear(r, mpu.LinearConfig{Name: name + ".linear_proj", FP8: p.FP8, Out: int64(m.HiddenSize), In: heads * int64(l.VDim), Bias: m.LinearBias, Init: outputInit(m)})},
	}
	a.context, a.kind = p.contextOf(layer)
	linear := func(part string, out, in int64) mpu.LinearConfig {
		return mpu.LinearConfig{Name: name + part, FP8: p.FP8, Out: out, In: in, Init: mpu.Init{Std: m.InitStd}}
	}
	// Queries: h -> QRank -> heads·(nope+rope), or h -> heads·(nope+rope) without a latent.
	h, qRows := int64(m.HiddenSize), heads*int64(l.HeadDim())
	if l.QRank > 0 {
		a.qDown = mpu.NewRoundedLinear(r, linear(".linear_q_down_proj", int64(l.QRank), h))
		a.qUp = mpu.NewColumnParallelLinear(r, perHead(linear(".linear_q_up_proj", qRows, int64(l.QRank)), int64(l.HeadDim())))
	} else {
		a.qUp = mpu.NewColumnParallelLinear(r, perHead(linear(".linear_q_proj", qRows, h), int64(l.HeadDim())))
	}
	// Keys and values: h -> KVRank + rope -> heads·(nope+v). The rope channels skip the up projection: one
	// rotary key serves all heads.
	a.kvDown = mpu.NewRoundedLinear(r, linear(".linear_kv_down_proj", a.rank+a.ropeDim, h))
	a.kvUp = mpu.NewColumnParallelLinear(r, perHead(linear(".linear_kv_up_proj", heads*(a.nope+a.v), a.rank), a.nope+a.v))
	if l.Norms {
		a.kvNorm = latentNorm(m, name+".kv_layernorm", l.KVRank).outside(p)
		if l.QRank > 0 {
			a.qNorm = latentNorm(m, name+".q_layernorm", l.QRank).outside(p)
		}
	}
	return a
}

// latentNorm is the norm of latents, which may have an epsilon of its own.
func latentNorm(m *spec.Model, name string, rank int) *norm {
	n := newNorm(m, name, rank)
	n.eps = float32(cmp.Or(m.LatentEpsilon, m.NormEpsilon))
	return n
}

// perHead is c of a layer that makes so many rows for each head.
func perHead(c mpu.LinearConfig, rows int64) mpu.LinearConfig {
	c.Head = rows
	return c
}

// params are in Megatron's order.
func (a *latent) params() []*mpu.Param {
	ps := a.proj.Params()
	if a.qDown != nil {
		ps = append(ps, a.qDown.Params()...)
	}
	ps = append(append(append(ps, a.qUp.Params()...), a.kvDown.Params()...), a.kvUp.Params()...)
	for _, n := range []*norm{a.qNorm, a.kvNorm} {
		if n != nil {
			ps = append(ps, n.params()...)
		}
	}
	return ps
}

// prepare takes the layer's tables.
func (a *latent) prepare(d *device.Device, t *positionTables) {
	a.attention.prepare(d, t)
	a.sumOverHeads = t.sumOverHeads(a)
}

// latentSaved is what backward needs in addition to the input x. Rows are those outside the cut
// layers; tokens are all.
type latentSaved struct {
	a                *latent
	q, kv            Tensor // [rows, QRank], [rows, KVRank + rope]: before their norms
	qNormed, kNormed Tensor // after them; without norms q and views of kv
	qStats, kvStats  normSaved
	used             heads  // [tokens, heads, 1, d]: what attention saw
	o                Tensor // [tokens, heads·v]
	core             attended
}

// forward sets y = attention(x) without the projection's bias; without a y it ends before
// the projection.
func (a *latent) forward(p *Pass, s *device.Scope, y, x Tensor) (sublayerSaved, error) {
	saved := &latentSaved{a: a}
	if err := a.queries(p, s, saved, x); err != nil {
		return nil, err
	}
	tmp := p.D.Arena.Scope(device.Activations)
	defer tmp.Release()
	shared, err := a.latents(p, s, tmp, saved, x)
	if err != nil {
		return nil, err
	}
	saved.o = s.Alloc(p.DType, p.Tokens(), a.heads*a.v)
	switch {
	case p.Paged != nil && a.hasAll(p):
		err = a.overLatents(p, saved, shared, p.Paged.Layers[a.layer-p.Paged.First], p.Paged.Tables, p.Paged.Rows)
	case p.AsGenerated != nil && !p.Grad:
	default:
		err = a.overHeads(p, s, tmp, saved, shared)
	}
	if at := p.AsGenerated; at != nil && err == nil {
		err = a.overLatents(p, saved, shared, tmp.Alloc(p.DType, a.cacheShape(at.Blocks)...), at.Tables, at.Rows)
	}
	if err != nil || !y.Given() {
		return saved, err
	}
	return saved, a.proj.Forward(p.D, &p.Hooks, y, saved.o)
}

// overHeads sets saved.o to the attention of keys and values of all heads.
func (a *latent) overHeads(p *Pass, s, tmp *device.Scope, saved *latentSaved, shared Tensor) (err error) {
	if err := a.keysAndValues(p, s, saved, shared); err != nil {
		return err
	}
	tokens, d := p.Tokens(), a.channels
	wide := saved.o
	if a.v < d {
		wide = s.Alloc(p.DType, tokens, a.heads*d)
	}
	trained := *p // without generation's attention, which is over latents
	trained.AsGenerated = nil
	if saved.core, err = a.exchange(&trained).forward(&trained, s, a.core(), a.headsOf(wide), saved.used); err != nil {
		return err
	}
	if a.v < d {
		p.D.Copy(saved.o.Reshape(tokens, a.heads, a.v), wide.Reshape(tokens, a.heads, d).Slice(2, 0, a.v))
	}
	if p.Paged != nil { // a prompt that ranks share
		return a.keepLatents(p, saved, shared)
	}
	return nil
}

// queries makes the queries of the heads here, rotated.
func (a *latent) queries(p *Pass, s *device.Scope, saved *latentSaved, x Tensor) error {
	in := x
	if a.qDown != nil {
		saved.q = s.Alloc(p.DType, x.Shape[0], int64(a.l.QRank))
		if err := a.qDown.Forward(p.D, saved.q, x); err != nil {
			return err
		}
		saved.qNormed = saved.q
		if a.qNorm != nil {
			saved.qNormed = s.Like(saved.q)
			saved.qStats = a.qNorm.forward(p, s, saved.qNormed, saved.q)
		}
		in = saved.qNormed
	}
	dim := a.nope + a.ropeDim
	made := s.Alloc(p.DType, p.Tokens(), a.heads*dim)
	if err := a.qUp.Forward(p.D, &p.Hooks, made, in, device.NoEpilogue, Tensor{}); err != nil {
		return err
	}
	saved.used.q = a.widened(p, s, made.Reshape(p.Tokens(), a.heads, dim))
	if a.channels > dim {
		s.Free(made)
	}
	a.turn(p, rotary(saved.used.q, a.nope, a.ropeDim), 0)
	return nil
}

// latents makes what keys and values are made of: the latents of the rows here, in saved, and the rotary keys of all
// tokens, rotated, in tmp.
func (a *latent) latents(p *Pass, s, tmp *device.Scope, saved *latentSaved, x Tensor) (shared Tensor, err error) {
	saved.kv = s.Alloc(p.DType, x.Shape[0], a.rank+a.ropeDim)
	if err := a.kvDown.Forward(p.D, saved.kv, x); err != nil {
		return shared, err
	}
	low := saved.kv.Slice(1, 0, a.rank)
	saved.kNormed = s.Alloc(p.DType, x.Shape[0], a.rank)
	if a.kvNorm != nil {
		saved.kvStats = a.kvNorm.forward(p, s, saved.kNormed, low)
	} else {
		p.D.Copy(saved.kNormed, low)
	}
	own := tmp.Alloc(p.DType, x.Shape[0], a.ropeDim)
	p.D.Copy(own, saved.kv.Slice(1, a.rank, a.ropeDim))
	if shared, err = mpu.Enter(a.region, tmp, own); err == nil {
		a.turn(p, shared.Reshape(p.Tokens(), 1, 1, a.ropeDim), 0)
	}
	return shared, err
}

// keysAndValues makes the keys and values of the heads here from their latents and the rotary keys.
func (a *latent) keysAndValues(p *Pass, s *device.Scope, saved *latentSaved, shared Tensor) error {
	tmp, tokens := p.D.Arena.Scope(device.Activations), p.Tokens()
	defer tmp.Release()
	made := tmp.Alloc(p.DType, tokens, a.heads*(a.nope+a.v))
	if err := a.kvUp.Forward(p.D, &p.Hooks, made, saved.kNormed, device.NoEpilogue, Tensor{}); err != nil {
		return err
	}
	byHead := made.Reshape(tokens, a.heads, a.nope+a.v)
	key := s.Alloc(p.DType, tokens, a.heads, a.channels)
	if a.channels > a.nope+a.ropeDim {
		p.D.Fill(key, 0)
	}
	p.D.Copy(key.Slice(2, 0, a.nope), byHead.Slice(2, 0, a.nope))
	for head := range a.heads {
		p.D.Copy(key.Slice(1, head, 1).Slice(2, a.nope, a.ropeDim), shared.Reshape(tokens, 1, a.ropeDim))
	}
	value := s.Alloc(p.DType, tokens, a.heads, a.channels)
	if a.channels > a.v {
		p.D.Fill(value, 0)
	}
	p.D.Copy(value.Slice(2, 0, a.v), byHead.Slice(2, a.nope, a.v))
	saved.used.k, saved.used.v = key.Reshape(tokens, a.heads, 1, a.channels), value.Reshape(tokens, a.heads, 1, a.channels)
	return nil
}

// widened is x [tokens, heads, n] as heads of the width of attention, filled up with zeros:
// [tokens, heads, 1, d].
func (a *latent) widened(p *Pass, s *device.Scope, x Tensor) Tensor {
	tokens, n := x.Shape[0], x.Last()
	if n < a.channels {
		wide := s.Alloc(x.DType, tokens, a.heads, a.channels)
		p.D.Fill(wide, 0)
		p.D.Copy(wide.Slice(2, 0, n), x)
		x = wide
	}
	return x.Reshape(tokens, a.heads, 1, a.channels)
}

// rotary views the channels of x [tokens, heads, 1, d] that rotate.
func rotary(x Tensor, from, n int64) Tensor { return x.Slice(3, from, n) }

// turn rotates pairs (2i, 2i+1) of x [tokens, heads, 1, rope] in place, or back.
func (a *latent) turn(p *Pass, x Tensor, inverse int32) {
	p.D.Rope(device.RopeArgs{X: x, Cos: a.rope.cos, Sin: a.rope.sin, Positions: p.PositionIDs, RotDims: int32(a.ropeDim), Interleaved: 1, Inverse: inverse})
}

// backward sets dx from dy; x is forward's input.
func (saved *latentSaved) backward(p *Pass, dx, dy, x Tensor) error {
	a, tokens := saved.a, p.Tokens()
	s := p.D.Arena.Scope(device.Activations)
	defer s.Release()
	do := s.Like(saved.o)
	if err := a.proj.Backward(p.D, &p.Hooks, do, dy, saved.o); err != nil {
		return err
	}
	do = a.widened(p, s, do.Reshape(tokens, a.heads, a.v))
	grads := heads{q: s.Like(saved.used.q), k: s.Like(saved.used.k), v: s.Like(saved.used.v)}
	if err := a.exchange(p).backward(p, a.core(), saved.core, saved.used, grads, do); err != nil {
		return err
	}
	if err := saved.backwardKeys(p, dx, grads, x); err != nil {
		return err
	}
	more := s.Like(dx)
	if err := saved.backwardQueries(p, more, grads.q, x); err != nil {
		return err
	}
	p.D.Add(dx, dx, more)
	return nil
}

// backwardQueries sets dx from the queries' gradient.
func (saved *latentSaved) backwardQueries(p *Pass, dx, dq, x Tensor) error {
	a, tokens := saved.a, p.Tokens()
	s := p.D.Arena.Scope(device.Activations)
	defer s.Release()
	a.turn(p, rotary(dq, a.nope, a.ropeDim), 1)
	dim := a.nope + a.ropeDim
	dmade := dq.Reshape(tokens, a.heads*a.channels)
	if dim < a.channels {
		dmade = s.Alloc(p.DType, tokens, a.heads*dim)
		p.D.Copy(dmade.Reshape(tokens, a.heads, dim), dq.Reshape(tokens, a.heads, a.channels).Slice(2, 0, dim))
	}
	if a.qDown == nil {
		return a.qUp.Backward(p.D, &p.Hooks, dx, dmade, x)
	}
	dnormed := s.Like(saved.qNormed)
	if err := a.qUp.Backward(p.D, &p.Hooks, dnormed, dmade, saved.qNormed); err != nil {
		return err
	}
	dlow := dnormed
	if a.qNorm != nil {
		dlow = s.Like(saved.q)
		a.qNorm.backward(p, saved.qStats, dlow, dnormed, saved.q, Tensor{})
	}
	return a.qDown.Backward(p.D, &p.Hooks, dx, dlow, x)
}

// backwardKeys sets dx from the gradients of keys and values.
func (saved *latentSaved) backwardKeys(p *Pass, dx Tensor, grads heads, x Tensor) error {
	a, tokens := saved.a, p.Tokens()
	s := p.D.Arena.Scope(device.Activations)
	defer s.Release()
	// dkv: [rows, KVRank + rope]; the rope columns are the rotary key's gradient, summed over heads.
	dkv := s.Like(saved.kv)
	own := s.Alloc(p.DType, x.Shape[0], a.ropeDim)
	if err := a.rotaryGradient(p, own, grads.k); err != nil {
		return err
	}
	p.D.Copy(dkv.Slice(1, a.rank, a.ropeDim), own)
	// dmade: [tokens, heads, nope+v], gradient of the up projection's output: keys without their rope
	// channels, values without the padding to the width of keys.
	dmade := s.Alloc(p.DType, tokens, a.heads, a.nope+a.v)
	byHead := func(t Tensor) Tensor { return t.Reshape(tokens, a.heads, a.channels) }
	p.D.Copy(dmade.Slice(2, 0, a.nope), byHead(grads.k).Slice(2, 0, a.nope))
	p.D.Copy(dmade.Slice(2, a.nope, a.v), byHead(grads.v).Slice(2, 0, a.v))
	dnormed := s.Like(saved.kNormed)
	if err := a.kvUp.Backward(p.D, &p.Hooks, dnormed, dmade.Reshape(tokens, a.heads*(a.nope+a.v)), saved.kNormed); err != nil {
		return err
	}
	// Through the norm of the latent, [rows, KVRank].
	low, dlow := saved.kv.Slice(1, 0, a.rank), dkv.Slice(1, 0, a.rank)
	if a.kvNorm != nil {
		a.kvNorm.backward(p, saved.kvStats, dlow, dnormed, low, Tensor{})
	} else {
		p.D.Copy(dlow, dnormed)
	}
	return a.kvDown.Backward(p.D, &p.Hooks, dx, dkv, x)
}

// rotaryGradient sets own, the rows here [rows, rope], to the gradient of the rotary key before it was
// rotated, from dk of all its heads. With leaves it rotates the complete sum: what ranks have of it is
// not rounded.
func (a *latent) rotaryGradient(p *Pass, own, dk Tensor) error {
	s := p.D.Arena.Scope(device.Activations)
	defer s.Release()
	tokens := p.Tokens()
	shared := s.Alloc(a.region.Partial(p.DType), tokens, a.ropeDim) // the heads here give a part of it
	p.D.Matmul(device.MatmulArgs{C: shared, A: dk.Reshape(tokens, a.heads*a.channels), B: a.sumOverHeads, Leaves: a.region.Share()})
	if a.region.Leaves == 0 {
		a.turn(p, shared.Reshape(tokens, 1, 1, a.ropeDim), 1)
		return mpu.LeavePartial(a.region, p.D, own, shared)
	}
	if err := mpu.LeavePartial(a.region, p.D, own, shared); err != nil {
		return err
	}
	q := *p
	q.PositionIDs = a.region.Own(p.PositionIDs)
	a.turn(&q, own.Reshape(own.Shape[0], 1, 1, a.ropeDim), 1)
	return nil
}

// sumOverHeads is the table of that name for latent layers, one for all of a stage.
func (t *positionTables) sumOverHeads(a *latent) Tensor {
	if t.ones.Given() {
		return t.ones
	}
	rows, d := a.heads*a.channels, t.device
	t.ones = d.Arena.Alloc(device.Parameters, t.dtype, rows, a.ropeDim)
	if d.Counts() {
		return t.ones
	}
	values := make([]float32, rows*a.ropeDim)
	for head := range a.heads {
		for i := range a.ropeDim {
			values[(head*a.channels+a.nope+i)*a.ropeDim+i] = 1
		}
	}
	s := d.Arena.Scope(device.Workspace)
	defer s.Release()
	wide := s.Alloc(device.F32, rows, a.ropeDim)
	device.WriteSlice(d, wide, values)
	d.Copy(t.ones, wide)
	return t.ones
}
