package devicetest

import (
	"fmt"
	"math"

	"monotron/csrc/device"
)

func statsCases() []Case {
	var cases []Case
	for _, d := range []device.DType{device.F32, device.BF16, device.F16, device.F64} {
		for _, n := range []int64{0, 1, 17, 1001, 300000} {
			cases = append(cases, gradStatsCase(d, n, false), gradStatsCase(d, n, true))
		}
		cases = append(cases, gradStatsOf(d, "zeros", 0, math.Copysign(0, -1), 1, 0), gradStatsOf(d, "inf", 1, math.Inf(1), 0, math.Inf(-1)),
			gradStatsOf(d, "nan", 1, math.NaN(), 0, math.Inf(1)))
	}
	cases = append(cases, gradStatsOf(device.F32, "large", 1e25, -1e30), gradStatsOf(device.F32, "small", 1e-25, -1e-30), gradStatsOf(device.BF16, "large", 1e25, -1e30))
	for _, n := range []int64{0, 1, 17, 1001, 100003} {
		cases = append(cases, weightedSumCase(n, 0), weightedSumCase(n, 30))
	}
	for _, c := range []struct{ squares, bad, others, scale, limit float64 }{
		{100, 0, -1, 1, 1}, {100, 0, -1, 1, 100}, {100, 0, -1, 65536, 1e-4}, {0, 0, -1, 1, 1}, {100, 0, -1, 2, 0}, {100, 3, -1, 2, 1}, {math.Inf(1), 1, -1, 8, 1}, {1e50, 0, -1, 1, 1},
		{100, 0, 0, 2, 1}, {100, 0, 2, 2, 1}, {100, 3, 0, 2, 1},
	} {
		cases = append(cases, gradScaleCase(c.squares, c.bad, c.others, c.scale, float32(c.limit)))
	}
	return cases
}

// Squares may be
// summed in f32 or f64, but must not overflow f32 (the cases large and small).
func gradStatsCase(d device.DType, n int64, cut bool) Case {
	name := fmt.Sprintf("%s %d", d, n)
	if cut {
		name += " in segments"
	}
	setup := func(e *Env) func() {
		x := e.Make("X", d, func(i int) float64 {
			if i%100 == 7 {
				return 0
			}
			return e.unit()
		}, n)
		if cut {
			return e.gradStats(x, e.segments(n))
		}
		return e.gradStats(x, device.Tensor{})
	}
	return Case{device.OpGradStats, name, setup, Work{Bytes: float64(n * d.Size())}}
}

func gradStatsOf(d device.DType, name string, values ...float64) Case {
	return Case{Op: device.OpGradStats, Name: d.String() + " " + name, Setup: func(e *Env) func() { return e.gradStats(e.List("X", d, values...), device.Tensor{}) }}
}

func (e *Env) gradStats(x, segments device.Tensor) func() {
	t := Tol{Rel: 4 * eps32 * math.Sqrt(float64(max(1, x.Len())))} // below 1/4 of a count of 1000
	out := e.Changes(e.List("Out", device.F64, 0, 0, 0), t)
	return func() { e.Dev.GradStats(out, x, segments) }
}

func weightedSumCase(n, bits int64) Case {
	return Case{device.OpWeightedSum, fmt.Sprintf("f32 %d, %d bits", n, bits), func(e *Env) func() {
		x, w := e.In("X", device.F32, n), e.Make("W", device.F32, func(i int) float64 { return float64(i % 2) }, n)
		root := math.Sqrt(float64(n))
		t := tol(device.F64, n, root+1)
		if bits > 0 {
			t = exact
		}
		out := e.Changes(e.List("Out", device.F64, 0.5, 0.25), t)
		return func() { e.Dev.WeightedSum(device.WeightedSumArgs{Out: out, X: x, W: w, Bits: bits}) }
	}, Work{Bytes: float64(8 * n)}}
}

// gradScaleCase has other statistics with so many non-finite gradients where others is not negative.
func gradScaleCase(squares, bad, others, scale float64, limit float32) Case {
	return Case{Op: device.OpGradScale, Name: fmt.Sprintf("squares %g, %g non-finite, others %g, scale %g, limit %g", squares, bad, others, scale, limit), Setup: func(e *Env) func() {
		a := device.GradScaleArgs{MaxNorm: limit, Stats: e.List("stats", device.F64, squares, bad, 0)}
		if others >= 0 {
			a.Others = e.List("others", device.F64, 5, others, 0)
		}
		a.Hyper = e.Changes(e.List("hyper", device.F32, 1, 2, 3, 4, scale, -5, -6, -7), tol(device.F32, 1, 0))
		return func() { e.Dev.GradScale(a) }
	}}
}
