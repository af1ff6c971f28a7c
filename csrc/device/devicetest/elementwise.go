package devicetest

import (
	"fmt"
	"math"

	"monotron/csrc/device"
)

func elementwiseCases() []Case {
	var cases []Case
	for _, d := range valueTypes {
		for _, s := range [][2]int64{{0, 5}, {1, 1}, {1, 17}, {17, 5}, {65, 129}, {300, 1000}, {1000, 3}} {
			cases = append(cases, columnSumCase(d, s[0], s[1], 0, leafRows{}), columnSumCase(d, s[0], s[1], 3, leafRows{}))
		}
		for _, from := range valueTypes {
			cases = append(cases, roundingCase(d, from))
		}
	}
	cases = append(cases, addCases()...)
	cases = append(cases, copyCases()...)
	for _, d := range []device.DType{device.F32, device.BF16, device.F16, device.F64, device.I32, device.I64, device.U16, device.U8} {
		for _, n := range []int64{0, 1, 17, 100000} {
			cases = append(cases, fillCase(d, n, 0), fillCase(d, n, 3))
		}
	}
	cases = append(cases, fillCase(device.BF16, 65, 0.1), fillCase(device.F16, 65, 1e9), fillCase(device.F32, 65, math.NaN()), fillCase(device.F32, 65, -0.1))
	for _, n := range []int64{0, 1, 3, 4, 5, 17, 1001, 70000} {
		cases = append(cases, uniformCase(n))
	}
	return cases
}

func columnSumCase(d device.DType, rows, n, pad int64, leaves leafRows) Case {
	name := fmt.Sprintf("%s %dx%d%s", d, rows, n, leaves)
	if pad > 0 {
		name += " strided"
	}
	setup := func(e *Env) func() {
		x := narrow(e.In("X", d, rows, n+pad), pad)
		out := e.Changes(e.In("Out", device.F32, leaves.sums(rows, n)...), tol(device.F32, rows, math.Sqrt(float64(rows))+1))
		return func() {
			e.Dev.ColumnSum(device.ColumnSumArgs{Out: out, X: x, Chunk: leaves.chunk, Batch: leaves.batch})
		}
	}
	return Case{device.OpColumnSum, name, setup, Work{Bytes: float64(rows * n * d.Size()), FLOPs: float64(rows * n)}}
}

func addCases() []Case {
	var cases []Case
	for _, types := range [][3]device.DType{
		{device.F32, device.F32, device.F32}, {device.BF16, device.BF16, device.BF16}, {device.F16, device.F16, device.F16},
		{device.F32, device.F32, device.BF16}, {device.BF16, device.F32, device.BF16}, {device.F16, device.F32, device.F32}, {device.F32, device.F16, device.BF16},
	} {
		for _, n := range []int64{0, 1, 17, 1001, 100000} {
			cases = append(cases, addCase(types, n, ""))
			if types[0] == types[1] {
				cases = append(cases, addCase(types, n, "A"))
			}
			if types[0] == types[2] {
				cases = append(cases, addCase(types, n, "B"))
			}
		}
	}
	return cases
}

// addCase: types of Out, A and B, and what Out is.
func addCase(types [3]device.DType, n int64, into string) Case {
	name := fmt.Sprintf("%s=%s+%s %d", types[0], types[1], types[2], n)
	if into != "" {
		name += " into " + into
	}
	setup := func(e *Env) func() {
		t := tol(types[0], 1, 0)
		a, b := e.In("A", types[1], n), e.In("B", types[2], n)
		var out device.Tensor
		switch into {
		case "A":
			out = e.Changes(a, t)
		case "B":
			out = e.Changes(b, t)
		default:
			out = e.Out("Out", t, types[0], n)
		}
		return func() { e.Dev.Add(out, a, b) }
	}
	return Case{device.OpAdd, name, setup, Work{Bytes: float64(n * (types[0].Size() + types[1].Size() + types[2].Size()))}}
}

func copyCases() []Case {
	var cases []Case
	pairs := [][2]device.DType{{device.I32, device.I32}, {device.I64, device.I64}, {device.U16, device.U16}, {device.U8, device.U8}, {device.F64, device.F64}, {device.F32, device.F64}, {device.F64, device.F32}}
	for _, d := range valueTypes {
		for _, s := range valueTypes {
			pairs = append(pairs, [2]device.DType{d, s})
		}
	}
	for _, p := range pairs {
		for _, shape := range [][]int64{{0}, {1}, {17}, {5, 65}, {3, 2, 7}, {2, 3, 5, 8}, {300, 1000}} {
			cases = append(cases, copyCase(p[0], p[1], shape, "plain"))
			if len(shape) > 1 && shape[0] < 300 {
				cases = append(cases, copyCase(p[0], p[1], shape, "gather"), copyCase(p[0], p[1], shape, "scatter"))
			}
		}
		cases = append(cases, copyCase(p[0], p[1], []int64{17, 33}, "transpose"), copyCase(p[0], p[1], []int64{7, 3, 5, 9}, "exchange"))
	}
	return cases
}

// copyCase: from a piece of a wider buffer (gather), into one (scatter), with
// the last two dimensions exchanged (transpose) or the first two (exchange,
// [s, b, ..] to [b, s, ..]).
func copyCase(to, from device.DType, shape []int64, how string) Case {
	setup := func(e *Env) func() {
		var padIn, padOut int64
		switch how {
		case "gather":
			padIn = 3
		case "scatter":
			padOut = 5
		}
		src := narrow(e.Make("Src", from, func(int) float64 { return math.Round(1000*e.unit()) / 8 }, padded(padIn, shape...)...), padIn)
		switch how {
		case "transpose":
			src = exchange(src, len(shape)-2, len(shape)-1)
		case "exchange":
			src = exchange(src, 0, 1)
		}
		dst := narrow(e.Out("Dst", exact, to, padded(padOut, src.Dims()...)...), padOut)
		return func() { e.Dev.Copy(dst, src) }
	}
	n := float64(length(shape))
	return Case{device.OpCopy, fmt.Sprintf("%s from %s %v %s", to, from, shape, how), setup, Work{Bytes: n * float64(to.Size()+from.Size())}}
}

func exchange(t device.Tensor, i, j int) device.Tensor {
	t.Shape[i], t.Shape[j] = t.Shape[j], t.Shape[i]
	t.Stride[i], t.Stride[j] = t.Stride[j], t.Stride[i]
	return t
}

// roundingCase copies numbers where rounding shows: ties, subnormals of either
// half, overflow, signed zeros, inf and NaN. Bits are equal but NaN's.
func roundingCase(to, from device.DType) Case {
	var in []float64
	for _, x := range []float64{
		0, 1, 1 + 0x1p-8, 1 + 3*0x1p-8, 1 + 0x1p-11, 1 + 3*0x1p-11, 1 + 0x1p-11 + 0x1p-20, 1 + 0x1p-23, 2049, 65504, 65519.9, 65520, 1e6, 3.3e38, 3.4e38,
		0x1p-14, 0x1p-14 - 0x1p-25, 0x1p-24, 0x1p-25, 0x1p-25 + 0x1p-40, 3 * 0x1p-25, 0x1p-126, 0x1p-130, 0x1p-133, 0x1p-134, 3 * 0x1p-134, math.Inf(1), math.NaN(),
	} {
		in = append(in, x, -x)
	}
	return Case{Op: device.OpCopy, Name: fmt.Sprintf("%s from %s rounding", to, from), Setup: func(e *Env) func() {
		src, dst := e.List("Src", from, in...), e.Out("Dst", exact, to, int64(len(in)))
		return func() { e.Dev.Copy(dst, src) }
	}}
}

func fillCase(d device.DType, n int64, value float64) Case {
	return Case{device.OpFill, fmt.Sprintf("%s %d of %g", d, n, value), func(e *Env) func() {
		out := e.Out("Out", exact, d, n)
		return func() { e.Dev.Fill(out, value) }
	}, Work{Bytes: float64(n * d.Size())}}
}

func uniformCase(n int64) Case {
	return Case{device.OpUniform, fmt.Sprintf("f32 %d", n), func(e *Env) func() {
		a := device.UniformArgs{Stream: e.word(), Step: e.List("step", device.I64, 3), Out: e.Out("Out", exact, device.F32, n)}
		return func() { e.Dev.Uniform(a) }
	}, Work{Bytes: float64(4 * n)}}
}
