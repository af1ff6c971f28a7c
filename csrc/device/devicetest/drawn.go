package devicetest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"monotron/csrc/device"
	"monotron/csrc/device/activations"
	"monotron/csrc/ref"
	"monotron/internal/drawn"
)

// drawer draws the shapes and options of cases.
type drawer struct{ *rand.Rand }

// Drawn is cases of every op whose shapes and options are drawn: those of the table were
// chosen by whoever wrote the kernels. Every round draws each kind of call once.
func Drawn(seed uint64, rounds int) []Case {
	r := drawer{rand.New(rand.NewPCG(seed, 0))}
	var all []Case
	for range rounds {
		for _, draw := range []func() []Case{
			r.matmuls, r.lowRanks, r.norms, r.activations, r.ropes, r.attentions, r.paged, r.embeddings, r.losses, r.samples, r.dropouts, r.elementwise, r.sums,
			r.exact, r.optimizers, r.muon, r.fp8, r.routers, r.choices, r.rows, r.groups, r.parts, r.delta,
		} {
			for _, c := range draw() {
				c.Name = fmt.Sprintf("#%d.%d %s", seed, len(all), c.Name) // its inputs come from the name
				all = append(all, c)
			}
		}
	}
	return all
}

// DrawnValues compares drawn cases with ref: DRAWN rounds of them (else a few), from SEED.
func DrawnValues(t *testing.T, dev *device.Device) {
	rounds, seed := 4, drawn.Seed(1)
	if testing.Short() {
		rounds = 1
	}
	if text := os.Getenv("DRAWN"); text != "" {
		rounds, _ = strconv.Atoi(text)
	}
	t.Logf("%d rounds of SEED %d", rounds, seed)
	oracle := ref.Open()
	defer oracle.Close()
	eachOf(t, Drawn(seed, rounds), func(t *testing.T, c Case) { compareWithRef(t, c, dev, oracle) })
}

// odd are sizes about which kernels change: none, one, packs of 16 bytes, warps, tiles, blocks.
var odd = []int64{0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513, 1023, 1025, 2049}

// size is from least to most, mostly an odd one.
func (r drawer) size(least, most int64) int64 {
	if r.IntN(4) == 0 {
		return least + r.Int64N(most-least+1)
	}
	for {
		if n := odd[r.IntN(len(odd))]; n >= least && n <= most {
			return n
		}
	}
}

// rowCount is 0 once in a while.
func (r drawer) rowCount(most int64) int64 {
	if r.IntN(12) == 0 {
		return 0
	}
	return r.size(1, most)
}

func (r drawer) yes(of int) bool     { return r.IntN(of) == 0 }
func (r drawer) dtype() device.DType { return valueTypes[r.IntN(len(valueTypes))] }
func pick[T any](r drawer, of []T) T { return of[r.IntN(len(of))] }
func (r drawer) pad() int64          { return pick(r, []int64{0, 0, 1, 3, 8}) }

func (r drawer) matmuls() []Case {
	o := pick(r, matmulVariants)
	o.strided = o.strided != r.yes(4)
	for {
		m, n, k := r.rowCount(257), r.size(1, 257), r.size(1, 1100)
		if m*n*k <= 1<<20 {
			return []Case{matmulCase(r.dtype(), m, n, k, o)}
		}
	}
}

func (r drawer) lowRanks() []Case {
	s := lowRankShape{r.rowCount(129), r.size(1, 257), r.size(1, 33), r.size(1, 4), r.size(1, 129)}
	o := lowRankOptions{product: r.yes(3), transB: !r.yes(3), strided: r.yes(3), wideY: r.yes(3)}
	o.keep = !o.product && r.yes(3)
	return []Case{lowRankCase(r.dtype(), s, o)}
}

func (r drawer) norms() []Case {
	var cases []Case
	for _, back := range []bool{false, true} {
		shape, o := []int64{r.rowCount(65), r.size(1, 2049)}, pick(r, normForwards)
		if r.yes(2) {
			shape, o.heads = []int64{r.rowCount(33), r.size(1, 5), r.size(1, 257)}, r.yes(2)
		}
		if !back {
			cases = append(cases, normForwardCase(r.dtype(), shape, o))
			continue
		}
		residual := pick(r, normBackwards)
		residual.heads = o.heads
		if shape[len(shape)-1] < 3 { // a LayerNorm's rstd may be 316 there, and the tolerance is for one about 1
			residual.kind = device.RMSNormKind
		}
		cases = append(cases, normBackwardCase(r.dtype(), shape, residual))
	}
	return cases
}

// parts are scales, caps and sinks.
func (r drawer) parts() []Case {
	d, n := r.dtype(), r.rowCount(2049)
	wide := pick(r, []device.DType{d, device.F32})
	s := square(r.size(1, 3), r.size(1, 129), r.size(1, 3), r.size(1, 4), r.size(1, 129))
	return []Case{scaleCase(d, n, r.yes(2)), softCapCase(d, n), softCapBackwardCase(d, wide, n), sinkCase(d, s), sinkBackwardCase(d, s)}
}

func (r drawer) activations() []Case {
	kind := device.Activation(r.IntN(int(activations.Activations)))
	s, weighted := activationShape{r.rowCount(65), r.size(1, 1025), r.pad()}, r.yes(2)
	return []Case{activationForwardCase(r.dtype(), kind, s, weighted), activationBackwardCase(r.dtype(), kind, s, weighted, s.pad == 0 && r.yes(3))}
}

func (r drawer) ropes() []Case {
	s := ropeShape{tokens: r.rowCount(129), groups: r.size(1, 3), heads: r.size(1, 5), d: r.size(2, 257)}
	s.rot = 2 * r.size(1, s.d/2)
	return []Case{ropeCase(r.dtype(), s, r.yes(2), r.yes(2))}
}

// attentionShape is square, of some queries behind cached keys, or, of a part, of keys of which
// queries may see all or none.
func (r drawer) attentionShape(part bool) attentionShape {
	for {
		s := square(r.size(1, 3), r.size(1, 257), r.size(1, 3), r.size(1, 4), r.size(1, 256))
		switch {
		case part:
			s.sk, s.offset = r.size(1, 257), r.size(0, 300)
		case r.yes(2):
			s.offset = r.size(0, 200)
			s.sk = s.offset + s.sq + r.size(0, 65)
		}
		if s.batch*s.groups*s.heads*s.sq*s.sk*s.d <= 1<<21 {
			return s
		}
	}
}

func (r drawer) attentions() []Case {
	var cases []Case
	for range 2 {
		o := attentionOptions{window: -1, alibi: r.yes(4), doc: r.yes(3), rate: pick(r, []float32{0, 0, 0.1, 0.5}), part: r.yes(3)}
		if r.yes(3) {
			o.window = int32(r.size(0, 129))
		}
		if o.part {
			o.keysAt = r.size(0, 65)
		}
		s, d := r.attentionShape(o.part), r.dtype()
		// A key that many queries attend to most adds up more probabilities, each rounded to bf16, than
		// attentionTol counts.
		if o.part && (o.alibi || s.sq > s.sk) {
			d = device.F32
		}
		o.alibi = o.alibi && s.sq <= s.sk // of a few keys that are far away, scores are large
		cases = append(cases, attentionForwardCase(r.dtype(), s, o), attentionBackwardCase(d, s, o))
	}
	return append(cases, attentionMergeCase(square(r.size(1, 3), r.size(1, 129), r.size(1, 3), r.size(1, 5), r.size(1, 257))))
}

func (r drawer) paged() []Case {
	for {
		s, blocks := pagedShape{groups: r.size(1, 3), heads: r.size(1, 5), d: r.size(1, 256), one: r.yes(3)}, int64(0)
		for range r.size(1, 5) {
			q := [2]int64{r.size(0, 129), r.size(1, 33)}
			s.sequences = append(s.sequences, q)
			blocks += (q[0] + q[1] + device.PagedBlock - 1) / device.PagedBlock
		}
		if blocks%7 == 0 { // as pagedCase wants it
			continue
		}
		o := attentionOptions{window: -1, alibi: r.yes(4)}
		if r.yes(2) {
			o.window = int32(r.size(0, 129))
		}
		return []Case{pagedCase(r.dtype(), s, o)}
	}
}

func (r drawer) embeddings() []Case {
	s := embeddingShape{tokens: r.rowCount(513), h: r.size(1, 513), rows: r.size(1, 65), start: r.size(0, 65)}
	s.ids = s.start + r.size(1, s.rows+17)
	return []Case{embeddingForwardCase(r.dtype(), s, r.pad(), r.yes(2)), embeddingBackwardCase(r.dtype(), s, r.pad())}
}

// losses are over vocabularies of 1 to 33 every other time.
func (r drawer) losses() []Case {
	s := lossShape{rows: r.rowCount(65), v: r.size(1, pick(r, []int64{33, 2049})), start: r.size(0, 65)}
	s.columns = r.size(0, s.v)
	s.labels = s.start + r.size(1, s.v+9)
	spread := pick(r, []float64{2, 1000})
	return []Case{
		crossEntropyStatsCase(s, spread, r.pad()), crossEntropyGradCase(r.dtype(), s, spread, r.yes(2), pick(r, []float64{0, 65536})), crossEntropyLossCase(r.rowCount(1025)),
	}
}

func (r drawer) samples() []Case {
	s, rule := sampleShape{rows: r.size(2, 17), v: r.size(1, pick(r, []int64{33, 2049}))}, pick(r, sampleRules)
	s.columns = r.size(1, s.v)
	return []Case{sampleCase(s, rule)}
}

func (r drawer) dropouts() []Case {
	positions, b, h, o := r.rowCount(65), r.size(1, 5), r.size(1, 513), pick(r, dropoutVariants)
	cases := []Case{dropoutAddCase(r.dtype(), positions, b, h, o)}
	o.bias, o.residual, o.alias, o.pad = false, false, "", r.pad()
	return append(cases, dropoutBackwardCase(r.dtype(), positions, b, h, o))
}

func (r drawer) elementwise() []Case {
	all := []device.DType{device.F32, device.BF16, device.F16, device.F64, device.I32, device.I64, device.U16, device.U8}
	types := [3]device.DType{r.dtype(), r.dtype(), r.dtype()}
	shape := make([]int64, r.size(2, 4))
	for i := range shape {
		shape[i] = r.size(0, 33)
	}
	return []Case{
		columnSumCase(r.dtype(), r.rowCount(513), r.size(1, 257), r.pad(), leafRows{}), addCase(types, r.size(0, 2049), ""),
		copyCase(r.dtype(), r.dtype(), shape, pick(r, []string{"plain", "gather", "scatter", "transpose", "exchange"})),
		fillCase(pick(r, all), r.size(0, 2049), float64(r.IntN(100))), uniformCase(r.size(0, 2049)),
	}
}

func (r drawer) sums() []Case {
	return []Case{
		gradStatsCase(pick(r, []device.DType{device.F32, device.BF16, device.F16, device.F64}), r.size(0, 2049), r.yes(2)), weightedSumCase(r.size(0, 2049), r.Int64N(2)*30),
		gradScaleCase(r.Float64()*1000, float64(r.IntN(2)*r.IntN(9)), float64(r.IntN(4)-1), float64(int64(1)<<r.IntN(20)), float32(r.IntN(3))),
	}
}

func (r drawer) exact() []Case {
	s := treeShape{r.rowCount(130), r.size(1, 130), 0, int64(1) << r.IntN(4), r.Int64N(3)}
	s.k = s.leaves * max(1, s.stretches) * r.size(1, 300)
	return []Case{gridAddCase(r.size(0, 2049), r.size(1, 4), r.yes(2)), exactSquaresCase(r.size(0, 2049)), treeCase(r.dtype(), s, r.yes(2))}
}

func (r drawer) optimizers() []Case {
	o := optimizerOptions{model: r.dtype(), none: r.yes(3), skip: r.yes(5), cut: r.yes(2)}
	cases := []Case{adamWCase(r.size(0, 2049), o), adamW8Case(r.size(0, 2049), o), scheduleFreeCase(r.size(0, 2049), o), blendCase(r.size(0, 2049), r.dtype()), lionCase(r.size(0, 2049), o)}
	o.momentum = pick(r, []float32{0, 0.9})
	return append(cases, sgdCase(r.size(0, 2049), o))
}

func (r drawer) muon() []Case {
	o := optimizerOptions{model: r.dtype(), none: r.yes(3), skip: r.yes(5)}
	return []Case{momentumCase(r.size(0, 2049), r.yes(2), r.yes(5)), normuonCase(r.size(1, 129), r.size(1, 129), r.yes(5)), adamuonCase(r.size(0, 2049), r.yes(5)), normalizeCase(r.dtype(), r.size(0, 2049), pick(r, []float64{0, 2.5})),
		polynomialCase(r.dtype(), r.size(0, 129), pick(r, []float32{0, 0.3})), followCase(r.size(0, 2049), o)}
}

func (r drawer) fp8() []Case {
	d, format := r.dtype(), int32(r.IntN(2))
	out := pick(r, []device.DType{d, device.F32})
	shape := func(blocks ...[2]int64) [4]int64 {
		b := pick(r, blocks)
		return [4]int64{r.size(0, 300), r.size(1, 300), b[0], b[1]}
	}
	return []Case{fp8Case(d, format, device.ScaleBelow, shape([2]int64{1, 128}, [2]int64{128, 1}, [2]int64{128, 128}), r.pad()),
		fp8Case(d, format, device.ScaleE8M0, shape([2]int64{1, 32}, [2]int64{32, 1}), r.pad()), maxAbsCase(d, r.size(0, 300), r.size(1, 300), r.pad(), r.yes(2)),
		tensorFP8Case(d, out, format, r.size(0, 300), r.size(1, 300), r.pad()), nvfp4Case(d, out, shape([2]int64{1, 16}, [2]int64{16, 1}, [2]int64{16, 16}), r.pad())}
}

func (r drawer) routerShape(tokens int64) routerShape {
	s := routerShape{tokens: tokens, experts: r.size(1, 129)}
	s.k = r.size(1, min(s.experts, 9))
	return s
}

// routers: a rule that orders other than by the logits themselves is asked of bf16 and f16
// alone, whose logits lie farther apart than f32 rounds.
func (r drawer) routers() []Case {
	score, d := device.RouterScore(r.IntN(int(routerScores))), r.dtype()
	o := routerOptions{rule: plainRule(score), strided: r.yes(2), keys: d == device.F32 && score >= device.SigmoidScore}
	forward, samples := r.routerShape(r.rowCount(65)), r.size(1, 5)
	balanced := r.routerShape(samples * r.size(1, 33))
	return []Case{
		routerForwardCase(d, forward, o), routerBackwardCase(r.dtype(), r.routerShape(r.rowCount(129)), o), balanceCase(r.dtype(), balanced, score, samples),
		balanceGradientCase(r.dtype(), balanced, score, samples), routerZCase(r.dtype(), r.routerShape(r.rowCount(129)), r.yes(2)),
		sinkhornCase(r.dtype(), r.routerShape(r.size(1, 65))),
	}
}

// choices leave experts without a token, where they are more than the tokens.
func (r drawer) choices() []Case {
	s := r.routerShape(r.rowCount(257))
	o := orderOptions{start: r.size(0, s.experts), width: r.size(1, 5), groups: r.size(1, 65), once: r.yes(2)}
	entries := r.size(1, 2*s.tokens*s.k+9)
	return []Case{
		routerDropCase(s, r.size(0, 33), r.yes(2), r.yes(2)), orderCase(s, o), placeChoicesCase(pick(r, []device.DType{device.F32, device.I32}), s.tokens, s.k, entries, r.yes(2)),
	}
}

func (r drawer) rows() []Case {
	rows, n := r.rowCount(129), r.size(1, 513)
	return []Case{
		gatherCase(r.dtype(), rows, n, r.pad()), combineCase(r.dtype(), rows, n, r.size(1, 9), r.pad()), scaleRowsCase(r.dtype(), rows, n, r.pad(), r.yes(2)), rowDotsCase(r.dtype(), rows, n, r.pad()),
	}
}

// groups have no row every third time.
func (r drawer) groups() []Case {
	g := grouping{rest: r.size(0, 5)}
	for range r.size(1, 9) {
		g.rows = append(g.rows, min(1, r.Int64N(3))*r.size(0, 65))
	}
	n, c := r.size(1, 129), r.size(1, 129)
	if g.total()+g.rest == 0 {
		g.rest = 1
	}
	return []Case{groupedMatmulCase(r.dtype(), g, n, c, pick(r, groupedVariants)), groupedSumCase(r.dtype(), g, n, r.pad())}
}
