package devicetest

import (
	"fmt"
	"math"

	"monotron/csrc/device"
)

// deltaShape is of a delta rule, or, of dk + dk + dv channels, of the convolution before it.
type deltaShape struct {
	batch, s, keyHeads, heads, dk, dv int64
	doc                               bool // samples have documents
	rate                              float64
	space                             bool    // a state space, of heads that share Bs and Cs
	least, most                       float32 // of its Δ; 0: no limit
}

func (s deltaShape) String() string {
	text := fmt.Sprintf("%dx%d %d of %d heads %dx%d", s.batch, s.s, s.keyHeads, s.heads, s.dk, s.dv)
	if s.space {
		text += " space"
	}
	if s.least > 0 || s.most > 0 {
		text += " limits"
	}
	if s.doc {
		text += " documents"
	}
	return text
}

// stateSpaces are of odd sizes, over a chunk's end, and as wide as those of Granite 4.
var stateSpaces = []deltaShape{
	{batch: 1, s: 1, keyHeads: 1, heads: 1, dk: 1, dv: 1, rate: 1}, {batch: 2, s: 5, keyHeads: 1, heads: 2, dk: 3, dv: 4, rate: 1},
	{batch: 2, s: 70, keyHeads: 2, heads: 4, dk: 6, dv: 5, doc: true, rate: 1}, {batch: 1, s: 130, keyHeads: 1, heads: 3, dk: 33, dv: 17, doc: true, rate: 0.3, least: 0.5, most: 1.2},
	{batch: 1, s: 200, keyHeads: 1, heads: 2, dk: 128, dv: 64, doc: true, rate: 0.1}, {batch: 1, s: 129, keyHeads: 1, heads: 1, dk: 20, dv: 40, rate: 9, most: 0.4},
}

// deltaCases are the parts of a linear attention: convolutions, delta rules and gates.
func deltaCases() (cases []Case) {
	for _, d := range valueTypes {
		for _, s := range []deltaShape{
			{1, 1, 1, 1, 1, 1, false, 1, false, 0, 0}, {2, 5, 1, 2, 3, 4, false, 1, false, 0, 0}, {1, 64, 2, 2, 16, 16, false, 1, false, 0, 0}, {2, 70, 2, 4, 6, 5, true, 1, false, 0, 0},
			{1, 130, 1, 3, 33, 17, true, 0.1, false, 0, 0}, {1, 300, 2, 2, 32, 64, false, 0.01, false, 0, 0}, {1, 200, 1, 2, 128, 128, true, 0.1, false, 0, 0}, {2, 129, 1, 1, 20, 40, true, 9, false, 0, 0},
		} {
			cases = append(cases, deltaForwardCase(d, s, true), deltaForwardCase(d, s, false), deltaBackwardCase(d, s))
		}
		for _, s := range stateSpaces {
			s.space = true
			cases = append(cases, deltaForwardCase(d, s, true), deltaForwardCase(d, s, false), deltaBackwardCase(d, s))
		}
		for _, s := range []convShape{{1, 1, 1, 4, false, 0, false}, {2, 3, 5, 4, false, 0, false}, {1, 70, 33, 4, true, 0, false}, {2, 130, 128, 3, true, 0, false}, {1, 65, 300, 1, false, 0, false},
			{2, 40, 17, 7, true, 0, false}, {1, 70, 33, 3, true, 1, false}, {2, 9, 130, 3, false, 1, false}, {2, 5, 1, 4, false, 0, true}, {1, 140, 67, 4, true, 0, true}, {2, 9, 130, 3, false, 1, true}} {
			cases = append(cases, convForwardCase(d, s), convBackwardCase(d, s))
		}
		for _, s := range []pagedShape{{[][2]int64{{0, 1}}, 1, 1, 16, false}, {[][2]int64{{30, 1}, {0, 5}, {15, 1}, {31, 33}}, 2, 2, 32, false}, {[][2]int64{{3, 40}}, 1, 3, 64, false}} {
			cases = append(cases, pagedConvCase(d, s, 0, false), pagedConvCase(d, s, 1, false), pagedConvCase(d, s, 0, true), pagedDeltaCase(d, s, false), pagedDeltaCase(d, s, true))
		}
		for _, n := range []int64{1, 17, 64, 1001} {
			for kind := range int32(3) {
				cases = append(cases, gateForwardCase(d, n, kind), gateBackwardCase(d, n, kind))
			}
		}
	}
	return cases
}

// docStart is the documents of samples of s positions, of a few positions or of some chunks; none unless they
// are asked for.
func (e *Env) docStart(batch, s int64, doc bool) (t device.Tensor) {
	start, next := int64(0), int64(0)
	if doc {
		t = e.Make("DocStart", device.I32, func(i int) float64 {
			if at := int64(i) % s; at == next || at == 0 {
				start = at
				next = at + 1 + e.below([]int64{3, 20, 170}[e.below(3)])
			}
			return float64(start)
		}, batch, s)
	}
	return t
}

// spaceSize is the size of a state's rows: sums of many K·V, which a decay of rate bounds.
func (s deltaShape) spaceSize() float64 {
	if !s.space {
		return 1
	}
	return 2 * math.Sqrt(min(float64(s.s), 1+1/s.rate))
}

// deltaInputs makes what the model has as columns of one tensor with rows apart. Queries and keys of a state space, which
// nobody norms, have a length of 1.
func deltaInputs(e *Env, d device.DType, s deltaShape) device.DeltaRuleForwardArgs {
	rows := s.batch * s.s
	apart := func(name string, heads, n int64, size float64) device.Tensor {
		all := e.Scaled(name, d, 0, size, rows, heads*n+3)
		return device.Strided(all.Slice(1, 1, 1).Data, d, []int64{rows, heads, n}, []int64{heads*n + 3, n, 1})
	}
	length := 1.0
	if s.space {
		length = 1 / math.Sqrt(float64(s.dk))
	}
	a := device.DeltaRuleForwardArgs{Batch: int32(s.batch), Q: apart("Q", s.keyHeads, s.dk, length), K: apart("K", s.keyHeads, s.dk, length), V: apart("V", s.heads, s.dv, 1),
		A: e.In("A", d, rows, s.heads), DtBias: e.In("DtBias", d, s.heads), DtMin: s.least, DtMax: s.most}
	if s.space {
		a.StateSpace, a.Skip = 1, e.In("Skip", d, s.heads)
	} else {
		a.B = e.In("B", d, rows, s.heads)
	}
	a.ALog = e.Scaled("ALog", d, math.Log(s.rate), 0.3, s.heads)
	a.DocStart = e.docStart(s.batch, s.s, s.doc)
	return a
}

func (s deltaShape) states() []int64 {
	return []int64{s.batch * s.heads, (s.s + device.DeltaChunk - 1) / device.DeltaChunk, s.dk, s.dv}
}

func deltaForwardCase(d device.DType, s deltaShape, kept bool) Case {
	name := fmt.Sprintf("%s %v", d, s)
	if kept {
		name += " kept"
	}
	return Case{Op: device.OpDeltaRuleForward, Name: name, Setup: func(e *Env) func() {
		a := deltaInputs(e, d, s)
		a.O = e.Out("O", tol(d, s.dk+s.s, s.spaceSize()), d, s.batch*s.s, s.heads, s.dv)
		if kept {
			a.States = e.Out("States", tol(device.F32, s.dk+s.s, s.spaceSize()), device.F32, s.states()...)
		}
		return func() { e.Dev.DeltaRuleForward(a) }
	}, Work: Work{FLOPs: float64(6 * s.batch * s.s * s.heads * s.dk * s.dv)}}
}

func deltaBackwardCase(d device.DType, s deltaShape) Case {
	return Case{Op: device.OpDeltaRuleBackward, Name: fmt.Sprintf("%s %v", d, s), Setup: func(e *Env) func() {
		rows := s.batch * s.s
		twin := e.twin()
		f := deltaInputs(twin, d, s)
		f.O = twin.scope.Alloc(d, rows, s.heads, s.dv)
		f.States = twin.scope.Alloc(device.F32, s.states()...)
		twin.Dev.Fill(f.States, 0)
		twin.Dev.DeltaRuleForward(f)
		a := device.DeltaRuleBackwardArgs{Forward: deltaInputs(e, d, s)}
		a.Forward.States, a.Forward.O = e.From(twin, "States", f.States), e.In("O", d, rows, s.heads, s.dv)
		a.DO = e.In("DO", d, rows, s.heads, s.dv)
		one := tol(d, s.dk+s.dv+s.s, 4*s.spaceSize())
		a.DQ, a.DK = e.Out("DQ", one, d, rows, s.keyHeads, s.dk), e.Out("DK", one, d, rows, s.keyHeads, s.dk)
		a.DV, a.DA = e.Out("DV", one, d, rows, s.heads, s.dv), e.Out("DA", one, d, rows, s.heads)
		all := tol(device.F32, rows*(s.dk+s.dv), 4*s.spaceSize())
		if s.space {
			a.DSkip = e.Changes(e.In("DSkip", device.F32, s.heads), all)
		} else {
			a.DB = e.Out("DB", one, d, rows, s.heads)
		}
		a.DALog, a.DDtBias = e.Changes(e.In("DALog", device.F32, s.heads), all), e.Changes(e.In("DDtBias", device.F32, s.heads), all)
		return func() { e.Dev.DeltaRuleBackward(a) }
	}, Work: Work{FLOPs: float64(20 * s.batch * s.s * s.heads * s.dk * s.dv)}}
}

type convShape struct {
	batch, s, channels, kernel int64
	doc                        bool
	plain                      int32
	bias                       bool
}

func (s convShape) String() string {
	text := fmt.Sprintf("%dx%d channels %d taps %d", s.batch, s.s, s.channels, s.kernel)
	if s.plain != 0 {
		text += " plain"
	}
	if s.bias {
		text += " bias"
	}
	if s.doc {
		text += " documents"
	}
	return text
}

// convInputs makes X with rows apart.
func convInputs(e *Env, d device.DType, s convShape) (x, w, bias, docStart device.Tensor) {
	x = e.In("X", d, s.batch*s.s, s.channels+5).Slice(1, 2, s.channels)
	if s.bias {
		bias = e.In("Bias", d, s.channels)
	}
	return x, e.In("W", d, s.channels, s.kernel), bias, e.docStart(s.batch, s.s, s.doc)
}

func convForwardCase(d device.DType, s convShape) Case {
	return Case{Op: device.OpCausalConvForward, Name: fmt.Sprintf("%s %v", d, s), Setup: func(e *Env) func() {
		a := device.CausalConvForwardArgs{Batch: int32(s.batch), Plain: s.plain}
		a.X, a.W, a.Bias, a.DocStart = convInputs(e, d, s)
		a.Y = e.Out("Y", tol(d, s.kernel, 2), d, s.batch*s.s, s.channels)
		return func() { e.Dev.CausalConvForward(a) }
	}, Work: Work{Bytes: float64(2 * s.batch * s.s * s.channels * d.Size())}}
}

func convBackwardCase(d device.DType, s convShape) Case {
	return Case{Op: device.OpCausalConvBackward, Name: fmt.Sprintf("%s %v", d, s), Setup: func(e *Env) func() {
		a := device.CausalConvBackwardArgs{Batch: int32(s.batch), Plain: s.plain}
		a.X, a.W, a.Bias, a.DocStart = convInputs(e, d, s)
		a.DY = e.In("DY", d, s.batch*s.s, s.channels)
		a.DX = e.Out("DX", tol(d, s.kernel, 8), d, s.batch*s.s, s.channels)
		a.DW = e.Changes(e.In("DW", device.F32, s.channels, s.kernel), tol(device.F32, s.batch*s.s, 8*math.Sqrt(float64(s.batch*s.s))))
		if s.bias {
			a.DBias = e.Changes(e.In("DBias", device.F32, s.channels), tol(device.F32, s.batch*s.s, 8*math.Sqrt(float64(s.batch*s.s))))
		}
		return func() { e.Dev.CausalConvBackward(a) }
	}, Work: Work{Bytes: float64(3 * s.batch * s.s * s.channels * d.Size())}}
}

// slotsOf are the tables and rows of sequences whose blocks follow each other.
func (e *Env) slotsOf(s pagedShape) (tables, rows device.Tensor, blocks int64) {
	var entries []float64
	most := int64(1)
	for i, q := range s.sequences {
		most = max(most, (q[0]+q[1]+device.PagedBlock-1)/device.PagedBlock)
		for r := range q[1] {
			entries = append(entries, float64(i), float64(q[0]+r))
		}
	}
	n := int64(len(s.sequences))
	// n·most has no factor 5.
	tables = e.Make("tables", device.I32, func(i int) float64 { return float64((int64(i)*5 + 3) % (n * most)) }, n, most)
	return tables, e.Make("rows", device.I32, func(i int) float64 { return entries[i] }, int64(len(entries)/2), 2), n * most
}

func pagedConvCase(d device.DType, s pagedShape, plain int32, bias bool) Case {
	return Case{Op: device.OpPagedCausalConv, Name: fmt.Sprintf("%s %v channels %d plain %d bias %v", d, s.sequences, s.d, plain, bias), Setup: func(e *Env) func() {
		a := device.PagedCausalConvArgs{Plain: plain}
		var blocks int64
		a.Tables, a.Rows, blocks = e.slotsOf(s)
		rows := a.Rows.Shape[0]
		a.X, a.W = e.In("X", d, rows, s.d), e.In("W", d, s.d, 4)
		if bias {
			a.Bias = e.In("Bias", d, s.d)
		}
		a.Inputs = e.Changes(e.In("Inputs", device.F32, blocks, device.PagedBlock, s.d), exact)
		a.Y = e.Out("Y", tol(d, 4, 2), d, rows, s.d)
		return func() { e.Dev.PagedCausalConv(a) }
	}}
}

func pagedDeltaCase(d device.DType, s pagedShape, space bool) Case {
	return Case{Op: device.OpPagedDeltaRule, Name: fmt.Sprintf("%s %v %dx%d heads of %d space %v", d, s.sequences, s.groups, s.heads, s.d, space), Setup: func(e *Env) func() {
		a := device.PagedDeltaRuleArgs{}
		var blocks int64
		a.Tables, a.Rows, blocks = e.slotsOf(s)
		rows, heads, dk := a.Rows.Shape[0], s.groups*s.heads, int64(11)
		a.Q, a.K, a.V = e.Scaled("Q", d, 0, 0.3, rows, s.groups, dk), e.Scaled("K", d, 0, 0.3, rows, s.groups, dk), e.In("V", d, rows, heads, s.d)
		a.A, a.ALog, a.DtBias = e.In("A", d, rows, heads), e.Scaled("ALog", d, -2, 0.3, heads), e.In("DtBias", d, heads)
		size := 1.0
		if space {
			a.StateSpace, a.Skip, a.DtMin, a.DtMax = 1, e.In("Skip", d, heads), 0.1, 2
			size = deltaShape{s: rows, rate: math.Exp(-2), space: true}.spaceSize()
		} else {
			a.B = e.In("B", d, rows, heads)
		}
		a.States = e.Changes(e.In("States", device.F32, blocks, heads, dk, s.d), tol(device.F32, dk+rows, size))
		a.O = e.Out("O", tol(d, dk+rows, size), d, rows, heads, s.d)
		return func() { e.Dev.PagedDeltaRule(a) }
	}}
}

// gateInputs are heads of n channels, the gates with rows apart.
func gateInputs(e *Env, d device.DType, n int64) (x, g device.Tensor) {
	all := e.Scaled("G", d, 0, 3, 5, 2, 2*n)
	return e.In("X", d, 5, 2, n), all.Slice(2, n, n)
}

// gateForwardCase is of a kind: 0 sigmoid, 1 SiLU, 2 the gate as it is.
func gateForwardCase(d device.DType, n int64, kind int32) Case {
	return Case{Op: device.OpGateForward, Name: fmt.Sprintf("%s %d kind %d", d, n, kind), Setup: func(e *Env) func() {
		x, g := gateInputs(e, d, n)
		y := e.Out("Y", tol(d, 1, 8), d, 5, 2, n)
		return func() { e.Dev.GateForward(device.GateForwardArgs{Y: y, X: x, G: g, Silu: kind & 1, Plain: kind >> 1}) }
	}, Work: Work{Bytes: float64(30 * n * d.Size())}}
}

func gateBackwardCase(d device.DType, n int64, kind int32) Case {
	return Case{Op: device.OpGateBackward, Name: fmt.Sprintf("%s %d kind %d", d, n, kind), Setup: func(e *Env) func() {
		a := device.GateBackwardArgs{Silu: kind & 1, Plain: kind >> 1, DY: e.In("DY", d, 5, 2, n)}
		a.X, a.G = gateInputs(e, d, n)
		a.DX, a.DG = e.Changes(a.DY, tol(d, 1, 8)), e.Out("DG", tol(d, 1, 8), d, 5, 2, n)
		return func() { e.Dev.GateBackward(a) }
	}, Work: Work{Bytes: float64(50 * n * d.Size())}}
}

// delta draws the shapes of deltaCases.
func (r drawer) delta() []Case {
	d, keys := r.dtype(), r.size(1, 3)
	s := deltaShape{batch: r.size(1, 3), s: r.size(1, 200), keyHeads: keys, heads: keys * r.size(1, 3), dk: r.size(1, 129), dv: r.size(1, 129), doc: r.yes(2), rate: 0.1}
	c := convShape{batch: s.batch, s: s.s, channels: r.size(1, 300), kernel: r.size(1, 5), doc: s.doc, plain: int32(r.IntN(2)), bias: r.yes(2)}
	space := s
	if space.space = true; r.yes(2) {
		space.least, space.most = 0.3, 1
	}
	n, kind := r.size(1, 300), int32(r.IntN(3))
	return []Case{deltaForwardCase(d, s, true), deltaBackwardCase(d, s), deltaForwardCase(d, space, true), deltaBackwardCase(d, space), convForwardCase(d, c), convBackwardCase(d, c), gateForwardCase(d, n, kind), gateBackwardCase(d, n, kind),
		pagedConvCase(d, r.sequences(1, 1, r.size(1, 200)), c.plain, c.bias), pagedDeltaCase(d, r.sequences(r.size(1, 3), r.size(1, 3), 16*r.size(1, 5)), s.doc)}
}

// sequences are some that have up to two blocks of positions behind them and as many rows to
// come: at most four of four blocks, as slotsOf needs.
func (r drawer) sequences(groups, heads, d int64) pagedShape {
	s := pagedShape{groups: groups, heads: heads, d: d}
	for range r.size(1, 4) {
		s.sequences = append(s.sequences, [2]int64{r.size(0, 2*device.PagedBlock), r.size(1, 2*device.PagedBlock)})
	}
	return s
}

// deltaGradients are of convolution, delta rule and gates, over a chunk's end and documents.
func deltaGradients(g *gradient) {
	convGradients(g, 0)
	convGradients(g, 1)
	x, gate, w := g.in(3, 4), g.in(3, 4), g.in(3, 4)
	for kind := range int32(3) {
		silu, plain := kind&1, kind>>1
		y, dx, dgate := g.out(3, 4), g.out(3, 4), g.out(3, 4)
		g.Dev.GateBackward(device.GateBackwardArgs{DX: dx, DG: dgate, DY: w, X: x, G: gate, Silu: silu, Plain: plain})
		loss := func() float64 {
			g.Dev.GateForward(device.GateForwardArgs{Y: y, X: x, G: gate, Silu: silu, Plain: plain})
			return g.loss(w, y)
		}
		g.check("gated", x, dx, loss)
		g.check("gate", gate, dgate, loss)
	}
	for _, doc := range []bool{false, true} {
		ruleGradients(g, deltaShape{batch: 2, s: 68, keyHeads: 2, heads: 4, dk: 3, dv: 2, doc: doc})
		ruleGradients(g, deltaShape{batch: 2, s: 68, keyHeads: 2, heads: 4, dk: 3, dv: 2, doc: doc, space: true, least: 0.4, most: 1.5})
	}
}

func convGradients(g *gradient, plain int32) {
	const batch, s, n = 2, 7, 3
	x, taps, bias, w := g.in(batch*s, n), g.in(n, 4), g.in(n), g.in(batch*s, n)
	y, dx, dw, dbias := g.out(batch*s, n), g.out(batch*s, n), g.zero(n, 4), g.zero(n)
	docStart := g.docStart(batch, s, true)
	g.Dev.CausalConvBackward(device.CausalConvBackwardArgs{DX: dx, DW: dw, DBias: dbias, DY: w, X: x, W: taps, Bias: bias, DocStart: docStart, Batch: batch, Plain: plain})
	loss := func() float64 {
		g.Dev.CausalConvForward(device.CausalConvForwardArgs{Y: y, X: x, W: taps, Bias: bias, DocStart: docStart, Batch: batch, Plain: plain})
		return g.loss(w, y)
	}
	g.check("convolved", x, dx, loss)
	g.check("taps", taps, dw, loss)
	g.check("bias", bias, dbias, loss)
}

func ruleGradients(g *gradient, s deltaShape) {
	rows := s.batch * s.s
	f := device.DeltaRuleForwardArgs{Batch: int32(s.batch), O: g.out(rows, s.heads, s.dv), Q: g.in(rows, s.keyHeads, s.dk), K: g.in(rows, s.keyHeads, s.dk), V: g.in(rows, s.heads, s.dv),
		A: g.in(rows, s.heads), ALog: g.Scaled("", device.F64, -2, 0.5, s.heads), DtBias: g.in(s.heads), States: g.out(s.states()...), DocStart: g.docStart(s.batch, s.s, s.doc), DtMin: s.least, DtMax: s.most}
	if s.space {
		f.StateSpace, f.Skip = 1, g.in(s.heads)
	} else {
		f.B = g.in(rows, s.heads)
	}
	w := g.in(rows, s.heads, s.dv)
	loss := func() float64 {
		g.Dev.DeltaRuleForward(f)
		return g.loss(w, f.O)
	}
	loss()
	a := device.DeltaRuleBackwardArgs{Forward: f, DO: w, DQ: g.out(f.Q.Dims()...), DK: g.out(f.K.Dims()...), DV: g.out(f.V.Dims()...), DA: g.out(f.A.Dims()...),
		DALog: g.zero(s.heads), DDtBias: g.zero(s.heads)}
	if s.space {
		a.DSkip = g.zero(s.heads)
	} else {
		a.DB = g.out(f.B.Dims()...)
	}
	g.Dev.DeltaRuleBackward(a)
	g.check("q", f.Q, a.DQ, loss)
	g.check("k", f.K, a.DK, loss)
	g.check("v", f.V, a.DV, loss)
	g.check("a", f.A, a.DA, loss)
	if s.space {
		g.check("skip", f.Skip, a.DSkip, loss)
	} else {
		g.check("b", f.B, a.DB, loss)
	}
	g.check("A_log", f.ALog, a.DALog, loss)
	g.check("dt_bias", f.DtBias, a.DDtBias, loss)
}
