package model

import (
	"math"

	"monotron/csrc/device"
	"monotron/megatron/spec"
	"monotron/mpu"
)

// deltaNet is a gated delta net: spec.Delta says what it is. Of tensor-parallel ranks each has some
// key heads with their value heads, from the input projection to the output projection. Ranks that
// share sequences exchange heads for positions between these two.
type deltaNet struct {
	deltaHeads
	stateBlocks
	layer        int // global, 0-based
	context      mpu.Context
	in           *mpu.ColumnParallelLinear
	conv         *mpu.Param // [channels here, taps]
	aLog, dtBias *mpu.Param // [value heads here]
	norm         *norm      // of each value head's output
	proj         *mpu.RowParallelLinear
}

// deltaHeads are some key heads with their value heads.
type deltaHeads struct {
	firstKey         int64 // of the key heads here
	keys, values     int64
	keyDim, valueDim int64 // channels of a head
}

// share is a part of them.
func (h deltaHeads) share(part, parts int) deltaHeads {
	h.keys, h.values = h.keys/int64(parts), h.values/int64(parts)
	h.firstKey += int64(part) * h.keys
	return h
}

// firstValue is the first one of the value heads here.
func (h deltaHeads) firstValue() int64 { return h.firstKey * (h.values / h.keys) }

// channels is how many the convolution has here: queries, keys, values.
func (h deltaHeads) channels() int64 { return 2*h.keys*h.keyDim + h.values*h.valueDim }

// columns is how many the input projection has here.
func (h deltaHeads) columns() int64 { return h.channels() + h.values*(h.valueDim+2) }

func newDeltaNet(m *spec.Model, layer int, name string, p Parallel) *deltaNet {
	d, r := m.Delta, p.region()
	size, rank := int64(r.Size()), int64(r.Rank())
	n := &deltaNet{layer: layer, context: p.byHeads(), deltaHeads: deltaHeads{keys: int64(d.KeyHeads) / size, values: int64(d.ValueHeads) / size, keyDim: int64(d.KeyDim), valueDim: int64(d.ValueDim)}}
	n.stateBlocks = stateBlocks{[3]int64{n.values, n.keyDim, n.valueDim}, n.channels()}
	// in_proj: [sum of parts, h]; each part (q, k, v, z, b, a) is cut by heads, so a rank has a stretch of
	// rows of each.
	var rows [][2]int64 // of each part, the heads here
	from := int64(0)
	for _, part := range d.Parts() {
		here := int64(part) / size
		rows = append(rows, [2]int64{from + rank*here, here})
		from += int64(part)
	}
	h, values := int64(m.HiddenSize), int64(d.ValueHeads)
	n.in = mpu.NewColumnParallelLinear(r, mpu.LinearConfig{Name: name + ".in_proj", Out: from, In: h, Rows: rows, LeafOrder: p.leavesOf(rows), Init: mpu.Init{Std: m.InitStd}})
	n.proj = mpu.NewRowParallelLinear(r, mpu.LinearConfig{Name: name + ".out_proj", Out: h, In: values * n.valueDim, Bias: m.LinearBias, Init: outputInit(m)})
	// conv1d.weight: [channels, taps], a filter for each channel of q, k and v (the first three parts).
	taps := []int64{int64(d.Channels()), int64(d.Taps)}
	n.conv = mpu.Rows(name+".conv1d.weight", mpu.Init{Kind: mpu.InitUniform, Value: 1 / math.Sqrt(float64(d.Taps))}, taps, rows[:3], n.channels())
	heads := [][2]int64{{rank * n.values, n.values}}
	n.aLog = mpu.Rows(name+".A_log", mpu.Init{Kind: mpu.InitLogUniform, Value: 16}, []int64{values}, heads, n.values)
	n.dtBias = mpu.Rows(name+".dt_bias", mpu.Init{Kind: mpu.InitConstant, Value: 1}, []int64{values}, heads, n.values)
	// One norm of [value channels] serves all heads.
	one := mpu.Uncut(name+".out_norm.weight", mpu.Init{Kind: mpu.InitConstant, Value: 1}, n.valueDim)
	one.PartialOn(r) // each rank's heads give a part of its gradient
	one.ByHead = true
	n.norm = &norm{gamma: one, kind: device.RMSNormKind, eps: float32(m.NormEpsilon)}
	return n
}

// params are in Megatron's order.
func (n *deltaNet) params() []*mpu.Param {
	ps := append([]*mpu.Param{n.conv, n.dtBias, n.aLog}, n.in.Params()...)
	return append(append(ps, n.norm.params()...), n.proj.Params()...)
}

func (n *deltaNet) bias() Tensor { return n.proj.BiasValue() }

func (n *deltaNet) prepare(*device.Device, *positionTables) {}

// overBlocks is convolution and rule of rows that are of several sequences.
func (n *deltaNet) overBlocks(p *Pass, saved *deltaSaved, x Tensor) {
	all, r := p.Paged.Layers[n.layer-p.Paged.First], &saved.rule
	states, inputs := n.views(all)
	p.D.PagedCausalConv(device.PagedCausalConvArgs{Y: saved.conv, X: x, W: n.conv.Value, Inputs: inputs, Tables: p.Paged.Tables, Rows: p.Paged.Rows})
	p.D.PagedDeltaRule(device.PagedDeltaRuleArgs{O: r.O, Q: r.Q, K: r.K, V: r.V, A: r.A, B: r.B, ALog: r.ALog, DtBias: r.DtBias, States: states, Tables: p.Paged.Tables, Rows: p.Paged.Rows})
}

// deltaParts are views of the input projection's output, or of its gradient: z [tokens, value
// heads, value channels], and of each value head b and a [tokens, value heads].
type deltaParts struct{ mixed, z, b, a Tensor }

func (h deltaHeads) parts(all Tensor) deltaParts {
	c, z := h.channels(), h.values*h.valueDim
	return deltaParts{mixed: all.Slice(1, 0, c), z: byHeads(all, c, h.values, h.valueDim), b: all.Slice(1, c+z, h.values), a: all.Slice(1, c+z+h.values, h.values)}
}

// byHeads views columns of t [tokens, ..] from one on as [tokens, heads, d].
func byHeads(t Tensor, from, heads, d int64) Tensor {
	return device.Strided(t.Slice(1, from, 1).Data, t.DType, []int64{t.Shape[0], heads, d}, []int64{t.Stride[0], d, 1})
}

// convolved are views of queries, keys and values [tokens, heads, d] in what the convolution gives,
// or in its gradient.
func (h deltaHeads) convolved(t Tensor) (q, k, v Tensor) {
	wide := h.keys * h.keyDim
	return byHeads(t, 0, h.keys, h.keyDim), byHeads(t, wide, h.keys, h.keyDim), byHeads(t, 2*wide, h.values, h.valueDim)
}

// deltaSaved is what backward needs in addition to the input x. All positions that the heads see are here,
// whatever x holds.
type deltaSaved struct {
	net           *deltaNet
	heads         deltaHeads // here between the projections
	in, conv      Tensor     // [tokens, ..]: of the input projection, of the convolution
	rule          device.DeltaRuleForwardArgs
	normed, gated Tensor // [tokens, value heads, d]: the rule's output normed, and gated
	stats         normSaved
	out           Tensor // [tokens of the pass, columns of the output projection]: what gated became
}

// forward sets y = net(x) without the projection's bias; without a y it ends before the projection.
func (n *deltaNet) forward(p *Pass, s *device.Scope, y, x Tensor) (sublayerSaved, error) {
	// in: [tokens, columns], q, k, v, z, b and a of the heads here.
	saved := &deltaSaved{net: n, heads: n.deltaHeads, in: s.Alloc(p.DType, p.Tokens(), n.in.Columns())}
	if err := n.in.Forward(p.D, &p.Hooks, saved.in, x, device.NoEpilogue, Tensor{}); err != nil {
		return nil, err
	}
	// Of ranks that share sequences each gets all positions of a part of the heads: a recurrence cannot
	// start in the middle of a sequence.
	shared := exchangeHeads(p, n.context)
	if shared.context.Heads > 1 {
		if err := shared.spread(p, s, saved); err != nil {
			return nil, err
		}
	}
	h, tokens := saved.heads, saved.in.Shape[0]
	// conv: [tokens, channels], the causal convolution of q, k and v; O: [tokens, value heads, d], the rule.
	saved.conv = s.Alloc(p.DType, tokens, h.channels())
	parts, r := h.parts(saved.in), &saved.rule
	*r = device.DeltaRuleForwardArgs{O: s.Alloc(p.DType, tokens, h.values, h.valueDim), A: parts.a, B: parts.b, DocStart: p.DocStart, Batch: int32(p.Batch)}
	r.ALog, r.DtBias = n.of(h, n.aLog.Value), n.of(h, n.dtBias.Value)
	r.Q, r.K, r.V = h.convolved(saved.conv)
	if p.Paged != nil {
		n.overBlocks(p, saved, parts.mixed)
	} else {
		n.overSamples(p, s, saved, parts.mixed)
	}
	// Output: norm of each head, times silu(z), [tokens, value heads·d].
	saved.normed, saved.gated = s.Like(r.O), s.Like(r.O)
	saved.stats = n.norm.forward(p, s, saved.normed, r.O)
	p.D.GateForward(device.GateForwardArgs{Y: saved.gated, X: saved.normed, G: parts.z, Silu: 1})
	// Back to this rank's positions with all of its heads.
	if saved.out = saved.gated.Reshape(tokens, h.values*h.valueDim); shared.context.Heads > 1 {
		saved.out = s.Alloc(p.DType, p.Tokens(), n.values*n.valueDim)
		if err := shared.back(p, []Tensor{n.outputs(saved.out)}, h.outputs(saved.gated)); err != nil {
			return nil, err
		}
	}
	if !y.Given() {
		return saved, nil
	}
	return saved, n.proj.Forward(p.D, &p.Hooks, y, saved.out)
}

// of is a part [value heads of h] of a parameter's values [value heads].
func (n *deltaNet) of(h deltaHeads, t Tensor) Tensor {
	return t.Slice(0, h.firstValue(), h.values)
}

// stretch is neighbouring channels of a convolution: rows of its weight, and columns of its input.
type stretch struct{ row, column, n int64 }

// stretches are those of h's queries, keys and values; one of all channels here.
func (n *deltaNet) stretches(h deltaHeads) []stretch {
	if h == n.deltaHeads {
		return []stretch{{0, 0, n.channels()}}
	}
	keys, wide := n.keys*n.keyDim, h.keys*h.keyDim
	first := h.firstKey * h.keyDim
	return []stretch{{first, 0, wide}, {keys + first, wide, wide}, {2*keys + h.firstValue()*h.valueDim, 2 * wide, h.values * h.valueDim}}
}

// overSamples is convolution and rule of complete samples.
func (n *deltaNet) overSamples(p *Pass, s *device.Scope, saved *deltaSaved, x Tensor) {
	h := saved.heads
	for _, c := range n.stretches(h) {
		p.D.CausalConvForward(device.CausalConvForwardArgs{Y: saved.conv.Slice(1, c.column, c.n), X: x.Slice(1, c.column, c.n), W: n.conv.Value.Slice(0, c.row, c.n), DocStart: p.DocStart, Batch: int32(p.Batch)})
	}
	if p.Grad {
		chunks := (x.Shape[0]/p.Batch + device.DeltaChunk - 1) / device.DeltaChunk
		saved.rule.States = s.Alloc(statsType(p), p.Batch*h.values, chunks, h.keyDim, h.valueDim)
	}
	p.D.DeltaRuleForward(saved.rule)
}

// headByHead views t [tokens, heads, d] as [tokens, heads, 1, d]: a norm's leaf is then of one head.
func headByHead(t Tensor) Tensor {
	return device.Strided(t.Data, t.DType, []int64{t.Shape[0], t.Shape[1], 1, t.Shape[2]}, []int64{t.Stride[0], t.Stride[1], t.Stride[1], 1})
}

// backwardRule sets the gradients of b, a and of the convolution's output from that of the rule's, do.
func (saved *deltaSaved) backwardRule(p *Pass, s *device.Scope, grads deltaParts, dconv, do Tensor) {
	n, h, r := saved.net, saved.heads, &saved.rule
	part := func(t Tensor) Tensor { return n.of(h, t) }
	dq, dk, dv := h.convolved(dconv)
	for _, v := range p.samples(n.aLog) {
		dALog, addALog := v.gradient(s, n.aLog, part)
		dBias, addBias := v.gradient(s, n.dtBias, part)
		forward := device.DeltaRuleForwardArgs{O: v.rows(r.O), Q: v.rows(r.Q), K: v.rows(r.K), V: v.rows(r.V), A: v.rows(r.A), B: v.rows(r.B),
			ALog: part(n.aLog.Value), DtBias: part(n.dtBias.Value), // forward's may have left
			States: v.of(r.States), DocStart: v.of(r.DocStart), Batch: v.batch()}
		p.D.DeltaRuleBackward(device.DeltaRuleBackwardArgs{DQ: v.rows(dq), DK: v.rows(dk), DV: v.rows(dv), DA: v.rows(grads.a), DB: v.rows(grads.b),
			DALog: dALog, DDtBias: dBias, DO: v.rows(do), Forward: forward})
		addALog()
		addBias()
	}
}

// backward sets dx from dy; x is forward's input.
func (saved *deltaSaved) backward(p *Pass, dx, dy, x Tensor) error {
	n, h, d, r := saved.net, saved.heads, p.D, &saved.rule
	s := d.Arena.Scope(device.Activations)
	defer s.Release()
	shared := exchangeHeads(p, n.context)
	// do: [tokens, value heads, d], of the positions that the heads here see.
	dout := s.Like(saved.out)
	do := byHeads(dout, 0, n.values, n.valueDim)
	if err := n.proj.Backward(d, &p.Hooks, dout, dy, saved.out); err != nil {
		return err
	}
	if shared.context.Heads > 1 {
		do = s.Like(saved.gated)
		if err := shared.bring(p, h.outputs(do), n.outputs(dout)); err != nil {
			return err
		}
	}
	// Gate, norm, rule and convolution backward, each into its columns of din: [tokens, columns].
	din, dconv := s.Like(saved.in), s.Like(saved.conv)
	parts, grads := h.parts(saved.in), h.parts(din)
	d.GateBackward(device.GateBackwardArgs{DX: do, DG: grads.z, DY: do, X: saved.normed, G: parts.z, Silu: 1})
	n.norm.backward(p, saved.stats, headByHead(do), headByHead(do), headByHead(r.O), Tensor{})
	saved.backwardRule(p, s, grads, dconv, do)
	for _, c := range n.stretches(h) {
		p.convolveBack(n.conv, nil, func(t Tensor) Tensor { return t.Slice(0, c.row, c.n) },
			device.CausalConvBackwardArgs{DX: grads.mixed.Slice(1, c.column, c.n), DY: dconv.Slice(1, c.column, c.n), X: parts.mixed.Slice(1, c.column, c.n)})
	}
	// din is of all positions and a part of the heads; the input projection takes the converse.
	if shared.context.Heads > 1 {
		var err error
		if din, err = shared.collect(p, s, n, h, din); err != nil {
			return err
		}
	}
	return n.in.Backward(d, &p.Hooks, dx, din, x)
}
