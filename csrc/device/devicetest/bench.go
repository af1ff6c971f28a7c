package devicetest

import (
	"testing"

	"monotron/csrc/device"
	"monotron/csrc/device/activations"
	"monotron/csrc/ref"
)

// GPT-2 124M, micro-batch 4, sequence 512.
const (
	benchBatch  = 4
	benchTokens = 512 * benchBatch
	benchHidden = 768
	benchFFN    = 4 * benchHidden
	benchVocab  = 50304
	benchChunk  = 256 // rows of logits that exist at a time
)

// Bench times each op at the shapes of one GPT-2 124M micro-batch of 4 x 512
// tokens. GB/s counts what an op must read and write at least, GFLOP/s the
// formula of its Work; where an op has both, both are shown.
func Bench(b *testing.B, dev *device.Device) {
	oracle := ref.Open()
	defer oracle.Close()
	for _, d := range []device.DType{device.F32, device.BF16} {
		for _, c := range benchCases(d) {
			b.Run(c.Op.String()+"/"+c.Name, func(b *testing.B) { benchCase(b, c, dev, oracle) })
		}
	}
}

func benchCase(b *testing.B, c Case, dev, oracle *device.Device) {
	e := newEnv(dev, oracle, c.Name)
	defer e.scope.Release()
	call := c.Setup(e)
	if e.refused != nil && e.refused != errNotAsked {
		b.Logf("not by the vendor's attention: %v", e.refused)
	}
	call() // pages and caches
	if err := dev.Sync(); err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	for range b.N {
		call()
	}
	if err := dev.Sync(); err != nil {
		b.Fatal(err)
	}
	each := b.Elapsed().Seconds() / float64(b.N) * 1e9
	b.ReportMetric(c.Work.Bytes/each, "GB/s")
	if c.Work.FLOPs > 0 {
		b.ReportMetric(c.Work.FLOPs/each, "GFLOP/s")
	}
}

func benchCases(d device.DType) []Case {
	// Shapes of GPT-2 124M: 768 channels, 12 heads of 64.
	forward, gelu := matmulOptions{transB: true, bias: true}, matmulOptions{transB: true, bias: true, epilogue: device.GeluTanhEpilogue}
	weightGrad := matmulOptions{transA: true, accumulate: true, wideC: true}
	heads := square(benchBatch, benchTokens/benchBatch, 12, 1, 64)
	table := embeddingShape{benchTokens, benchHidden, benchVocab, 0, 50257}
	logits := lossShape{benchChunk, benchVocab, 50257, 0, 50257}
	tokens, queries := []int64{benchTokens, benchHidden}, []int64{benchTokens, 12, 64}
	drop := dropoutOptions{rate: 0.1, bias: true, residual: true}
	// In the order of a layer: products, norms, RoPE, attention, then the ends of the model and the update.
	cases := []Case{
		matmulCase(d, benchTokens, 3*benchHidden, benchHidden, forward), matmulCase(d, benchTokens, benchHidden, benchHidden, forward),
		matmulCase(d, benchTokens, benchFFN, benchHidden, gelu), matmulCase(d, benchTokens, benchHidden, benchFFN, forward),
		matmulCase(d, benchTokens, benchHidden, benchFFN, matmulOptions{}), matmulCase(d, benchFFN, benchHidden, benchTokens, weightGrad),
		matmulCase(d, benchChunk, benchVocab, benchHidden, matmulOptions{transB: true, wideC: true}),
		matmulCase(d, benchVocab, benchHidden, benchChunk, weightGrad),
		// An adapter of rank 16 on the MLP's first layer: in training, of one token in generation, and its gradient of the input.
		lowRankCase(d, lowRankShape{benchTokens, benchHidden, 16, 1, benchFFN}, lowRankOptions{transB: true}),
		lowRankCase(d, lowRankShape{1, benchHidden, 16, 1, benchFFN}, lowRankOptions{}),
		lowRankCase(d, lowRankShape{benchTokens, benchHidden, 16, 1, benchHidden}, lowRankOptions{product: true}),
		normForwardCase(d, tokens, normOptions{}), normBackwardCase(d, tokens, normOptions{residual: "own"}),
		normForwardCase(d, tokens, normOptions{kind: device.RMSNormKind}), normBackwardCase(d, tokens, normOptions{kind: device.RMSNormKind, residual: "own"}),
		normForwardCase(d, queries, normOptions{kind: device.RMSNormKind, heads: true}), normBackwardCase(d, queries, normOptions{kind: device.RMSNormKind, heads: true}),
		ropeCase(d, ropeShape{benchTokens, 12, 1, 64, 64}, false, false),
		attentionForwardCase(d, heads, attentionOptions{window: -1}), attentionBackwardCase(d, heads, attentionOptions{window: -1}),
		attentionForwardCase(d, heads, attentionOptions{window: -1, rate: 0.1}), attentionBackwardCase(d, heads, attentionOptions{window: -1, rate: 0.1}),
		embeddingForwardCase(d, table, 0, false), embeddingBackwardCase(d, table, 0),
		crossEntropyGradCase(d, logits, 2, false, 0),
		dropoutAddCase(d, benchTokens/benchBatch, benchBatch, benchHidden, drop), dropoutBackwardCase(d, benchTokens/benchBatch, benchBatch, benchHidden, dropoutOptions{rate: 0.1}),
		columnSumCase(d, benchTokens, benchFFN, 0, leafRows{}), addCase([3]device.DType{d, d, d}, benchTokens*benchHidden, ""),
		copyCase(d, device.F32, tokens, "plain"), fillCase(d, benchTokens*benchHidden, 0), gradStatsCase(d, benchFFN*benchHidden, false),
		adamWCase(benchFFN*benchHidden, optimizerOptions{model: d}), sgdCase(benchFFN*benchHidden, optimizerOptions{model: d, momentum: 0.9}),
	}
	wide := activationShape{rows: benchTokens, f: benchFFN}
	for kind := range activations.Activations {
		cases = append(cases, activationForwardCase(d, kind, wide, false), activationBackwardCase(d, kind, wide, false, false))
	}
	cases = append(cases, expertBenchCases(d)...)
	if d == device.F32 { // these have one type
		cases = append(cases, crossEntropyStatsCase(logits, 2, 0), crossEntropyLossCase(benchTokens), uniformCase(benchTokens*benchHidden),
			weightedSumCase(benchTokens, 0), gradScaleCase(100, 0, -1, 1, 1))
	}
	return cases
}

// expertBenchCases: a token goes to 2 of 4 experts, or to 8 of 64 of an eighth of the width.
func expertBenchCases(d device.DType) []Case {
	var cases []Case
	for _, s := range []struct{ experts, k, ffn int64 }{{4, 2, benchFFN}, {64, 8, benchFFN / 8}} {
		r, g := routerShape{benchTokens, s.experts, s.k}, even(s.k*benchTokens, s.experts)
		o := routerOptions{rule: plainRule(device.SoftmaxOfChosen)}
		cases = append(cases, routerForwardCase(d, r, o), routerBackwardCase(d, r, o), balanceCase(d, r, device.SoftmaxOfAll, 1), balanceGradientCase(d, r, device.SoftmaxOfAll, 1),
			routerZCase(d, r, true), gatherCase(d, s.k*benchTokens, benchHidden, 0), combineCase(d, benchTokens, benchHidden, s.k, 0),
			scaleRowsCase(d, s.k*benchTokens, s.ffn, 0, false), rowDotsCase(d, s.k*benchTokens, s.ffn, 0), groupedSumCase(d, g, s.ffn, 0),
			groupedMatmulCase(d, g, benchHidden, s.ffn, matmulOptions{transB: true}), groupedMatmulCase(d, g, s.ffn, benchHidden, matmulOptions{transB: true}),
			groupedMatmulCase(d, g, s.ffn, benchHidden, matmulOptions{}), groupedMatmulCase(d, g, benchHidden, s.ffn, matmulOptions{}), groupedMatmulCase(d, g, s.ffn, benchHidden, matmulOptions{transA: true}),
			matmulCase(d, s.k*benchTokens, s.ffn, benchHidden, matmulOptions{transB: true}))
		if d == device.F32 {
			cases = append(cases, orderCase(r, orderOptions{0, 1, s.experts, false}), placeChoicesCase(d, benchTokens, s.k, s.k*benchTokens, false))
		}
	}
	return cases
}

// even gives each group about as many rows, none a multiple of a tile.
func even(rows, groups int64) (g grouping) {
	for i := range groups {
		g.rows = append(g.rows, rows/groups+3*(i%2*2-1))
	}
	return g
}
