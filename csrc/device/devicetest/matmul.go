package devicetest

import (
	"fmt"
	"math"

	"monotron/csrc/device"
)

// matmulOptions names one matmul; the zero value is C = A·B.
type matmulOptions struct {
	transA, transB, accumulate bool
	wideC                      bool // C f32 whatever A is
	byRow                      bool
	bias, strided              bool
	epilogue                   device.Epilogue
}

func (o matmulOptions) String() string {
	s := map[bool]string{false: "n", true: "t"}[o.transA] + map[bool]string{false: "n", true: "t"}[o.transB]
	for _, f := range []struct {
		on   bool
		name string
	}{{o.accumulate, "accumulate"}, {o.wideC, "f32 C"}, {o.byRow, "by row"}, {o.bias, "bias"}, {o.epilogue == device.GeluTanhEpilogue, "gelu tanh"},
		{o.epilogue == device.GeluErfEpilogue, "gelu erf"}, {o.strided, "strided"}} {
		if f.on {
			s += " " + f.name
		}
	}
	return s
}

var matmulVariants = []matmulOptions{
	{}, {transA: true}, {transB: true}, {transA: true, transB: true},
	{transB: true, bias: true}, {bias: true, wideC: true}, {strided: true, transB: true, wideC: true},
	{transB: true, bias: true, epilogue: device.GeluTanhEpilogue}, {transB: true, epilogue: device.GeluErfEpilogue},
	{transB: true, bias: true, epilogue: device.GeluErfEpilogue, strided: true},
	{transB: true, byRow: true, wideC: true}, {transB: true, byRow: true, bias: true, epilogue: device.GeluTanhEpilogue, strided: true},
	{transA: true, accumulate: true, wideC: true}, {accumulate: true, wideC: true, strided: true},
}

func matmulCases() []Case {
	var cases []Case
	for _, d := range valueTypes {
		for _, s := range [][3]int64{{1, 1, 1}, {0, 5, 7}, {3, 5, 17}, {1, 129, 65}, {129, 1, 64}, {17, 65, 63}, {65, 129, 3}, {64, 64, 64}, {33, 40, 1500}, {130, 300, 70}} {
			for _, o := range matmulVariants {
				cases = append(cases, matmulCase(d, s[0], s[1], s[2], o))
			}
		}
		cases = append(cases, matmulCase(d, 300, 1000, 70, matmulOptions{}), matmulCase(d, 300, 1000, 70, matmulOptions{transB: true, bias: true, epilogue: device.GeluTanhEpilogue}),
			matmulCase(d, 300, 700, 260, matmulOptions{transA: true, accumulate: true, wideC: true}),
			// As many columns as an adapter's rank.
			matmulCase(d, 530, 16, 300, matmulOptions{strided: true}), matmulCase(d, 530, 16, 300, matmulOptions{transA: true, accumulate: true, wideC: true, strided: true}), matmulCase(d, 70, 8, 90, matmulOptions{transB: true}))
		cases = append(cases, nonFiniteMatmul(d))
	}
	return cases
}

// matmulCase: op(A) [m,k], op(B) [k,n] of variance 1, so C is about √k.
func matmulCase(d device.DType, m, n, k int64, o matmulOptions) Case {
	dc := d
	if o.wideC {
		dc = device.F32
	}
	setup := func(e *Env) func() {
		pad := int64(0)
		if o.strided {
			pad = 3
		}
		// Strided operands have columns that do not belong to them.
		a := device.MatmulArgs{TransA: flag(o.transA), TransB: flag(o.transB), Accumulate: flag(o.accumulate), Epilogue: o.epilogue, ByRow: flag(o.byRow)}
		a.A = narrow(e.In("A", d, padded(pad, swap(o.transA, m, k)...)...), pad)
		a.B = narrow(e.In("B", d, padded(pad, swap(o.transB, k, n)...)...), pad)
		if o.bias {
			a.Bias = e.In("bias", d, n)
		}
		// GELU of a rounded sum: its error is that of the sum times the slope, on top of its own.
		t := tol(dc, k, math.Sqrt(float64(k)))
		if o.epilogue != device.NoEpilogue {
			a.Aux = narrow(e.Out("aux", tol(d, k, math.Sqrt(float64(k))), d, padded(pad, m, n)...), pad)
			t = geluOfRounded(t, d)
		}
		if o.accumulate {
			a.C = narrow(e.Changes(e.In("C", dc, padded(pad, m, n)...), t), pad)
		} else {
			a.C = narrow(e.Out("C", t, dc, padded(pad, m, n)...), pad)
		}
		return func() { e.Dev.Matmul(a) }
	}
	size := float64(d.Size())
	work := Work{Bytes: size*float64(m*k+k*n) + float64(dc.Size()*m*n), FLOPs: 2 * float64(m) * float64(n) * float64(k)}
	return Case{device.OpMatmul, fmt.Sprintf("%s %dx%dx%d %s", d, m, n, k, o), setup, work}
}

// geluOfRounded: a kernel may take gelu of aux as stored, half an ulp off. For
// x < 0 that moves gelu by |x·gelu'(x)|/2 ulps, at most 0.11; for x > 0 it is
// near the value's own ulp, twice it at most.
func geluOfRounded(t Tol, d device.DType) Tol {
	t.Rel += ulp(d)
	return t.rounded(d, 0.125).rounded(device.F32, 8)
}

// nonFiniteMatmul: NaN in row 2 of A and inf in column 4 of B spoil what they
// meet and nothing else.
func nonFiniteMatmul(d device.DType) Case {
	return Case{Op: device.OpMatmul, Name: d.String() + " 5x9x7 non-finite", Setup: func(e *Env) func() {
		a := device.MatmulArgs{}
		a.A = e.Make("A", d, spoiled(e, 2*7+3, math.NaN()), 5, 7)
		a.B = e.Make("B", d, spoiled(e, 1*9+4, math.Inf(1)), 7, 9)
		a.C = e.Out("C", tol(d, 7, math.Sqrt(7)), d, 5, 9)
		return func() { e.Dev.Matmul(a) }
	}}
}

// spoiled is unit noise with one element replaced.
func spoiled(e *Env, at int, by float64) func(i int) float64 {
	return func(i int) float64 {
		if x := e.unit(); i != at {
			return x
		}
		return by
	}
}

func swap(on bool, rows, columns int64) []int64 {
	if on {
		return []int64{columns, rows}
	}
	return []int64{rows, columns}
}

func flag(on bool) int32 {
	if on {
		return 1
	}
	return 0
}
