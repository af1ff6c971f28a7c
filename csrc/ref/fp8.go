package ref

import (
	"math"

	"monotron/csrc/device"
)

// format8 is a format of 8 bits: bits of the mantissa, exponent of the least normal number, largest number.
type format8 struct {
	mantissa, least int
	most            float64
}

var formats8 = [...]format8{device.E4M3: {3, -6, 448}, device.E5M2: {2, -14, 57344}}

// round is x in the format, half to even; |x| is at most f.most.
func (f format8) round(x float64) float64 {
	_, exponent := math.Frexp(x) // |x| < 2^exponent
	unit := math.Ldexp(1, max(exponent-1, f.least)-f.mantissa)
	return math.RoundToEven(x/unit) * unit
}

func (b *backend) RoundFP8(a *device.RoundFP8Args) {
	m, n, f := a.X.Shape[0], a.X.Shape[1], formats8[a.Format]
	rows, columns := int64(a.Rows), int64(a.Columns)
	b.spread((m+rows-1)/rows, 1, func(from, to int64) {
		for r := from * rows; r < min(m, to*rows); r += rows {
			for c := int64(0); c < n; c += columns {
				f.block(a, r, min(m, r+rows), c, min(n, c+columns))
			}
		}
	})
}

// block rounds rows [r, r1) of columns [c, c1).
func (f format8) block(a *device.RoundFP8Args, r, r1, c, c1 int64) {
	x, most := make([][]float64, r1-r), 0.0
	for i := range x {
		x[i] = make([]float64, c1-c)
		load(x[i], a.X, rowAt(a.X, r+int64(i))+c)
		for _, v := range x[i] {
			most = max(most, math.Abs(v)) // not a number is more than any
		}
	}
	if most > 0 && !math.IsInf(most, 0) && !math.IsNaN(most) {
		scale := powerBelow(float32(f.most) / float32(most))
		for _, row := range x {
			for j, v := range row {
				row[j] = f.round(v*scale) / scale
			}
		}
	}
	for i, row := range x {
		store(a.Out, rowAt(a.Out, r+int64(i))+c, row)
	}
}

// powerBelow is the largest power of two that is not above x, which is positive.
func powerBelow(x float32) float64 {
	if math.IsInf(float64(x), 0) {
		x = math.MaxFloat32
	}
	return float64(math.Float32frombits(math.Float32bits(x) & 0xff800000))
}
