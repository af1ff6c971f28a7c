package devicetest

import (
	"fmt"
	"math"

	"monotron/csrc/device"
)

// exactCases are sums that have no order: every device must give the oracle's bits.
func exactCases() []Case {
	var cases []Case
	for _, n := range []int64{0, 1, 3, 17, 1001, 100003} {
		cases = append(cases, gridAddCase(n, 1, true), gridAddCase(n, 1, false), exactSquaresCase(n))
	}
	cases = append(cases, gridAddCase(17, 5, true), gridAddCase(70000, 3, true), gridAddCase(1001, 4, false))
	for _, d := range valueTypes {
		for _, l := range []leafRows{{1, 1}, {4, 3}, {12, 2}} {
			cases = append(cases, columnSumCase(d, 24, 65, 3, l), columnSumCase(d, 24, 1000, 0, l))
		}
		for _, s := range []embeddingShape{{1, 1, 1, 0, 1}, {0, 8, 5, 0, 5}, {65, 17, 15, 20, 60}, {300, 1000, 40, 10, 60}, {2065, 132, 7, 0, 7}} {
			cases = append(cases, gridEmbeddingCase(d, s))
		}
		for _, s := range []treeShape{{1, 1, 8, 8, 1}, {3, 5, 32, 4, 0}, {17, 33, 48, 4, 2}, {65, 129, 512, 8, 1}, {130, 400, 96, 2, 0}, {64, 70, 2112, 8, 2}, {9, 40, 600, 1, 1}} {
			cases = append(cases, treeCase(d, s, false), treeCase(d, s, true))
		}
		for _, s := range []gridShape{{1, 1, 1, 1, 1}, {3, 5, 2, 4, 1}, {17, 33, 3, 8, 2}, {65, 129, 1, 300, 2}, {300, 500, 2, 64, 3}, {130, 1000, 4, 16, 8}} {
			cases = append(cases, gridMatmulCase(d, s))
		}
	}
	return cases
}

// gridAddCase adds numbers of which some are small against the grid; without values in f32 it
// adds sums that lie on it.
func gridAddCase(n, rows int64, f32 bool) Case {
	return Case{device.OpGridAdd, fmt.Sprintf("%d rows of %d, f32 %v", rows, n, f32), func(e *Env) func() {
		const grid = 0x1p-20
		a := device.GridAddArgs{Grid: e.List("Grid", device.F64, grid)}
		onGrid := func(int) float64 { return math.Round(e.unit()/grid) * grid }
		a.Sum = e.Changes(e.Make("Sum", device.F64, onGrid, n), exact)
		if f32 {
			a.X = e.Make("X", device.F32, func(i int) float64 { return math.Ldexp(e.unit(), -i%30) }, rows*n)
			a.Peak = e.Changes(e.List("Peak", device.F32, 0.5), exact)
		} else {
			a.X, a.Grid = e.Make("X", device.F64, onGrid, rows*n), device.Tensor{}
		}
		return func() { e.Dev.GridAdd(a) }
	}, Work{Bytes: float64((16 + 4*rows) * n)}}
}

func exactSquaresCase(n int64) Case {
	return Case{device.OpExactSquares, fmt.Sprint(n), func(e *Env) func() {
		a := device.ExactSquaresArgs{Out: e.Changes(e.List("Out", device.F64, 0, 0, 0, 0), exact), Scale: 0.25, Bits: 52 - 18}
		a.X = e.Make("X", device.F32, func(i int) float64 { return math.Ldexp(e.unit(), -i%40-i/2048%4*20) }, n) // squares of some stretches have no first limbs
		return func() { e.Dev.ExactSquares(a) }
	}, Work{Bytes: float64(4 * n)}}
}

func gridEmbeddingCase(d device.DType, s embeddingShape) Case {
	setup := func(e *Env) func() {
		a := device.EmbeddingBackwardArgs{Start: s.start, IDs: e.Ints("ids", s.ids, s.tokens), Grid: e.List("Grid", device.F64, 0x1p-24)}
		a.DOut = e.In("DOut", d, s.tokens, s.h)
		a.DTable = e.Changes(e.Make("DTable", device.F64, func(i int) float64 { return float64(i % 5) }, s.rows, s.h), exact)
		a.Peak = e.Changes(e.List("Peak", device.F32, 0), exact)
		return func() { e.Dev.EmbeddingBackward(a) }
	}
	return Case{device.OpEmbeddingBackward, embeddingName(d, s, 0) + " on a grid", setup, Work{Bytes: float64(s.tokens * s.h * (d.Size() + 16))}}
}

// treeShape is a product whose sums are a tree.
type treeShape struct{ m, n, k, leaves, stretches int64 }

func treeCase(d device.DType, s treeShape, wide bool) Case {
	dc := d
	if wide {
		dc = device.F32
	}
	setup := func(e *Env) func() {
		a := device.MatmulArgs{TransB: 1, Leaves: int32(s.leaves), Stretches: int32(s.stretches)}
		a.A, a.B = e.In("A", d, s.m, s.k), e.In("B", d, s.n, s.k)
		a.C = e.Out("C", tol(dc, s.k, math.Sqrt(float64(s.k))), dc, s.m, s.n)
		return func() { e.Dev.Matmul(a) }
	}
	name := fmt.Sprintf("%s %dx%dx%d of %d leaves in %d stretches, f32 C %v", d, s.m, s.n, s.k, s.leaves, s.stretches, wide)
	return Case{device.OpMatmul, name, setup, Work{Bytes: float64(d.Size() * (s.m + s.n) * s.k), FLOPs: 2 * float64(s.m*s.n*s.k)}}
}

// gridShape is a product on a grid: m by n of chunks of `chunk` rows, `chunks` of each of `batch` samples.
type gridShape struct{ m, n, batch, chunk, chunks int64 }

// gridMatmulCase: a leaf is rounded in f32 on a device, in f64 by the oracle, so sums are near, not equal.
func gridMatmulCase(d device.DType, s gridShape) Case {
	k := s.batch * s.chunk * s.chunks
	setup := func(e *Env) func() {
		a := device.MatmulArgs{TransA: 1, Accumulate: 1, Chunk: int32(s.chunk), Batch: int32(s.batch), Grid: e.List("Grid", device.F64, 0x1p-30)}
		a.A, a.B = e.In("A", d, k, s.m), e.In("B", d, k, s.n)
		t := tol(device.F32, k, math.Sqrt(float64(k)))
		a.C = e.Changes(e.Make("C", device.F64, func(i int) float64 { return float64(i % 7) }, s.m, s.n), t)
		a.Peak = e.Changes(e.List("Peak", device.F32, 0), t)
		return func() { e.Dev.Matmul(a) }
	}
	name := fmt.Sprintf("%s %dx%d of leaves of %d rows, %d of %d samples", d, s.m, s.n, s.chunk, s.chunks, s.batch)
	return Case{device.OpMatmul, name, setup, Work{Bytes: float64(d.Size()*(s.m+s.n)*k + 16*s.m*s.n), FLOPs: 2 * float64(s.m*s.n*k)}}
}
