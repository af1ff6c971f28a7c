package gguf

import (
	"encoding/binary"
	"math"

	"monotron/internal/safetensors"
)

var le = binary.LittleEndian

// half reads an IEEE half.
func half(b []byte) float32 { return safetensors.FromF16(le.Uint16(b)) }

// Decode turns the bytes of complete blocks into values: dst has Bytes' count of
// elements. The values are those of ggml's reference functions, bit for bit:
// the products of scales and codes are exact in float32.
func Decode(dst []float32, t Type, raw []byte) {
	l := layouts[t]
	switch t {
	case F32:
		for i := range dst {
			dst[i] = math.Float32frombits(le.Uint32(raw[4*i:]))
		}
		return
	case F16:
		for i := range dst {
			dst[i] = half(raw[2*i:])
		}
		return
	case BF16:
		for i := range dst {
			dst[i] = math.Float32frombits(uint32(le.Uint16(raw[2*i:])) << 16)
		}
		return
	}
	for len(dst) > 0 {
		l.decode(dst[:l.elements], raw[:l.bytes])
		dst, raw = dst[l.elements:], raw[l.bytes:]
	}
}

// halves are the elements of a block of 32 whose codes lie as two nibbles: the
// low ones of all 16 bytes, then the high ones.
const halves = 16

func decodeQ4_0(dst []float32, b []byte) {
	d, q := half(b), b[2:]
	for j := range halves {
		dst[j] = float32(int(q[j]&15)-8) * d
		dst[j+halves] = float32(int(q[j]>>4)-8) * d
	}
}

func decodeQ4_1(dst []float32, b []byte) {
	d, m, q := half(b), half(b[2:]), b[4:]
	for j := range halves {
		dst[j] = float32(q[j]&15)*d + m
		dst[j+halves] = float32(q[j]>>4)*d + m
	}
}

// fifth returns the two codes of byte j whose fifth bits are in high.
func fifth(q byte, high uint32, j int) (low, up int) {
	return int(q&15) | int(high>>j&1)<<4, int(q>>4) | int(high>>(j+halves)&1)<<4
}

func decodeQ5_0(dst []float32, b []byte) {
	d, high, q := half(b), le.Uint32(b[2:]), b[6:]
	for j := range halves {
		low, up := fifth(q[j], high, j)
		dst[j], dst[j+halves] = float32(low-16)*d, float32(up-16)*d
	}
}

func decodeQ5_1(dst []float32, b []byte) {
	d, m, high, q := half(b), half(b[2:]), le.Uint32(b[4:]), b[8:]
	for j := range halves {
		low, up := fifth(q[j], high, j)
		dst[j], dst[j+halves] = float32(low)*d+m, float32(up)*d+m
	}
}

func decodeQ8_0(dst []float32, b []byte) {
	d, q := half(b), b[2:]
	for j := range dst {
		dst[j] = float32(int8(q[j])) * d
	}
}

// fp4 are twice the values of a four-bit float (E2M1).
var fp4 = [16]float32{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

func decodeMXFP4(dst []float32, b []byte) {
	scale, q := uint32(b[0]), b[1:] // a power of two, halved since fp4 is doubled
	bits := (scale - 1) << 23
	if scale < 2 {
		bits = 0x00200000 << scale // subnormal
	}
	d := math.Float32frombits(bits)
	for j := range halves {
		dst[j], dst[j+halves] = fp4[q[j]&15]*d, fp4[q[j]>>4]*d
	}
}
