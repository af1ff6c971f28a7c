package device

import (
	"math"
	"testing"
)

// Claim (IEEE 754 binary16, and bfloat16 as the upper half of binary32): every
// half widens and comes back as itself, and a value between two neighbours goes
// to the nearer one, at equal distance to the even one.
func TestHalvesRoundToNearestEven(t *testing.T) {
	for _, d := range []DType{BF16, F16} {
		top := map[DType]uint16{BF16: 0x7f80, F16: 0x7c00}[d]
		for h := uint16(0); h < top; h++ {
			at := ToFloat64(d, AsBytes([]uint16{h}))[0]
			next := ToFloat64(d, AsBytes([]uint16{h + 1}))[0]
			if h+1 == top { // inf stands where the next number would
				next = at + (at - ToFloat64(d, AsBytes([]uint16{h - 1}))[0])
			}
			middle := (at + next) / 2
			for _, c := range []struct {
				x    float64
				want uint16
			}{{at, h}, {middle, h + h&1}, {math.Nextafter(middle, 0), h}, {math.Nextafter(middle, math.Inf(1)), h + 1}} {
				if got := halfOf(d, c.x); got != c.want {
					t.Fatalf("%s: %g is %#x, want %#x", d, c.x, got, c.want)
				}
				if got := halfOf(d, -c.x); got != c.want|0x8000 {
					t.Fatalf("%s: %g is %#x, want %#x", d, -c.x, got, c.want|0x8000)
				}
			}
		}
	}
}

// Claim: inf and NaN stay what they are, whatever NaN's payload.
func TestHalvesKeepNonFinite(t *testing.T) {
	nans := []float32{math.Float32frombits(0x7f800001), math.Float32frombits(0xffc00000)}
	var h, b [2]uint16
	var f, g [2]float32
	F32ToF16(h[:], nans)
	F32ToBF16(b[:], nans)
	F16ToF32(f[:], h[:])
	BF16ToF32(g[:], b[:])
	for i := range nans {
		if f[i] == f[i] || g[i] == g[i] {
			t.Errorf("NaN %#x became %g in f16, %g in bf16", math.Float32bits(nans[i]), f[i], g[i])
		}
	}
	for d, want := range map[DType]uint16{BF16: 0x7f80, F16: 0x7c00} {
		if halfOf(d, math.Inf(1)) != want || halfOf(d, 1e300) != want || halfOf(d, math.Inf(-1)) != want|0x8000 {
			t.Errorf("%s: infinities are lost", d)
		}
	}
}

// Claim (IEEE 754): known bit patterns.
func TestHalvesKnownBits(t *testing.T) {
	for _, c := range []struct {
		d    DType
		x    float64
		want uint16
	}{
		{F16, 1, 0x3c00}, {F16, -2, 0xc000}, {F16, 65504, 0x7bff}, {F16, 0x1p-24, 1}, {F16, 0x1p-14, 0x0400}, {F16, 1.0 / 3, 0x3555},
		{BF16, 1, 0x3f80}, {BF16, -2, 0xc000}, {BF16, 3.140625, 0x4049}, {BF16, 0x1p-133, 1},
	} {
		if got := halfOf(c.d, c.x); got != c.want {
			t.Errorf("%s of %g: %#x, want %#x", c.d, c.x, got, c.want)
		}
	}
}

func halfOf(d DType, x float64) uint16 {
	b := FromFloat64(d, []float64{x})
	return uint16(b[0]) | uint16(b[1])<<8
}
