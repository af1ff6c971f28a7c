package model

import (
	"math"

	"monotron/csrc/device"
	"monotron/megatron/spec"
	"monotron/mpu"
)

// mamba is a state-space scan: spec.Mamba says what it is. Of tensor-parallel ranks each has some heads from
// the input projection to the output projection, with their groups of B and C; a single group is on all of them.
// Ranks that share sequences exchange heads for positions around convolution and scan.
type mamba struct {
	mambaHeads
	stateBlocks
	layer              int // global, 0-based
	context            mpu.Context
	in                 *mpu.ColumnParallelLinear // rows of z, x, B, C, dt; with a group of several ranks z, dt, x, B, C
	dtAt, mixedAt      int64                     // the first columns of dt, and of x, B and C, in what in gives
	convs              []mambaConv               // of x, B and C here, in this order
	aLog, dtBias, skip *mpu.Param                // [heads here]
	dtMin, dtMax       float32
	norm               *groupNorm
	proj               *mpu.RowParallelLinear
}

// mambaConv is the convolution of n channels of those here, from one on.
type mambaConv struct {
	weight, bias *mpu.Param // [n, taps], [n]; bias nil: none
	from, n      int64
}

// mambaHeads are some heads with the groups of B and C that they read.
type mambaHeads struct {
	firstHead, firstGroup int64 // of those of the tensor-parallel rank
	heads, groups         int64
	headDim, stateDim     int64 // channels of a head, and of a B or C
}

func (h mambaHeads) inner() int64 { return h.heads * h.headDim }

// channels is how many the convolution has here: x, B, C.
func (h mambaHeads) channels() int64 { return h.inner() + 2*h.groups*h.stateDim }

// share is a part of them; a single group is in each.
func (h mambaHeads) share(part, parts int) mambaHeads {
	h.heads /= int64(parts)
	h.firstHead += int64(part) * h.heads
	if h.groups > 1 {
		h.groups /= int64(parts)
		h.firstGroup += int64(part) * h.groups
	}
	return h
}

func newMamba(m *spec.Model, layer int, name string, p Parallel) *mamba {
	s, r := m.Mamba, p.region()
	size, rank := int64(r.Size()), int64(r.Rank())
	n := &mamba{layer: layer, context: p.byHeads(), dtMin: float32(s.DtMin), dtMax: float32(s.DtMax),
		mambaHeads: mambaHeads{heads: int64(s.Heads) / size, groups: max(1, int64(s.Groups)/size), headDim: int64(s.HeadDim), stateDim: int64(s.StateDim)}}
	n.stateBlocks = stateBlocks{[3]int64{n.heads, n.stateDim, n.headDim}, n.channels()}
	n.newProjections(m, name, p)
	// Numbers of each head, and the norm of all heads' output.
	head := func(name string, init mpu.Init) *mpu.Param {
		return mpu.Rows(name, init, []int64{int64(s.Heads)}, [][2]int64{{rank * n.heads, n.heads}}, n.heads)
	}
	n.dtBias = head(name+".dt_bias", mpu.Init{Kind: mpu.InitTimeStep, Value: 0.1})
	n.aLog = head(name+".A_log", mpu.Init{Kind: mpu.InitLogUniform, Value: 16})
	n.skip = head(name+".D", mpu.Init{Kind: mpu.InitConstant, Value: 1})
	n.norm = newGroupNorm(m, name+".norm", s.Groups, int64(s.Inner()), p)
	return n
}

// newProjections makes the projections, and the convolution of the first one's output.
func (n *mamba) newProjections(m *spec.Model, name string, p Parallel) {
	r := p.region()
	s, shared := m.Mamba, m.Mamba.Groups < r.Size() // a single group is on all ranks
	size, rank := int64(r.Size()), int64(r.Rank())
	// in_proj: [z, x, B, C, dt of all ranks, h]; of each part a rank has the rows of its heads or groups, of a
	// single group all.
	var rows [5][2]int64
	from := int64(0)
	for i, part := range s.Parts() {
		here := int64(part) / size
		rows[i] = [2]int64{from + rank*here, here}
		if shared && (i == 2 || i == 3) {
			rows[i] = [2]int64{from, int64(part)}
		}
		from += int64(part)
	}
	z, x, b, c, dt := rows[0], rows[1], rows[2], rows[3], rows[4]
	h, inner := int64(m.HiddenSize), int64(s.Inner())
	in := mpu.LinearConfig{Name: name + ".in_proj", FP8: p.FP8, Out: from, In: h, Rows: [][2]int64{z, x, b, c, dt}, LeafOrder: p.leavesOf(rows[:]), Init: mpu.Init{Std: m.InitStd}}
	n.mixedAt, n.dtAt = n.inner(), n.inner()+n.channels()
	if shared { // shared rows are the last ones
		in.Rows, in.Shared = [][2]int64{z, dt, x}, &mpu.SharedRows{Rows: [][2]int64{b, c}, Sharers: r}
		n.dtAt, n.mixedAt = n.inner(), n.inner()+n.heads
	}
	n.in = mpu.NewColumnParallelLinear(r, in)
	n.proj = mpu.NewRowParallelLinear(r, mpu.LinearConfig{Name: name + ".out_proj", FP8: p.FP8, Out: h, In: inner, Init: outputInit(m)})
	// The channels of x, B and C are rows of conv1d.
	n.newConvs(m, name, r, shared, [][2]int64{{x[0] - inner, x[1]}, {b[0] - inner, b[1]}, {c[0] - inner, c[1]}})
}

// newConvs makes the convolution of channels, which rows [x, B, C] of the global one are; those of a group that
// several ranks have are parameters of their own, with partial gradients.
func (n *mamba) newConvs(m *spec.Model, name string, r mpu.Region, shared bool, rows [][2]int64) {
	s := m.Mamba
	init := mpu.Init{Kind: mpu.InitUniform, Value: 1 / math.Sqrt(float64(s.Taps))}
	add := func(rows [][2]int64, shared bool) {
		c := mambaConv{}
		for _, stretch := range rows {
			c.n += stretch[1]
		}
		if len(n.convs) > 0 {
			c.from = n.convs[0].n
		}
		c.weight = mpu.Rows(name+".conv1d.weight", init, []int64{int64(s.Channels()), int64(s.Taps)}, rows, c.n)
		if s.ConvBias {
			c.bias = mpu.Rows(name+".conv1d.bias", init, []int64{int64(s.Channels())}, rows, c.n)
		}
		for _, w := range c.params() {
			if shared {
				w.PartialOn(r)
			}
		}
		n.convs = append(n.convs, c)
	}
	if !shared {
		add(rows, false)
		return
	}
	add(rows[:1], false)
	add(rows[1:], true)
}

func (c mambaConv) params() []*mpu.Param {
	if c.bias == nil {
		return []*mpu.Param{c.weight}
	}
	return []*mpu.Param{c.weight, c.bias}
}

func (n *mamba) params() []*mpu.Param {
	ps := append([]*mpu.Param{n.dtBias, n.aLog, n.skip}, n.in.Params()...)
	for _, c := range n.convs {
		ps = append(ps, c.params()...)
	}
	return append(append(ps, n.norm.params()...), n.proj.Params()...)
}

func (n *mamba) bias() Tensor { return n.proj.BiasValue() }

func (n *mamba) prepare(*device.Device, *positionTables) {}

// mambaSaved is what backward needs in addition to the input x. Between the exchanges all positions that the
// heads there see are here, whatever x holds.
type mambaSaved struct {
	layer *mamba
	heads mambaHeads // between the exchanges
	in    Tensor     // [tokens, columns of the input projection]
	mixed Tensor     // [rows, channels]: x, B and C before the convolution
	conv  Tensor     // [rows, channels]: after it
	rule  device.DeltaRuleForwardArgs
	out   Tensor // [tokens, heads·d]: what the scan gives, of all heads here
	gated Tensor // times SiLU of the gate
	stats normSaved
	norm  Tensor // normed
}

// parts are views of z, dt, and of x, B and C together in what the input projection gives, or in its gradient.
func (n *mamba) parts(in Tensor) (z, dt, mixed Tensor) {
	return in.Slice(1, 0, n.inner()), in.Slice(1, n.dtAt, n.heads), in.Slice(1, n.mixedAt, n.channels())
}

// convolved are views of x, B and C [rows, heads or groups, d] in what the convolution gives, or in its gradient.
func (h mambaHeads) convolved(t Tensor) (x, b, c Tensor) {
	at, wide := h.inner(), h.groups*h.stateDim
	return byHeads(t, 0, h.heads, h.headDim), byHeads(t, at, h.groups, h.stateDim), byHeads(t, at+wide, h.groups, h.stateDim)
}

// forward sets y = layer(x); without a y it ends before the projection.
func (n *mamba) forward(p *Pass, s *device.Scope, y, x Tensor) (sublayerSaved, error) {
	saved := &mambaSaved{layer: n, heads: n.mambaHeads, in: s.Alloc(p.DType, p.Tokens(), n.in.Columns())}
	if err := n.in.Forward(p.D, &p.Hooks, saved.in, x, device.NoEpilogue, Tensor{}); err != nil {
		return nil, err
	}
	// Of ranks that share sequences each gets all positions of a part of the heads.
	z, dt, mixed := n.parts(saved.in)
	shared := exchangeHeads(p, n.context)
	if saved.mixed = mixed; shared.context.Heads > 1 {
		var err error
		if dt, err = saved.spread(p, s, shared); err != nil {
			return nil, err
		}
	}
	// Convolution [rows, channels], scan [rows, heads, d].
	h, rows := saved.heads, saved.mixed.Shape[0]
	saved.conv = s.Alloc(p.DType, rows, h.channels())
	saved.rule = n.scan(h, dt)
	r := &saved.rule
	r.O, r.DocStart, r.Batch = s.Alloc(p.DType, rows, h.heads, h.headDim), p.DocStart, int32(p.Batch)
	r.V, r.K, r.Q = h.convolved(saved.conv)
	if p.Paged != nil {
		n.overBlocks(p, saved)
	} else {
		n.overSamples(p, s, saved)
	}
	// Back to this rank's positions with all of its heads.
	if saved.out = r.O.Reshape(rows, h.inner()); shared.context.Heads > 1 {
		own := s.Alloc(p.DType, p.Tokens(), n.inner())
		if err := shared.back(p, []Tensor{n.outputs(shared, own)}, byChannel(saved.out)); err != nil {
			return nil, err
		}
		saved.out = own
	}
	// Gate, then norm.
	saved.gated, saved.norm = s.Like(saved.out), s.Like(saved.out)
	p.D.GateForward(device.GateForwardArgs{Y: saved.gated, X: saved.out, G: z, Silu: 1})
	var err error
	if saved.stats, err = n.norm.forward(p, s, saved.norm, saved.gated); err != nil || !y.Given() {
		return saved, err
	}
	return saved, n.proj.Forward(p.D, &p.Hooks, y, saved.norm)
}

// scan is that of heads h with their time steps dt, its tensors of rows apart.
func (n *mamba) scan(h mambaHeads, dt Tensor) device.DeltaRuleForwardArgs {
	of := func(w *mpu.Param) Tensor { return n.of(h, w.Value) }
	return device.DeltaRuleForwardArgs{A: dt, ALog: of(n.aLog), DtBias: of(n.dtBias), Skip: of(n.skip), StateSpace: 1, DtMin: n.dtMin, DtMax: n.dtMax}
}

// of is the part of heads h in numbers of all heads here.
func (n *mamba) of(h mambaHeads, t Tensor) Tensor { return t.Slice(0, h.firstHead, h.heads) }

// overBlocks is convolution and scan of rows that are of several sequences.
func (n *mamba) overBlocks(p *Pass, saved *mambaSaved) {
	all, r := p.Paged.Layers[n.layer-p.Paged.First], &saved.rule
	states, inputs := n.views(all)
	for _, c := range n.convs {
		a := device.PagedCausalConvArgs{Y: saved.conv.Slice(1, c.from, c.n), X: saved.mixed.Slice(1, c.from, c.n), W: c.weight.Value, Inputs: inputs.Slice(2, c.from, c.n), Tables: p.Paged.Tables, Rows: p.Paged.Rows}
		if c.bias != nil {
			a.Bias = c.bias.Value
		}
		p.D.PagedCausalConv(a)
	}
	p.D.PagedDeltaRule(device.PagedDeltaRuleArgs{O: r.O, Q: r.Q, K: r.K, V: r.V, A: r.A, ALog: r.ALog, DtBias: r.DtBias, Skip: r.Skip, States: states, Tables: p.Paged.Tables, Rows: p.Paged.Rows,
		StateSpace: 1, DtMin: r.DtMin, DtMax: r.DtMax})
}

// overSamples is convolution and scan of complete samples.
func (n *mamba) overSamples(p *Pass, s *device.Scope, saved *mambaSaved) {
	h := saved.heads
	n.eachConv(h, func(c mambaConv, column int64, part func(Tensor) Tensor) {
		width := part(c.weight.Value).Shape[0]
		a := device.CausalConvForwardArgs{Y: saved.conv.Slice(1, column, width), X: saved.mixed.Slice(1, column, width), W: part(c.weight.Value), DocStart: p.DocStart, Batch: int32(p.Batch)}
		if c.bias != nil {
			a.Bias = part(c.bias.Value)
		}
		p.D.CausalConvForward(a)
	})
	if p.Grad {
		chunks := (saved.mixed.Shape[0]/p.Batch + device.DeltaChunk - 1) / device.DeltaChunk
		saved.rule.States = s.Alloc(statsType(p), p.Batch*h.heads, chunks, h.stateDim, h.headDim)
	}
	p.D.DeltaRuleForward(saved.rule)
}

// eachConv calls do for each stretch of channels of heads h that one of the convolutions has: from a column of
// theirs on, with the part of the convolution's weight and bias.
func (n *mamba) eachConv(h mambaHeads, do func(c mambaConv, column int64, part func(Tensor) Tensor)) {
	wide, group := h.groups*h.stateDim, h.firstGroup*h.stateDim
	stretches := []stretch{{h.firstHead * h.headDim, 0, h.inner()}, {n.inner() + group, h.inner(), wide}, {n.inner() + n.groups*n.stateDim + group, h.inner() + wide, wide}}
	if h == n.mambaHeads {
		stretches = []stretch{{0, 0, n.channels()}}
	}
	for _, t := range stretches {
		for _, c := range n.convs {
			from, to := max(t.row, c.from), min(t.row+t.n, c.from+c.n)
			if from < to {
				do(c, t.column+from-t.row, func(t Tensor) Tensor { return t.Slice(0, from-c.from, to-from) })
			}
		}
	}
}

// backward sets dx from dy; x is forward's input.
func (saved *mambaSaved) backward(p *Pass, dx, dy, x Tensor) error {
	n, h, d := saved.layer, saved.heads, p.D
	s := d.Arena.Scope(device.Activations)
	defer s.Release()
	// Projection, norm, gate: dout [tokens, heads·d].
	dout, din := s.Like(saved.out), s.Like(saved.in)
	if err := n.proj.Backward(d, &p.Hooks, dout, dy, saved.norm); err != nil {
		return err
	}
	if err := n.norm.backward(p, saved.stats, dout, dout, saved.gated); err != nil {
		return err
	}
	z, _, _ := n.parts(saved.in)
	dz, ddt, dmixed := n.parts(din)
	d.GateBackward(device.GateBackwardArgs{DX: dout, DG: dz, DY: dout, X: saved.out, G: z, Silu: 1})
	// Scan and convolution, of all positions that the heads there see.
	shared := exchangeHeads(p, n.context)
	if shared.context.Heads == 1 {
		saved.backwardScan(p, s, dmixed, ddt, byHeads(dout, 0, h.heads, h.headDim))
		return n.in.Backward(d, &p.Hooks, dx, din, x)
	}
	rows := saved.mixed.Shape[0]
	do, all := s.Alloc(p.DType, rows, h.inner()), s.Alloc(p.DType, rows, h.channels()+h.heads)
	if err := shared.bring(p, byChannel(do), n.outputs(shared, dout)); err != nil {
		return err
	}
	saved.backwardScan(p, s, all.Slice(1, 0, h.channels()), all.Slice(1, h.channels(), h.heads), byHeads(do, 0, h.heads, h.headDim))
	if err := n.collect(p, s, shared, din, all); err != nil {
		return err
	}
	return n.in.Backward(d, &p.Hooks, dx, din, x)
}

// backwardScan sets the gradients of x, B and C before the convolution and of dt from that of the scan, do.
func (saved *mambaSaved) backwardScan(p *Pass, s *device.Scope, dmixed, ddt, do Tensor) {
	n, h, r := saved.layer, saved.heads, &saved.rule
	dconv := s.Like(saved.conv)
	dx, db, dc := h.convolved(dconv)
	part := func(t Tensor) Tensor { return n.of(h, t) }
	for _, v := range p.samples(n.aLog) {
		dALog, addALog := v.gradient(s, n.aLog, part)
		dBias, addBias := v.gradient(s, n.dtBias, part)
		dSkip, addSkip := v.gradient(s, n.skip, part)
		forward := n.scan(h, v.rows(r.A)) // forward's parameters may have left
		forward.O, forward.Q, forward.K, forward.V = v.rows(r.O), v.rows(r.Q), v.rows(r.K), v.rows(r.V)
		forward.States, forward.DocStart, forward.Batch = v.of(r.States), v.of(r.DocStart), v.batch()
		p.D.DeltaRuleBackward(device.DeltaRuleBackwardArgs{DQ: v.rows(dc), DK: v.rows(db), DV: v.rows(dx), DA: v.rows(ddt),
			DALog: dALog, DDtBias: dBias, DSkip: dSkip, DO: v.rows(do), Forward: forward})
		addALog()
		addBias()
		addSkip()
	}
	n.eachConv(h, func(c mambaConv, column int64, part func(Tensor) Tensor) {
		width := part(c.weight.Value).Shape[0]
		p.convolveBack(c.weight, c.bias, part, device.CausalConvBackwardArgs{DX: dmixed.Slice(1, column, width), DY: dconv.Slice(1, column, width), X: saved.mixed.Slice(1, column, width)})
	})
}
