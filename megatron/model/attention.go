package model

import (
	"errors"
	"math"

	"monotron/csrc/device"
	"monotron/megatron/spec"
	"monotron/mpu"
	"monotron/mpu/comm"
)

// attention is the first sublayer without norm and residual:
// QKV projection, QK norm, RoPE, softmax(QKᵀ)V, output projection.
type attention struct {
	m            *spec.Model
	layer        int   // global, 0-based
	borrowed     bool  // keys and values are another layer's
	source       int   // with borrowed, whose
	latentCache  bool  // a cache has latents, which multi-latent attention keeps itself
	lends        bool  // later layers read its keys and values
	groups       int64 // query groups here
	perGroup     int64 // query heads of each, here
	firstHead    int64 // global number
	channels     int64 // d
	qkv          *mpu.ColumnParallelLinear
	proj         *mpu.RowParallelLinear
	qNorm, kNorm *qkNorm     // nil: none
	vNorm        *qkNorm     // of values, without weights; nil: none
	normLast     bool        // queries and keys rotate before they are normed
	sinks        *mpu.Param  // [heads here]; nil: none
	growth       *ropeTables // of queries; nil: none
	rope         *ropeTables // nil: none at this layer
	slopes       Tensor      // ALiBi; none
	sharers      *comm.Group // ranks with the same keys; nil: none
	context      mpu.Context
	kind         mpu.ContextKind // "": all positions are here
}

func newAttention(m *spec.Model, layer int, name string, p Parallel) *attention {
	source, lends := m.KeysFrom(layer), m.LendsKeys(layer)
	m = m.AttentionOf(layer)
	h, d, r := int64(m.HiddenSize), int64(m.KVChannels), p.region()
	mine := p.share(m)
	// linear_qkv: [groups·(perGroup+2)·d, h], by query group; linear_proj: [h, heads·d].
	a := &attention{m: m, layer: layer, borrowed: source != layer, source: source, lends: lends, groups: mine.groups, perGroup: mine.perGroup, firstHead: mine.firstHead, channels: d,
		qkv: mpu.NewColumnParallelLinear(r, mpu.LinearConfig{Name: name + ".linear_qkv", Tiles: p.Tiles, FP8: p.FP8, Out: int64(m.QKVRows()), In: h, Rows: mine.rows, Shared: mine.shared,
			QKV:  [3]int64{int64(m.NumAttentionHeads/m.NumQueryGroups) * d, int64(min(1, m.KeyValues())) * d, int64(max(0, m.KeyValues()-1)) * d},
			Head: d, LeafOrder: p.leafOrder(m, mine), Bias: m.QKVBias, Init: mpu.Init{Std: m.InitStd}}),
		proj: mpu.NewRowParallelLinear(r, mpu.LinearConfig{Name: name + ".linear_proj", Tiles: p.Tiles, FP8: p.FP8, Out: h, In: int64(m.NumAttentionHeads) * d, Bias: m.HasProjBias(), Init: outputInit(m)}),
	}
	// How ranks that share a sequence exchange its positions.
	a.context, a.kind = p.contextOf(layer)
	// Norms of queries and keys have weights, or (Llama 4) divide by the root mean square alone, and these
	// in layers with RoPE only.
	switch {
	case m.QKNorm:
		if a.qNorm, a.kNorm = newQKNorms(m, name, p); a.borrowed {
			a.kNorm = nil
		}
		a.normLast = m.QKNormAfterRope
	case m.QKL2Norm && m.RopeAt(layer):
		a.qNorm, a.kNorm, a.normLast = unitNorm(m), unitNorm(m), true
	}
	if m.ValueNorm && !a.borrowed {
		a.vNorm = unitNorm(m)
	}
	if m.Sinks {
		a.sinks = newSinks(name, m.NumAttentionHeads, mine)
	}
	// With fewer groups than ranks, several ranks have the same keys and values.
	if m.NumQueryGroups < p.TP.Size() {
		a.sharers = p.QuerySharers
	}
	return a
}

// prepare takes the layer's tables.
func (a *attention) prepare(d *device.Device, t *positionTables) {
	if a.m.RopeAt(a.layer) {
		a.rope = t.ropes(a.layer)
	}
	if a.m.QueryGrowth != 0 && (a.rope == nil || a.m.QueryGrowthAll) {
		a.growth = t.growths()
	}
	if a.qNorm != nil && a.qNorm.unit {
		a.qNorm.ones(d, t.dtype)
		a.kNorm.ones(d, t.dtype)
	}
	if a.vNorm != nil {
		a.vNorm.ones(d, t.dtype)
	}
	if a.m.Position == spec.PositionAlibi {
		a.slopes = a.alibi(d, t.positions)
	}
}

// alibi is the slopes of this rank's heads, or what is added to their scores of the keys at
// all positions.
func (a *attention) alibi(d *device.Device, positions int64) Tensor {
	slopes := spec.AlibiSlopes(a.m.NumAttentionHeads)[a.firstHead:][:a.groups*a.perGroup]
	if !a.m.AlibiTable {
		t := d.Arena.Alloc(device.Parameters, device.F32, int64(len(slopes)))
		device.WriteSlice(d, t, slopes)
		return t
	}
	t := d.Arena.Alloc(device.Parameters, device.F32, int64(len(slopes)), positions)
	if d.Counts() {
		return t
	}
	table := make([]float32, 0, t.Len())
	for _, slope := range slopes {
		for key := range positions {
			table = append(table, bf16(bf16(slope)*float32(key))*float32(a.m.ScoreScale()))
		}
	}
	device.WriteSlice(d, t, table)
	return t
}

// bf16 is x rounded to it.
func bf16(x float32) float32 {
	return float32(device.ToFloat64(device.BF16, device.FromFloat64(device.BF16, []float64{float64(x)}))[0])
}

func (a *attention) newBlocks(d *device.Device, dtype device.DType, blocks int64) Tensor {
	if a.borrowed {
		return Tensor{} // they are another layer's
	}
	return d.Arena.Alloc(device.Activations, dtype, a.blocks(blocks)...)
}

// newCache is newBlocks for as long as a scope lives.
func (a *attention) newCache(s *device.Scope, dtype device.DType, blocks int64) Tensor {
	return s.Alloc(dtype, a.blocks(blocks)...)
}

// blocks is the shape of so many.
func (a *attention) blocks(n int64) []int64 {
	return []int64{n, a.groups, 2, device.PagedBlock * a.channels}
}

// blockBytes is what a block of positions takes at this layer.
func (a *attention) blockBytes(dtype device.DType) int64 {
	if a.borrowed {
		return 0
	}
	return 2 * a.groups * device.PagedBlock * a.channels * dtype.Size()
}

// outputInit is the start of the layers that feed the residual stream:
// N(0, std/√(2L)), L global.
func outputInit(m *spec.Model) mpu.Init {
	return mpu.Init{Std: m.InitStd / math.Sqrt(2*float64(m.NumLayers))}
}

func (a *attention) params() []*mpu.Param {
	ps := append(a.proj.Params(), a.qkv.Params()...)
	if a.qNorm != nil && !a.qNorm.unit {
		if ps = append(ps, a.qNorm.params()...); a.kNorm != nil {
			ps = append(ps, a.kNorm.params()...)
		}
	}
	if a.sinks != nil {
		ps = append(ps, a.sinks)
	}
	return ps
}

// heads are views of queries, keys and values: [tokens, groups, heads of the group, d]; gate as q.
type heads struct{ q, k, v, gate Tensor }

// split views qkv [tokens, groups*(perGroup+2)*d]: per group its query heads, one key, one value;
// with gates, these follow the queries. Where keys are values, a group has no value: v is k; a layer that reads
// another's keys and values has queries alone.
func (a *attention) split(qkv Tensor) heads {
	tokens, d := qkv.Shape[0], a.channels
	keys := a.perGroup
	if a.m.OutputGate {
		keys *= 2
	}
	group, value := (keys+int64(a.m.KeyValues()))*d, keys+int64(a.m.KeyValues())-1
	view := func(first, n int64) Tensor {
		at := qkv.Slice(1, first*d, 1).Data
		return device.Strided(at, qkv.DType, []int64{tokens, a.groups, n, d}, []int64{a.groups * group, group, d, 1})
	}
	h := heads{q: view(0, a.perGroup)}
	if !a.borrowed {
		h.k, h.v = view(keys, 1), view(value, 1)
	}
	if a.m.OutputGate {
		h.gate = view(a.perGroup, a.perGroup)
	}
	return h
}

// attentionSaved is what backward needs in addition to the input x. All positions of the pass are
// here, whatever x holds.
type attentionSaved struct {
	attention *attention
	qkv       Tensor // as QK norm takes it where there is one, else after RoPE; freed where its heads were exchanged
	used      heads  // what attention saw
	qs, ks    normSaved
	vs        normSaved
	o         Tensor // [tokens, heads*d]
	gated     Tensor // the same times its gates; without gates o itself
	core      attended
}

func (a *attention) bias() Tensor { return a.proj.BiasValue() }

// forward sets y = attention(x) without the projection's bias; without a y it ends
// before the projection. x and y are [rows, h]: under sequence parallelism the rank's rows.
func (a *attention) forward(p *Pass, s *device.Scope, y, x Tensor) (sublayerSaved, error) {
	d := p.D
	// qkv: [tokens, groups·(perGroup+2)·d], of all positions of the pass and the heads here.
	saved := &attentionSaved{attention: a, qkv: s.Alloc(p.DType, p.Tokens(), a.qkv.Columns())}
	if err := a.qkv.Forward(d, &p.Hooks, saved.qkv, x, device.NoEpilogue, Tensor{}); err != nil {
		return nil, err
	}
	if err := a.normAndRotate(p, s, saved); err != nil {
		return nil, err
	}
	if a.lend(p, saved.used); a.borrowed {
		saved.used.k, saved.used.v = p.saved.lent[a.source].k, p.saved.lent[a.source].v
	}

	// o: [tokens, groups·perGroup·d] = softmax(QKᵀ)V. Rows of several sequences read their keys from
	// blocks of the cache; no backward follows them.
	saved.o = s.Alloc(p.DType, p.Tokens(), a.groups*a.perGroup*a.channels)
	if p.Paged != nil && a.hasAll(p) {
		a.overBlocks(p, saved)
		a.gate(p, s, saved)
		return saved, a.proj.Forward(d, &p.Hooks, y, saved.gated)
	}
	var err error
	if saved.core, err = a.exchange(p).forward(p, s, a.core(), a.headsOf(saved.o), saved.used); err != nil {
		return nil, err
	}
	if saved.core.turned.Given() && a.qNorm == nil && a.vNorm == nil && !a.m.OutputGate {
		s.Free(saved.qkv) // backward reads the exchanged heads, which have all of it
	}

	a.gate(p, s, saved)
	if !y.Given() {
		return saved, nil
	}
	return saved, a.proj.Forward(d, &p.Hooks, y, saved.gated)
}

// normAndRotate sets saved.used to what the scores are made of: queries and keys normed and rotated, in the
// model's order of the two, and values normed. Norms have outputs of their own, since their backward reads
// qkv as it was projected; RoPE works in place, since its backward is the inverse rotation.
func (a *attention) normAndRotate(p *Pass, s *device.Scope, saved *attentionSaved) error {
	saved.used = a.split(saved.qkv)
	if a.normLast {
		a.rotate(p, saved.used, 0)
	}
	if a.qNorm != nil {
		raw := saved.used
		var err1, err2 error
		saved.used.q = s.Like(raw.q)
		saved.qs, err1 = a.qNorm.forward(p, s, saved.used.q, raw.q)
		if a.kNorm != nil {
			saved.used.k = s.Like(raw.k)
			saved.ks, err2 = a.kNorm.forward(p, s, saved.used.k, raw.k)
		}
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
	}
	if a.vNorm != nil {
		raw := saved.used.v
		if a.m.KeysAreValues {
			raw = a.split(saved.qkv).k // values are the keys before norm and RoPE
		}
		saved.used.v = s.Like(raw)
		saved.vs = a.vNorm.norm.forward(p, s, saved.used.v, raw)
	}
	if !a.normLast {
		a.rotate(p, saved.used, 0)
	}
	return nil
}

// gate multiplies the output by the sigmoid of its gates, where there are any.
func (a *attention) gate(p *Pass, s *device.Scope, saved *attentionSaved) {
	if saved.gated = saved.o; !a.m.OutputGate {
		return
	}
	saved.gated = s.Like(saved.o)
	p.D.GateForward(device.GateForwardArgs{Y: a.headsOf(saved.gated), X: a.headsOf(saved.o), G: a.split(saved.qkv).gate})
}

// headsOf views an output [tokens, heads·d] by heads.
func (a *attention) headsOf(o Tensor) Tensor {
	return o.Reshape(o.Shape[0], a.groups, a.perGroup, a.channels)
}

// overBlocks is attention of rows that are of several sequences.
func (a *attention) overBlocks(p *Pass, saved *attentionSaved) {
	a.paged(p, a.headsOf(saved.o), saved.used, p.Paged.Layers[a.cacheLayer()-p.Paged.First], p.Paged.Tables, p.Paged.Rows)
}

// paged sets o to the attention of rows whose keys and values go to blocks of cache.
func (a *attention) paged(p *Pass, o Tensor, h heads, cache, tables, rows Tensor) {
	call := device.PagedAttentionArgs{
		O: o, Q: h.q, K: h.k, V: h.v, Cache: cache, Tables: tables, Rows: rows,
		Slopes: a.slopes, Window: int32(a.m.WindowAt(a.layer)), Chunk: int32(a.m.ChunkAt(a.layer)), Scale: float32(a.m.ScoreScale()),
	}
	call.Rule, call.Cap = scoreRule(a.m)
	if a.sinks != nil {
		call.Sinks = a.sinks.Value
	}
	p.D.PagedAttention(call)
}

// keep puts the keys and values of a text's first positions, [n, groups, 2, d], or keys that are values
// too, [n, groups, 1, d], into the first blocks, in order.
func (a *attention) keep(p *Pass, all Tensor) {
	blocks, d, n, sides := p.Paged.Layers[a.layer-p.Paged.First], a.channels, all.Shape[0], all.Shape[2]
	copyTo := func(first, count, rows int64) { // blocks, and rows of each
		to, from := blocks.Slice(0, first, count), all.Slice(0, first*device.PagedBlock, n-first*device.PagedBlock)
		shape := []int64{count, rows, a.groups, d}
		for v := range sides { // keys lie [d, PagedBlock], values, and keys that are values too, [PagedBlock, d]
			row, channel := int64(1), int64(device.PagedBlock)
			if v == sides-1 {
				row, channel = d, 1
			}
			p.D.Copy(device.Strided(to.Slice(2, v, 1).Data, to.DType, shape, []int64{to.Stride[0], row, to.Stride[1], channel}),
				device.Strided(from.Slice(2, v, 1).Data, from.DType, shape, []int64{device.PagedBlock * from.Stride[0], from.Stride[0], from.Stride[1], 1}))
		}
	}
	full := n / device.PagedBlock
	if full > 0 {
		copyTo(0, full, device.PagedBlock)
	}
	if rest := n % device.PagedBlock; rest > 0 {
		copyTo(full, 1, rest)
	}
}

// rotate applies RoPE to queries and keys in place, or its inverse, and lets queries grow in a layer that
// asks for it.
func (a *attention) rotate(p *Pass, h heads, inverse int32) {
	if a.growth != nil {
		p.D.Rope(device.RopeArgs{X: h.q, Cos: a.growth.cos, Sin: a.growth.sin, Positions: p.PositionIDs, RotDims: int32(2 * a.growth.cos.Last())})
	}
	if a.rope == nil {
		return
	}
	r := device.RopeArgs{Cos: a.rope.cos, Sin: a.rope.sin, Positions: p.PositionIDs, RotDims: int32(a.m.RotaryDims()), Inverse: inverse}
	if a.m.RotaryInterleaved {
		r.Interleaved = 1
	}
	for _, x := range []Tensor{h.q, h.k} {
		if r.X = x; x.Given() {
			p.D.Rope(r)
		}
	}
}

// backward sets dx from dy; x is forward's input. All three are [rows, h].
func (saved *attentionSaved) backward(p *Pass, dx, dy, x Tensor) error {
	a, d := saved.attention, p.D
	s := d.Arena.Scope(device.Activations)
	defer s.Release()
	// do: [tokens, groups·perGroup·d], the gradient of the attention's output, gated where there are gates.
	do := s.Like(saved.o)
	if err := a.proj.Backward(d, &p.Hooks, do, dy, saved.gated); err != nil {
		return err
	}

	// A layer that reads another's keys and values has a gradient of its queries alone; backwardQueries
	// gives those of keys and values to their layer.
	if a.borrowed {
		out := heads{q: s.Like(saved.used.q), k: s.Like(saved.used.k), v: s.Like(saved.used.v)}
		if err := a.exchange(p).backward(p, a.core(), saved.core, saved.used, out, a.headsOf(do)); err != nil {
			return err
		}
		return saved.backwardQueries(p, s, dx, x, out)
	}

	dqkv := s.Like(saved.qkv)
	grads := a.split(dqkv)
	if a.m.OutputGate {
		d.GateBackward(device.GateBackwardArgs{DX: a.headsOf(do), DG: grads.gate, DY: a.headsOf(do), X: a.headsOf(saved.o), G: a.split(saved.qkv).gate})
	}

	// out is the gradient of the heads that attention read; where a norm follows the projection, it is turned into
	// the gradient of its input, in dqkv, and needs memory of its own.
	out := grads
	if a.qNorm != nil {
		out.q, out.k = s.Like(grads.q), s.Like(grads.k)
	}
	if a.vNorm != nil {
		out.v = s.Like(grads.v)
	}
	if err := a.exchange(p).backward(p, a.core(), saved.core, saved.used, out, a.headsOf(do)); err != nil {
		return err
	}
	a.takeLent(p, out.k, out.v)
	if err := saved.backwardNormAndRotate(p, s, grads, out); err != nil {
		return err
	}
	return a.qkv.Backward(d, &p.Hooks, dx, dqkv, x)
}

// backwardNormAndRotate is backward of normAndRotate: it sets grads, views of dqkv, from out, the gradient
// of the heads that attention read.
func (saved *attentionSaved) backwardNormAndRotate(p *Pass, s *device.Scope, grads, out heads) error {
	a, raw := saved.attention, saved.attention.split(saved.qkv)
	if !a.normLast {
		a.rotate(p, out, 1)
	}
	if a.vNorm != nil && !a.m.KeysAreValues {
		a.vNorm.norm.backward(p, saved.vs, grads.v, out.v, raw.v, Tensor{})
	}
	if a.qNorm != nil {
		err1 := a.qNorm.backward(p, saved.qs, grads.q, out.q, raw.q)
		err2 := a.kNorm.backward(p, saved.ks, grads.k, out.k, raw.k)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
	}
	// Where keys are values, the projected key has two gradients: through its own norm, in grads.k by now, and
	// through the values' norm, which adds to it.
	if a.vNorm != nil && a.m.KeysAreValues {
		dk := s.Like(grads.k)
		p.D.Copy(dk, grads.k)
		a.vNorm.norm.backward(p, saved.vs, grads.k, out.v, raw.k, dk)
	}
	if a.normLast {
		a.rotate(p, grads, 1)
	}
	return nil
}

// statsType: statistics are f32, f64 on the f64 oracle.
func statsType(p *Pass) device.DType {
	if p.DType == device.F64 {
		return device.F64
	}
	return device.F32
}
