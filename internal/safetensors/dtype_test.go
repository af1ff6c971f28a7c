package safetensors

import (
	"math"
	"testing"
)

// Every half widens exactly and rounds back to itself: IEEE 754 binary16.
func TestHalvesRoundTrip(t *testing.T) {
	for h := range 1 << 16 {
		v := FromF16(uint16(h))
		if got := ToF16(v); got != uint16(h) && (v == v || got&0x7c00 != 0x7c00 || got&0x3ff == 0) {
			t.Fatalf("%#04x widens to %v and rounds to %#04x", h, v, got)
		}
	}
}

// Values between two halves go to the nearer one, ties to even; checked against
// the two neighbours, which the test above holds right.
func TestHalfRoundsToNearestEven(t *testing.T) {
	for h := uint16(0); h < 0x7bff; h++ {
		lo, hi := float64(FromF16(h)), float64(FromF16(h+1))
		mid := float32((lo + hi) / 2)
		even := h + h&1
		for _, c := range []struct {
			v    float32
			want uint16
		}{{mid, even}, {math.Nextafter32(mid, 0), h}, {math.Nextafter32(mid, 1e9), h + 1}} {
			if got := ToF16(c.v); got != c.want {
				t.Fatalf("%v rounds to %#04x, nearest even is %#04x", c.v, got, c.want)
			}
			if got := ToF16(-c.v); got != c.want|0x8000 {
				t.Fatalf("%v rounds to %#04x", -c.v, got)
			}
		}
	}
	for v, want := range map[float32]uint16{65519: 0x7bff, 65520: 0x7c00, 1e30: 0x7c00} {
		if got := ToF16(v); got != want {
			t.Errorf("%v rounds to %#04x, want %#04x", v, got, want)
		}
	}
}

func TestBF16RoundsToNearestEven(t *testing.T) {
	for bits, want := range map[uint32]uint16{
		0x3f808000: 0x3f80, 0x3f818000: 0x3f82, 0x3f808001: 0x3f81, 0x7f7fffff: 0x7f80, 0xbf80ffff: 0xbf81, 0x00000000: 0,
	} {
		if got := ToBF16(math.Float32frombits(bits)); got != want {
			t.Errorf("%#08x rounds to %#04x, want %#04x", bits, got, want)
		}
	}
	if got := ToBF16(float32(math.NaN())); got&0x7f80 != 0x7f80 || got&0x7f == 0 {
		t.Errorf("NaN becomes %#04x", got)
	}
}

// OCP 8-bit formats (OFP8 1.0, table 2): largest, smallest normal and subnormal.
func TestEightBitFloats(t *testing.T) {
	for _, c := range []struct {
		dtype string
		bits  byte
		want  float64
	}{
		{"F8_E4M3", 0x7e, 448}, {"F8_E4M3", 0x08, 1.0 / 64}, {"F8_E4M3", 0x01, 1.0 / 512}, {"F8_E4M3", 0xb8, -1},
		{"F8_E5M2", 0x7b, 57344}, {"F8_E5M2", 0x04, 1.0 / 16384}, {"F8_E5M2", 0x01, 1.0 / 65536}, {"F8_E5M2", 0x7c, math.Inf(1)},
	} {
		var out [1]float64
		if !Decode(out[:], c.dtype, []byte{c.bits}) || out[0] != c.want {
			t.Errorf("%s %#02x is %v, want %v", c.dtype, c.bits, out[0], c.want)
		}
	}
	var nan [1]float64
	Decode(nan[:], "F8_E4M3", []byte{0x7f})
	if !math.IsNaN(nan[0]) {
		t.Errorf("F8_E4M3 0x7f is %v", nan[0])
	}
}
