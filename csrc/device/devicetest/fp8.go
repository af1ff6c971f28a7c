package devicetest

import (
	"fmt"
	"math"

	"monotron/csrc/device"
)

// fp8Cases compare bits. Some blocks are zeros, some have numbers near the format's least ones, some one that
// is not finite.
func fp8Cases() (cases []Case) {
	for _, d := range valueTypes {
		for _, format := range []int32{device.E4M3, device.E5M2} {
			for _, s := range [][4]int64{{1, 1, 1, 128}, {3, 300, 1, 128}, {300, 17, 128, 1}, {130, 260, 128, 128}, {256, 1100, 128, 128}, {128, 1029, 128, 1}, {0, 5, 1, 128}} {
				cases = append(cases, fp8Case(d, format, device.ScaleBelow, s, 0))
			}
			cases = append(cases, fp8Case(d, format, device.ScaleBelow, [4]int64{33, 150, 1, 128}, 7), fp8Case(d, format, device.ScaleBelow, [4]int64{33, 2001, 1, 1000}, 0))
			for _, s := range [][4]int64{{1, 1, 1, 32}, {3, 300, 1, 32}, {300, 17, 32, 1}, {64, 1029, 32, 1}, {9, 1100, 1, 32}} {
				cases = append(cases, fp8Case(d, format, device.ScaleE8M0, s, s[0]%2*7))
			}
			for _, s := range [][2]int64{{1, 1}, {130, 260}, {7, 4099}, {0, 5}} {
				cases = append(cases, tensorFP8Case(d, d, format, s[0], s[1], 0), tensorFP8Case(d, device.F32, format, s[0], s[1], 7))
			}
			cases = append(cases, scaledFP8Case(d, d, format, 130, 260, 0, nil), scaledFP8Case(d, device.F32, format, 33, 4099, 7, nil),
				scaledFP8Case(d, device.F32, format, 70, 300, 7, []float64{0, 0, 3, 40, 40, 70}), groupFP8Case(d, device.F32, format, 70, 300, 7, []float64{0, 30, 30, 70}))
		}
		for _, s := range [][2]int64{{1, 1}, {130, 260}, {70, 4099}, {0, 5}} {
			cases = append(cases, maxAbsCase(d, s[0], s[1], 0, true), maxAbsCase(d, s[0], s[1], 7, false))
		}
		for _, offsets := range [][]float64{{0, 70}, {0, 0, 1, 33, 33, 70, 70}} {
			cases = append(cases, groupMaxAbsCase(d, 70, 260, 7, offsets), groupMaxAbsCase(d, 70, 3, 0, offsets))
		}
		for _, s := range [][4]int64{{1, 1, 1, 16}, {5, 300, 1, 16}, {300, 17, 16, 1}, {40, 1100, 16, 16}, {0, 5, 1, 16}} {
			cases = append(cases, nvfp4Case(d, d, s, 0), nvfp4Case(d, device.F32, s, 7))
		}
	}
	return cases
}

// spreadOut is a number for element i of rows of `wide`: of magnitudes 2^-18 to 2^6, in some rows 2^-100 times that,
// and zeros at the beginning of some.
func (e *Env) spreadOut(i int, wide int64) float64 {
	row, column := int64(i)/wide, int64(i)%wide
	v := e.unit() * math.Exp2(float64(e.below(24))-18)
	switch {
	case row/5%7 == 3 && column < 140:
		return 0
	case row%11 == 4:
		return v * 0x1p-100
	}
	return v
}

// somewhereInfinite is spreadOut with a number that is not finite.
func (e *Env) somewhereInfinite(i int, wide int64) float64 {
	if v := e.spreadOut(i, wide); int64(i) != 2*wide+3 {
		return v
	}
	return math.Inf(-1)
}

func fp8Case(d device.DType, format int32, rule device.ScaleRule, s [4]int64, pad int64) Case {
	name := fmt.Sprintf("%s %s %dx%d by %dx%d", d, fp8Name(format), s[0], s[1], s[2], s[3])
	if rule == device.ScaleE8M0 {
		name += " e8m0"
	}
	if pad > 0 {
		name += " strided"
	}
	return Case{Op: device.OpRoundFP8, Name: name, Setup: func(e *Env) func() {
		wide := s[1] + pad
		x := e.Make("X", d, func(i int) float64 { return e.somewhereInfinite(i, wide) }, s[0], wide)
		a := device.RoundFP8Args{X: narrow(x, pad), Out: e.Out("Out", exact, d, s[0], s[1]), Rows: int32(s[2]), Columns: int32(s[3]), Format: format, Rule: rule}
		return func() { e.Dev.RoundFP8(a) }
	}, Work: Work{Bytes: float64(2 * s[0] * s[1] * d.Size())}}
}

func fp8Name(format int32) string { return fmt.Sprintf("e%dm%d", 4+format, 3-format) }

// maxAbsCase has a number that is not finite, or none; the magnitude before is larger than any number of the smallest
// tensor alone.
func maxAbsCase(d device.DType, m, n, pad int64, infinite bool) Case {
	return Case{Op: device.OpMaxAbs, Name: fmt.Sprintf("%s %dx%d, infinite %v", d, m, n, infinite), Setup: func(e *Env) func() {
		number := e.spreadOut
		if infinite {
			number = e.somewhereInfinite
		}
		x := e.Make("X", d, func(i int) float64 { return number(i, n+pad) }, m, n+pad)
		a := device.MaxAbsArgs{X: narrow(x, pad), Most: e.Changes(e.List("Most", device.F32, 1.5), exact)}
		return func() { e.Dev.MaxAbs(a.Most, a.X, a.Offsets) }
	}, Work: Work{Bytes: float64(m * n * d.Size())}}
}

// groupMaxAbsCase has groups of rows, one of which has a number that is not finite.
func groupMaxAbsCase(d device.DType, m, n, pad int64, offsets []float64) Case {
	return Case{Op: device.OpMaxAbs, Name: fmt.Sprintf("%s %dx%d, groups %v", d, m, n, offsets), Setup: func(e *Env) func() {
		x := e.Make("X", d, func(i int) float64 { return e.somewhereInfinite(i, n+pad) }, m, n+pad)
		groups := int64(len(offsets) - 1)
		most := e.Changes(e.Make("Most", device.F32, func(i int) float64 { return 0.01 * float64(i) }, groups), exact)
		at := e.List("Offsets", device.I32, offsets...)
		return func() { e.Dev.MaxAbs(most, narrow(x, pad), at) }
	}, Work: Work{Bytes: float64(m * n * d.Size())}}
}

// tensorFP8Case has a magnitude that some numbers are above of; without a pad one that is 0, or infinite with E5M2.
func tensorFP8Case(d, out device.DType, format int32, m, n, pad int64) Case {
	return Case{Op: device.OpRoundTensorFP8, Name: fmt.Sprintf("%s to %s %s %dx%d, pad %d", d, out, fp8Name(format), m, n, pad), Setup: func(e *Env) func() {
		most := 37.3
		if pad == 0 && m == 7 {
			most = [...]float64{device.E4M3: 0, device.E5M2: math.Inf(1)}[format]
		}
		x := e.Make("X", d, func(i int) float64 { return e.spreadOut(i, n+pad) }, m, n+pad)
		a := device.RoundTensorFP8Args{X: narrow(x, pad), Out: e.Out("Out", exact, out, m, n), Most: e.List("Most", device.F32, most), Format: format}
		return func() { e.Dev.RoundTensorFP8(a) }
	}, Work: Work{Bytes: float64(m * n * (d.Size() + out.Size()))}}
}

// scaledFP8Case has scales under which some numbers are above the format's largest one, and a number that is not finite;
// offsets nil: one scale for all rows.
func scaledFP8Case(d, out device.DType, format int32, m, n, pad int64, offsets []float64) Case {
	return Case{Op: device.OpRoundTensorFP8, Name: fmt.Sprintf("%s to %s %s %dx%d, pad %d, scaled, groups %v", d, out, fp8Name(format), m, n, pad, offsets), Setup: func(e *Env) func() {
		x := e.Make("X", d, func(i int) float64 { return e.somewhereInfinite(i, n+pad) }, m, n+pad)
		a := device.RoundTensorFP8Args{X: narrow(x, pad), Out: e.Out("Out", exact, out, m, n), Format: format}
		scale := [...]float64{device.E4M3: 11.3, device.E5M2: 1377.7}[format]
		groups := int64(1)
		if offsets != nil {
			groups = int64(len(offsets) - 1)
			a.Offsets = e.List("Offsets", device.I32, offsets...)
		}
		a.Scale = e.Make("Scale", device.F32, func(i int) float64 { return scale * math.Exp2(float64(3*i)) }, groups)
		return func() { e.Dev.RoundTensorFP8(a) }
	}, Work: Work{Bytes: float64(m * n * (d.Size() + out.Size()))}}
}

// groupFP8Case has a magnitude for each group of rows, one of which is 0.
func groupFP8Case(d, out device.DType, format int32, m, n, pad int64, offsets []float64) Case {
	return Case{Op: device.OpRoundTensorFP8, Name: fmt.Sprintf("%s to %s %s %dx%d, pad %d, groups %v", d, out, fp8Name(format), m, n, pad, offsets), Setup: func(e *Env) func() {
		x := e.Make("X", d, func(i int) float64 { return e.spreadOut(i, n+pad) }, m, n+pad)
		groups := int64(len(offsets) - 1)
		a := device.RoundTensorFP8Args{X: narrow(x, pad), Out: e.Out("Out", exact, out, m, n), Format: format, Offsets: e.List("Offsets", device.I32, offsets...)}
		a.Most = e.Make("Most", device.F32, func(i int) float64 { return [...]float64{37.3, 5, 0}[i%3] }, groups)
		return func() { e.Dev.RoundTensorFP8(a) }
	}, Work: Work{Bytes: float64(m * n * (d.Size() + out.Size()))}}
}

// nvfp4Case has blocks that are so much smaller than the largest number that their scale is 0.
func nvfp4Case(d, out device.DType, s [4]int64, pad int64) Case {
	return Case{Op: device.OpRoundNVFP4, Name: fmt.Sprintf("%s to %s %dx%d by %dx%d, pad %d", d, out, s[0], s[1], s[2], s[3], pad), Setup: func(e *Env) func() {
		x := e.Make("X", d, func(i int) float64 { return e.spreadOut(i, s[1]+pad) }, s[0], s[1]+pad)
		a := device.RoundNVFP4Args{X: narrow(x, pad), Out: e.Out("Out", exact, out, s[0], s[1]), Most: e.List("Most", device.F32, 96.7), Rows: int32(s[2]), Columns: int32(s[3])}
		return func() { e.Dev.RoundNVFP4(a) }
	}, Work: Work{Bytes: float64(s[0] * s[1] * (d.Size() + out.Size()))}}
}
