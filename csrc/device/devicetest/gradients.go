package devicetest

import (
	"math"
	"testing"

	"monotron/csrc/device"
	"monotron/csrc/device/activations"
	"monotron/csrc/ref"
)

// Gradients checks the oracle's backward ops. All tensors are F64; the loss is
// Σ w·out for random w, and each gradient must be what central differences of
// the forward op give. A step of 1e-5 leaves an error near 1e-10 from the third
// derivative and 1e-16/1e-5 = 1e-11 from rounding, both relative to a loss of
// some tens: 1e-7 is far from either and from any wrong term.
func Gradients(t *testing.T) {
	for name, check := range map[string]func(g *gradient){
		"matmul": matmulGradient, "norm": normGradients, "activation": activationGradients, "rope": ropeGradients, "attention": attentionGradients,
		"embedding": embeddingGradient, "cross entropy": crossEntropyGradient, "dropout": dropoutGradient,
		"router": routerGradients, "router losses": routerLossGradients, "grouped matmul": groupedMatmulGradient, "expert rows": expertRowGradients, "parts": partGradients, "delta rule": deltaGradients,
	} {
		t.Run(name, func(t *testing.T) {
			oracle := ref.Open()
			defer oracle.Close()
			check(&gradient{newEnv(oracle, oracle, name), t})
		})
	}
}

// gradient is an Env whose tensors are all F64.
type gradient struct {
	*Env
	t *testing.T
}

func (g *gradient) in(shape ...int64) device.Tensor  { return g.In("", device.F64, shape...) }
func (g *gradient) out(shape ...int64) device.Tensor { return g.Out("", exact, device.F64, shape...) }

func (g *gradient) zero(shape ...int64) device.Tensor {
	return g.Make("", device.F64, func(int) float64 { return 0 }, shape...)
}

// loss is Σ w·out.
func (g *gradient) loss(w, out device.Tensor) float64 {
	total := 0.0
	v := g.Values(out)
	for i, x := range g.Values(w) {
		total += x * v[i]
	}
	return total
}

// check compares dx with the differences of loss by each element of x.
func (g *gradient) check(name string, x, dx device.Tensor, loss func() float64) {
	g.t.Helper()
	const step = 1e-5
	at, got := g.Values(x), g.Values(dx)
	for i, v := range at {
		move := func(by float64) float64 {
			at[i] = v + by
			device.WriteSlice(g.Dev, x, at)
			at[i] = v
			return loss()
		}
		want := (move(step) - move(-step)) / (2 * step)
		if !(math.Abs(got[i]-want) <= 1e-7*(1+math.Abs(want))) {
			g.t.Errorf("%s %v: the gradient is %.12g, but finite differences give %.12g", name, indexOf(x, i), got[i], want)
		}
	}
	device.WriteSlice(g.Dev, x, at)
	if err := g.Dev.Sync(); err != nil {
		g.t.Fatal(err)
	}
}

// As mpu's linears use it: dA = dC·Bᵀ, dB += Aᵀ·dC, dbias += Σ rows, with dC
// through the epilogue's activation.
func matmulGradient(g *gradient) {
	const m, n, k = 3, 5, 4
	for epilogue, kind := range map[device.Epilogue]device.Activation{device.NoEpilogue: -1, device.GeluTanhEpilogue: activations.GeluTanh, device.GeluErfEpilogue: activations.GeluErf} {
		a := device.MatmulArgs{A: g.in(m, k), B: g.in(n, k), TransB: 1, Bias: g.in(n), C: g.out(m, n), Epilogue: epilogue}
		w := g.in(m, n)
		dc := w
		if epilogue != device.NoEpilogue {
			a.Aux, dc = g.out(m, n), g.out(m, n)
		}
		loss := func() float64 {
			g.Dev.Matmul(a)
			return g.loss(w, a.C)
		}
		loss()
		if epilogue != device.NoEpilogue {
			g.Dev.ActivationBackward(device.ActivationBackwardArgs{DX: dc, DY: w, X: a.Aux, Kind: kind})
		}
		da, db, dbias := g.out(m, k), g.zero(n, k), g.zero(n)
		g.Dev.Matmul(device.MatmulArgs{C: da, A: dc, B: a.B})
		g.Dev.Matmul(device.MatmulArgs{C: db, A: dc, B: a.A, TransA: 1, Accumulate: 1})
		g.Dev.ColumnSum(device.ColumnSumArgs{Out: dbias, X: dc})
		g.check("A", a.A, da, loss)
		g.check("B", a.B, db, loss)
		g.check("bias", a.Bias, dbias, loss)
	}
}

func normGradients(g *gradient) {
	const rows, h = 3, 7
	for _, o := range []normOptions{{}, {onePlus: true}, {kind: device.RMSNormKind}, {kind: device.RMSNormKind, onePlus: true}} {
		f := device.NormForwardArgs{X: g.in(rows, h), Y: g.out(rows, h), Gamma: g.in(h), Rstd: g.out(rows), Kind: o.kind, OnePlus: flag(o.onePlus), Eps: 0.01}
		w := g.in(rows, h)
		b := device.NormBackwardArgs{X: f.X, DX: g.out(rows, h), DY: w, Gamma: f.Gamma, DGamma: g.zero(h), Rstd: f.Rstd, Kind: o.kind, OnePlus: f.OnePlus, Residual: w}
		if o.kind == device.LayerNormKind {
			f.Mean, f.Beta, b.DBeta = g.out(rows), g.in(h), g.zero(h)
			b.Mean = f.Mean
		}
		loss := func() float64 { // x goes around the norm as well
			g.Dev.NormForward(f)
			return g.loss(w, f.Y) + g.loss(w, f.X)
		}
		loss()
		g.Dev.NormBackward(b)
		g.check(o.String()+" X", f.X, b.DX, loss)
		g.check(o.String()+" gamma", f.Gamma, b.DGamma, loss)
		if f.Beta.Given() {
			g.check(o.String()+" beta", f.Beta, b.DBeta, loss)
		}
	}
}

func activationGradients(g *gradient) {
	for kind := range activations.Activations {
		f := device.ActivationForwardArgs{X: g.in(4, 5*gates(kind)), Y: g.out(4, 5), Kind: kind}
		w, dx := g.in(4, 5), g.out(4, 5*gates(kind))
		g.Dev.ActivationBackward(device.ActivationBackwardArgs{DX: dx, DY: w, X: f.X, Kind: kind})
		g.check(kind.String(), f.X, dx, func() float64 {
			g.Dev.ActivationForward(f)
			return g.loss(w, f.Y)
		})
	}
	weightedActivationGradients(g)
}

func weightedActivationGradients(g *gradient) {
	for kind := range activations.Activations {
		f := device.ActivationForwardArgs{X: g.in(4, 5*gates(kind)), Y: g.out(4, 5), Weights: g.in(4), Kind: kind}
		w, dx, dweights := g.in(4, 5), g.out(4, 5*gates(kind)), g.out(4)
		loss := func() float64 {
			g.Dev.ActivationForward(f)
			return g.loss(w, f.Y)
		}
		g.Dev.ActivationBackward(device.ActivationBackwardArgs{DX: dx, DY: w, X: f.X, Weights: f.Weights, DWeights: dweights, Kind: kind})
		g.check(kind.String()+" weighted", f.X, dx, loss)
		g.check(kind.String()+" weights", f.Weights, dweights, loss)
	}
}

func ropeGradients(g *gradient) {
	for _, interleaved := range []int32{0, 1} {
		shape := []int64{3, 2, 1, 6}
		x, turned, w, dx := g.in(shape...), g.out(shape...), g.in(shape...), g.out(shape...)
		angle := func(i int) float64 { return float64(i) * 0.7 }
		a := device.RopeArgs{X: turned, RotDims: 4, Interleaved: interleaved, Positions: g.Ints("", 5, 3)}
		a.Cos = g.Make("", device.F64, func(i int) float64 { return math.Cos(angle(i)) }, 5, 2)
		a.Sin = g.Make("", device.F64, func(i int) float64 { return math.Sin(angle(i)) }, 5, 2)
		back := a
		back.X, back.Inverse = dx, 1
		g.Dev.Copy(dx, w)
		g.Dev.Rope(back)
		g.check("X", x, dx, func() float64 {
			g.Dev.Copy(turned, x)
			g.Dev.Rope(a)
			return g.loss(w, turned)
		})
	}
}

func attentionGradients(g *gradient) {
	for _, c := range []struct {
		attentionShape
		attentionOptions
	}{
		// Causal, window, ALiBi, documents, dropout, and combinations; a cache; caps; chunks with a table of biases.
		{square(2, 5, 1, 1, 3), attentionOptions{window: -1}},
		{square(1, 6, 2, 3, 2), attentionOptions{window: 2}},
		{square(1, 6, 1, 2, 3), attentionOptions{window: -1, alibi: true}},
		{square(2, 25, 1, 1, 2), attentionOptions{window: -1, doc: true}},
		{square(2, 6, 1, 2, 3), attentionOptions{window: -1, rate: 0.3}},
		{square(1, 25, 1, 2, 2), attentionOptions{window: 4, alibi: true, doc: true, rate: 0.4}},
		{attentionShape{2, 2, 7, 4, 1, 2, 3}, attentionOptions{window: -1, alibi: true}},
		{square(2, 6, 1, 2, 3), attentionOptions{window: -1, limit: 0.6}},
		{square(1, 6, 1, 2, 3), attentionOptions{window: 3, limit: 0.9, alibi: true, rate: 0.2}},
		{square(1, 7, 1, 2, 3), attentionOptions{window: -1, chunk: 3, table: true, limit: 0.9}},
	} {
		// Q: [sq·b, groups, heads, d]; K, V: [sk·b, groups, 1, d]; all f64, so that finite differences are precise.
		s, heads := c.attentionShape, c.groups*c.heads
		f := device.AttentionForwardArgs{Batch: int32(s.batch), QOffset: int32(s.offset), Window: c.window, Chunk: c.chunk, Scale: 0.5}
		if c.limit > 0 {
			f.Rule, f.Cap = device.CappedScores, c.limit
		}
		f.Q, f.O = g.in(s.sq*s.batch, s.groups, s.heads, s.d), g.out(s.sq*s.batch, s.groups, s.heads, s.d)
		f.K, f.V = g.in(s.sk*s.batch, s.groups, 1, s.d), g.in(s.sk*s.batch, s.groups, 1, s.d)
		f.LSE = g.out(s.batch, heads, s.sq)
		if c.doc {
			f.DocStart = g.documents(s, 0)
		}
		if c.alibi {
			f.Slopes = g.in(heads)
		}
		if c.table {
			f.Slopes = g.in(heads, s.sk)
		}
		f.Drop = g.dropout(c.rate, s.batch, int32(s.offset), 1)
		// loss = Σ w·O, of which the gradient by O is w.
		w := g.in(s.sq*s.batch, s.groups, s.heads, s.d)
		loss := func() float64 {
			g.Dev.AttentionForward(f)
			return g.loss(w, f.O)
		}
		loss()
		b := device.AttentionBackwardArgs{DQ: g.out(f.Q.Dims()...), DK: g.out(f.K.Dims()...), DV: g.out(f.V.Dims()...), DO: w, Forward: f}
		g.Dev.AttentionBackward(b)
		name := attentionName(device.F64, s, c.attentionOptions)
		g.check(name+" Q", f.Q, b.DQ, loss)
		g.check(name+" K", f.K, b.DK, loss)
		g.check(name+" V", f.V, b.DV, loss)
	}
}

func embeddingGradient(g *gradient) {
	f := device.EmbeddingForwardArgs{Table: g.in(4, 3), Out: g.out(9, 3), IDs: g.Ints("", 8, 9), Start: 2}
	w, d := g.in(9, 3), g.zero(4, 3)
	g.Dev.EmbeddingBackward(device.EmbeddingBackwardArgs{DTable: d, DOut: w, IDs: f.IDs, Start: 2})
	g.check("table", f.Table, d, func() float64 {
		g.Dev.EmbeddingForward(f)
		return g.loss(w, f.Out)
	})
}

// A shard of the vocabulary alone: labels outside it take no logit's part.
func crossEntropyGradient(g *gradient) {
	const rows, v, columns = 4, 9, 7
	s := device.CrossEntropyStatsArgs{Logits: g.in(rows, v), Labels: g.Ints("", 12, rows), Max: g.out(rows), Sum: g.out(rows), Target: g.out(rows), Start: 3, Columns: columns}
	l := device.CrossEntropyLossArgs{Loss: g.out(rows), Max: s.Max, Sum: s.Sum, Target: s.Target}
	w := g.in(rows)
	loss := func() float64 {
		g.Dev.CrossEntropyStats(s)
		g.Dev.CrossEntropyLoss(l)
		return 8 * g.loss(w, l.Loss)
	}
	loss()
	d := g.out(rows, v)
	g.Dev.CrossEntropyGrad(device.CrossEntropyGradArgs{D: d, Logits: s.Logits, Labels: s.Labels, Max: s.Max, Sum: s.Sum, Weight: w,
		Scale: g.List("", device.F64, 8), Start: 3, Columns: columns})
	g.check("logits", s.Logits, d, loss)
}

func dropoutGradient(g *gradient) {
	const positions, b, h = 3, 2, 5
	a := device.DropoutAddArgs{X: g.in(positions*b, h), Bias: g.in(h), Residual: g.in(positions*b, h), Out: g.out(positions*b, h), Drop: g.dropout(0.4, b, 3, 2)}
	w, dx, dbias := g.in(positions*b, h), g.out(positions*b, h), g.zero(h)
	g.Dev.DropoutBackward(device.DropoutBackwardArgs{DX: dx, DY: w, Drop: a.Drop})
	g.Dev.ColumnSum(device.ColumnSumArgs{Out: dbias, X: dx})
	loss := func() float64 {
		g.Dev.DropoutAdd(a)
		return g.loss(w, a.Out)
	}
	g.check("X", a.X, dx, loss)
	g.check("bias", a.Bias, dbias, loss)
	g.check("residual", a.Residual, w, loss)
}

// A step of the differences must change no choice: the gradient is of given choices.
func routerGradients(g *gradient) {
	for score := range routerScores {
		for _, s := range []routerShape{{4, 6, 3}, {3, 5, 1}} {
			f := device.RouterForwardArgs{Logits: g.in(s.tokens, s.experts), Rule: device.RouterRule{Score: score, Scaling: 2.5}}
			f.Weights, f.Experts = g.out(s.tokens, s.k), g.Out("", exact, device.I32, s.tokens, s.k)
			w := g.in(s.tokens, s.k)
			loss := func() float64 {
				g.Dev.RouterForward(f)
				return g.loss(w, f.Weights)
			}
			loss()
			b := device.RouterBackwardArgs{DLogits: g.out(s.tokens, s.experts), DWeights: w, Experts: f.Experts, Logits: f.Logits, Rule: f.Rule}
			g.Dev.RouterBackward(b)
			g.check(routerScoreNames[score], f.Logits, b.DLogits, loss)
		}
	}
}

// The losses' other factor, counts, is a constant.
func routerLossGradients(g *gradient) {
	const tokens, experts, samples, k, coefficient, scale = 6, 5, 2, 2, 0.3, 4.0
	x := g.in(tokens, experts)
	for score := range routerScores {
		counts, dx := g.in(samples, experts), g.zero(tokens, experts)
		f := device.RouterBalanceArgs{Probs: g.out(samples, experts), Counts: g.out(samples, experts), Logits: x, Samples: samples, Score: score, K: k}
		g.Dev.RouterBalance(device.RouterBalanceArgs{DLogits: dx, Counts: counts, Scale: g.List("", device.F64, scale), Logits: x, Samples: samples, Score: score, K: k, Coefficient: coefficient})
		g.check("balance "+routerScoreNames[score], x, dx, func() float64 {
			g.Dev.RouterBalance(f)
			return coefficient * scale * g.loss(counts, f.Probs)
		})
	}
	squares, ones, dx := g.out(tokens), g.Make("", device.F64, func(int) float64 { return 1 }, tokens), g.zero(tokens, experts)
	g.Dev.RouterZ(device.RouterZArgs{DLogits: dx, Scale: g.List("", device.F64, scale), Logits: x, Coefficient: coefficient})
	g.check("z", x, dx, func() float64 {
		g.Dev.RouterZ(device.RouterZArgs{Squares: squares, Logits: x})
		return coefficient * scale * g.loss(ones, squares)
	})
}

func groupedMatmulGradient(g *gradient) {
	const n, k, c = 6, 4, 3
	groups := grouping{[]int64{2, 0, 3}, 1}
	for transB := range int32(2) {
		a := device.GroupedMatmulArgs{A: g.in(n, k), B: g.in(append([]int64{3}, swap(transB != 0, k, c)...)...), Bias: g.in(3, c), C: g.zero(n, c), Offsets: g.offsets(groups), TransB: transB}
		w := g.in(n, c)
		loss := func() float64 {
			g.Dev.GroupedMatmul(a)
			return g.loss(w, a.C)
		}
		da, db, dbias := g.zero(n, k), g.zero(a.B.Dims()...), g.zero(3, c)
		g.Dev.GroupedMatmul(device.GroupedMatmulArgs{C: da, A: w, B: a.B, Offsets: a.Offsets, TransB: 1 - transB})
		left, right := a.A, w // dB[g] = Aᵀ·dC, or its transpose
		if transB != 0 {
			left, right = w, a.A
		}
		g.Dev.GroupedMatmul(device.GroupedMatmulArgs{C: db, A: left, B: right, Offsets: a.Offsets, TransA: 1})
		g.Dev.GroupedSum(device.GroupedSumArgs{Out: dbias, X: w, Offsets: a.Offsets})
		g.check("A", a.A, da, loss)
		g.check("B", a.B, db, loss)
		g.check("bias", a.Bias, dbias, loss)
	}
}

// Tokens go to slots and come back; a slot's row has a weight.
func expertRowGradients(g *gradient) {
	const tokens, h, k, entries = 3, 4, 2, 5
	slots := g.Make("", device.I32, func(i int) float64 { return []float64{4, 0, -1, 2, 1, 3}[i] }, tokens, k)
	rows := g.Make("", device.I32, func(i int) float64 { return []float64{0, 2, 1, 2, 0}[i] }, entries)
	x, weight, w := g.in(tokens, h), g.in(entries), g.in(tokens, h)
	placed, scaled, out := g.out(entries, h), g.out(entries, h), g.out(tokens, h)
	loss := func() float64 {
		g.Dev.GatherRows(placed, x, rows)
		g.Dev.ScaleRows(scaled, placed, weight)
		g.Dev.CombineRows(out, scaled, slots)
		return g.loss(w, out)
	}
	loss()
	dplaced, dweight, dx := g.out(entries, h), g.out(entries), g.out(tokens, h)
	g.Dev.GatherRows(dplaced, w, rows)
	g.Dev.RowDots(dweight, dplaced, placed)
	g.Dev.ScaleRows(dplaced, dplaced, weight)
	g.Dev.CombineRows(dx, dplaced, slots)
	g.check("X", x, dx, loss)
	g.check("weight", weight, dweight, loss)
}
