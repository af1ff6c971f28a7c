package devicetest

import (
	"fmt"
	"math"

	"monotron/csrc/device"
	"monotron/csrc/device/activations"
)

// leafCases are ops of mixtures whose sums are cut into leaves.
func leafCases() []Case {
	var cases []Case
	for _, s := range []routerShape{{24, 5, 2}, {300, 13, 3}} {
		for _, o := range []orderOptions{{0, 1, s.experts, false}, {0, 3, 2, true}} {
			cases = append(cases, leafOrderCase(s, o, 4, 3), leafOrderCase(s, o, 2, 1))
		}
	}
	for _, d := range valueTypes {
		for _, g := range groupings {
			for _, s := range [][3]int64{{16, 7, 8}, {128, 65, 2}, {96, 400, 1}} {
				cases = append(cases, leafGroupedCase(d, g, s[0], s[1], s[2], 0), leafGroupedCase(d, g, s[0], s[1], s[2], 2), gridGroupedCase(d, g, s[0], s[1]))
			}
			cases = append(cases, gridGroupedSumCase(d, g, 5), gridGroupedSumCase(d, g, 300))
		}
		for _, s := range [][2]int64{{64, 8}, {520, 4}} {
			cases = append(cases, leafWeightsCase(d, activations.GeluTanh, s[0], s[1]), leafWeightsCase(d, activations.Swiglu, s[0], s[1]))
		}
		cases = append(cases, leafBalanceCase(d, routerShape{600, 13, 2}, device.SigmoidScore, 6), leafBalanceCase(d, routerShape{600, 13, 2}, device.SoftmaxOfAll, 1))
	}
	return cases
}

// leafOrderCase: tokens of `batch` samples, in chunks of `chunk` positions.
func leafOrderCase(s routerShape, o orderOptions, chunk, batch int64) Case {
	plain := orderCase(s, o)
	setup := func(e *Env) func() {
		a := orderArgs(e, s, o)
		a.Chunk, a.Batch = int32(chunk), int32(batch)
		return func() { e.Dev.ExpertOrder(a) }
	}
	return Case{plain.Op, plain.Name + fmt.Sprintf(" by leaves of %d rows of %d samples", chunk, batch), setup, plain.Work}
}

// leafGroupedCase: products whose sums are trees.
func leafGroupedCase(d device.DType, g grouping, k, c, leaves, stretches int64) Case {
	n, groups := g.total()+g.rest, int64(len(g.rows))
	setup := func(e *Env) func() {
		a := device.GroupedMatmulArgs{Offsets: e.offsets(g), TransB: 1, Leaves: int32(leaves), Stretches: int32(stretches)}
		a.A, a.B, a.C = e.In("A", d, n, k), e.In("B", d, groups, c, k), e.Out("C", tol(device.F32, k, math.Sqrt(float64(k))), device.F32, n, c)
		return func() { e.Dev.GroupedMatmul(a) }
	}
	work := Work{Bytes: float64(d.Size() * (n*(k+c) + groups*k*c)), FLOPs: 2 * float64(g.total()) * float64(k) * float64(c)}
	return Case{device.OpGroupedMatmul, fmt.Sprintf("%s %s of %d to %d of %d leaves in %d stretches", d, g, k, c, leaves, stretches), setup, work}
}

// numbered are the leaves of n rows, a few rows each.
func (e *Env) numbered(n int64) device.Tensor {
	leaf, left := 0.0, int64(0)
	return e.Make("Leaf", device.I32, func(int) float64 {
		if left == 0 {
			leaf, left = leaf+1, 1+e.below(9)
		}
		left--
		return leaf
	}, n)
}

// gridGroupedCase: gradients [m,c] of matrices. A leaf is rounded in f32 on a device, in f64 by the
// oracle, so sums are near, not equal.
func gridGroupedCase(d device.DType, g grouping, m, c int64) Case {
	n, groups, depth := g.total()+g.rest, int64(len(g.rows)), max(1, g.total())
	setup := func(e *Env) func() {
		a := device.GroupedMatmulArgs{TransA: 1, Offsets: e.offsets(g), Leaf: e.numbered(n), Grid: e.List("Grid", device.F64, 0x1p-30)}
		a.A, a.B = e.In("A", d, n, m), e.In("B", d, n, c)
		t := tol(device.F32, depth, math.Sqrt(float64(depth))+1)
		a.C = e.Changes(e.Make("C", device.F64, func(i int) float64 { return float64(i % 7) }, groups, m, c), t)
		a.Peak = e.Changes(e.List("Peak", device.F32, 0), t)
		return func() { e.Dev.GroupedMatmul(a) }
	}
	work := Work{Bytes: float64(d.Size()*n*(m+c) + 16*groups*m*c), FLOPs: 2 * float64(g.total()) * float64(m) * float64(c)}
	return Case{device.OpGroupedMatmul, fmt.Sprintf("%s %s to %dx%d of leaves", d, g, m, c), setup, work}
}

func gridGroupedSumCase(d device.DType, g grouping, n int64) Case {
	rows := g.total() + g.rest
	setup := func(e *Env) func() {
		a := device.GroupedSumArgs{X: e.In("X", d, rows, n), Offsets: e.offsets(g), Leaf: e.numbered(rows), Grid: e.List("Grid", device.F64, 0x1p-30)}
		t := tol(device.F32, rows, math.Sqrt(float64(rows))+1)
		a.Out = e.Changes(e.Make("Out", device.F64, func(i int) float64 { return float64(i % 7) }, int64(len(g.rows)), n), t)
		a.Peak = e.Changes(e.List("Peak", device.F32, 0), t)
		return func() { e.Dev.GroupedSum(a) }
	}
	return Case{device.OpGroupedSum, fmt.Sprintf("%s %s x %d of leaves", d, g, n), setup, Work{Bytes: float64(d.Size() * rows * n)}}
}

// leafWeightsCase: gradients of the weights of rows of f results, of each of `leaves` parts of a row.
func leafWeightsCase(d device.DType, kind device.Activation, f, leaves int64) Case {
	const rows = 17
	c := activationBackwardCase(d, kind, activationShape{rows, f, 0}, true, false)
	c.Name += fmt.Sprintf(" of %d leaves", leaves)
	c.Setup = func(e *Env) func() {
		a := device.ActivationBackwardArgs{Kind: kind, X: e.Scaled("X", d, 0, activationSpread, rows, gates(kind)*f), DY: e.In("DY", d, rows, f), Weights: e.In("Weights", device.F32, rows)}
		a.DX, a.DWeights = e.Out("DX", activationTol(d, true), d, rows, gates(kind)*f), e.Out("DWeights", weightsTol(d, f/leaves), device.F32, leaves, rows)
		return func() { e.Dev.ActivationBackward(a) }
	}
	return c
}

// leafBalanceCase: probabilities are rounded to the grid on either side of a border.
func leafBalanceCase(d device.DType, s routerShape, score device.RouterScore, samples int64) Case {
	const bits = 40
	setup := func(e *Env) func() {
		a := device.RouterBalanceArgs{Logits: e.logits(d, s, routerOptions{}), Samples: samples, Score: score, K: int32(s.k), Bits: bits}
		a.Probs, a.Counts = e.Out("Probs", Tol{Abs: float64(s.tokens) * math.Ldexp(1, -bits)}, device.F64, samples, s.experts), e.Out("Counts", exact, device.F32, samples, s.experts)
		return func() { e.Dev.RouterBalance(a) }
	}
	return Case{device.OpRouterBalance, balanceName(d, s, score, samples) + " of leaves", setup, Work{Bytes: float64(s.tokens * s.experts * d.Size())}}
}
