package ref

import (
	"math"

	"monotron/csrc/device"
)

// smallFloat is a format of 4 or 8 bits: bits of the mantissa, exponent of the least normal number, largest number.
type smallFloat struct {
	mantissa, least int
	most            float32
}

var (
	formats8 = [...]smallFloat{device.E4M3: {3, -6, 448}, device.E5M2: {2, -14, 57344}}
	e2m1     = smallFloat{1, 0, 6}
)

// round is x in the format, half to even; beyond the largest number it is that.
func (f smallFloat) round(x float32) float32 {
	most := float64(f.most)
	v := max(-most, min(most, float64(x)))
	_, exponent := math.Frexp(v) // |v| < 2^exponent
	unit := math.Ldexp(1, max(exponent-1, f.least)-f.mantissa)
	return float32(math.RoundToEven(v/unit) * unit)
}

func (b *backend) RoundFP8(a *device.RoundFP8Args) {
	f := formats8[a.Format]
	b.blocks(a.Out, a.X, a.Rows, a.Columns, func(x [][]float64, most float32) {
		if !rounds(most) {
			return
		}
		scale := powerBelow(f.most / most)
		if a.Rule == device.ScaleE8M0 {
			scale = e8m0Scale(most * (1 / f.most))
		}
		for _, row := range x {
			for j, v := range row {
				row[j] = float64(f.round(float32(v)*scale)) / float64(scale)
			}
		}
	})
}

// rounds reports whether values of which this is the largest magnitude are rounded.
func rounds(most float32) bool { return most > 0 && most <= math.MaxFloat32 }

// blocks calls change with each block of x, rows of it and its largest magnitude, and stores what that leaves in out.
func (b *backend) blocks(out, x device.Tensor, height, width int32, change func(x [][]float64, most float32)) {
	m, n := x.Shape[0], x.Shape[1]
	rows, columns := int64(height), int64(width)
	b.spread((m+rows-1)/rows, 1, func(from, to int64) {
		for r := from * rows; r < min(m, to*rows); r += rows {
			for c := int64(0); c < n; c += columns {
				block := make([][]float64, min(m, r+rows)-r)
				for i := range block {
					block[i] = make([]float64, min(n, c+columns)-c)
					load(block[i], x, rowAt(x, r+int64(i))+c)
				}
				change(block, largest(block))
				for i, row := range block {
					store(out, rowAt(out, r+int64(i))+c, row)
				}
			}
		}
	})
}

// largest is the largest magnitude; not a number is more than any.
func largest(x [][]float64) float32 {
	most := 0.0
	for _, row := range x {
		for _, v := range row {
			most = max(most, math.Abs(v))
		}
	}
	return float32(most)
}

// powerBelow is the largest power of two that is not above x, which is positive.
func powerBelow(x float32) float32 {
	return math.Float32frombits(math.Float32bits(min(x, math.MaxFloat32)) & 0xff800000)
}

// e8m0Scale is 1 / 2^e with the least e of -127..127 with 2^e not below x.
func e8m0Scale(x float32) float32 {
	e := -127
	for e < 127 && math.Ldexp(1, e) < float64(x) {
		e++
	}
	return float32(math.Ldexp(1, -e))
}

// MaxAbs takes the largest magnitude by its bits: as integers they are in order, NaN above infinity.
func (b *backend) MaxAbs(a *device.MaxAbsArgs) {
	row := make([]float64, a.X.Shape[1])
	for g := range a.Most.Len() {
		most := a.Most.Slice(0, g, 1)
		for r, to := groupOf(a.X, a.Offsets, g); r < to; r++ {
			loadRow(row, a.X, r)
			raisePeak(most, row)
		}
		setOne(most, 0, finiteOrInf(one(most, 0)))
	}
}

// groupOf is where the rows of group g begin and end, without offsets all rows of x.
func groupOf(x, offsets device.Tensor, g int64) (from, to int64) {
	if !offsets.Given() {
		return 0, x.Shape[0]
	}
	at := ids(offsets)
	return int64(at[g]), int64(at[g+1])
}

// finiteOrInf is x, infinity for NaN.
func finiteOrInf(x float64) float64 {
	if math.IsNaN(x) {
		return math.Inf(1)
	}
	return x
}

func (b *backend) RoundTensorFP8(a *device.RoundTensorFP8Args) {
	f := formats8[a.Format]
	by := a.Most
	if !by.Given() {
		by = a.Scale
	}
	for g := range by.Len() {
		scale, all := float32(one(by, g)), true // all: each number is rounded, but those that are not finite
		if a.Most.Given() {
			most := scale
			scale, all = min(f.most/most, math.MaxFloat32), rounds(most)
		}
		inverse := 1 / scale
		first, end := groupOf(a.X, a.Offsets, g)
		b.spread(end-first, each(a.X.Shape[1]), func(from, to int64) {
			row := make([]float64, a.X.Shape[1])
			for r := first + from; r < first+to; r++ {
				loadRow(row, a.X, r)
				for j, v := range row {
					if all && math.Abs(v) <= math.MaxFloat32 {
						row[j] = float64(f.round(float32(v)*scale) * inverse)
					}
				}
				storeRow(a.Out, r, row)
			}
		})
	}
}
