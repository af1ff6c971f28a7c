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
				cases = append(cases, fp8Case(d, format, s, 0))
			}
			cases = append(cases, fp8Case(d, format, [4]int64{33, 150, 1, 128}, 7), fp8Case(d, format, [4]int64{33, 2001, 1, 1000}, 0))
		}
	}
	return cases
}

func fp8Case(d device.DType, format int32, s [4]int64, pad int64) Case {
	name := fmt.Sprintf("%s e%dm%d %dx%d by %dx%d", d, 4+format, 3-format, s[0], s[1], s[2], s[3])
	if pad > 0 {
		name += " strided"
	}
	return Case{Op: device.OpRoundFP8, Name: name, Setup: func(e *Env) func() {
		wide := s[1] + pad
		x := e.Make("X", d, func(i int) float64 {
			row, column := int64(i)/wide, int64(i)%wide
			switch v := e.unit() * math.Exp2(float64(e.below(24))-18); {
			case row/5%7 == 3 && column < 140:
				return 0
			case row == 2 && column == 3:
				return math.Inf(-1)
			default:
				return v
			}
		}, s[0], wide)
		a := device.RoundFP8Args{X: narrow(x, pad), Out: e.Out("Out", exact, d, s[0], s[1]), Rows: int32(s[2]), Columns: int32(s[3]), Format: format}
		return func() { e.Dev.RoundFP8(a) }
	}, Work: Work{Bytes: float64(2 * s[0] * s[1] * d.Size())}}
}
