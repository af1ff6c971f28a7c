package safetensors

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// dtypeBits is the width of one element of each type the format knows.
var dtypeBits = map[string]uint64{
	"BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64,
	"F16": 16, "BF16": 16, "F32": 32, "F64": 64, "C64": 64,
	"F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
}

// byteSize is the memory of shape in dtype; ok is false where it overflows or
// is not a multiple of 8 bits.
func byteSize(dtype string, shape []int64) (size int64, ok bool) {
	n := uint64(1)
	for _, d := range shape {
		hi, lo := bits.Mul64(n, uint64(d))
		if hi != 0 {
			return 0, false
		}
		n = lo
	}
	hi, total := bits.Mul64(n, dtypeBits[dtype])
	if hi != 0 || total%8 != 0 || total/8 > math.MaxInt64 {
		return 0, false
	}
	return int64(total / 8), true
}

// reader gives the i-th element of raw as a float64.
type reader func(raw []byte, i int) float64

var le = binary.LittleEndian

// readers holds the types that have numeric values here; the rest can be read
// as bytes only.
var readers = map[string]reader{
	"F64": func(b []byte, i int) float64 { return math.Float64frombits(le.Uint64(b[8*i:])) },
	"F32": func(b []byte, i int) float64 { return float64(math.Float32frombits(le.Uint32(b[4*i:]))) },
	"BF16": func(b []byte, i int) float64 {
		return float64(math.Float32frombits(uint32(le.Uint16(b[2*i:])) << 16))
	},
	"F16":     func(b []byte, i int) float64 { return float64(FromF16(le.Uint16(b[2*i:]))) },
	"F8_E5M2": func(b []byte, i int) float64 { return float64(FromF16(uint16(b[i]) << 8)) },
	"F8_E4M3": func(b []byte, i int) float64 { return fromE4M3(b[i]) },
	"F8_E8M0": func(b []byte, i int) float64 { return FromE8M0(b[i]) },
	"I64":     func(b []byte, i int) float64 { return float64(int64(le.Uint64(b[8*i:]))) },
	"U64":     func(b []byte, i int) float64 { return float64(le.Uint64(b[8*i:])) },
	"I32":     func(b []byte, i int) float64 { return float64(int32(le.Uint32(b[4*i:]))) },
	"U32":     func(b []byte, i int) float64 { return float64(le.Uint32(b[4*i:])) },
	"I16":     func(b []byte, i int) float64 { return float64(int16(le.Uint16(b[2*i:]))) },
	"U16":     func(b []byte, i int) float64 { return float64(le.Uint16(b[2*i:])) },
	"I8":      func(b []byte, i int) float64 { return float64(int8(b[i])) },
	"U8":      func(b []byte, i int) float64 { return float64(b[i]) },
	"BOOL":    func(b []byte, i int) float64 { return float64(b[i]) },
}

// integers holds the types whose every value is an int64.
var integers = map[string]func(raw []byte, i int) int64{
	"I64":  func(b []byte, i int) int64 { return int64(le.Uint64(b[8*i:])) },
	"I32":  func(b []byte, i int) int64 { return int64(int32(le.Uint32(b[4*i:]))) },
	"U32":  func(b []byte, i int) int64 { return int64(le.Uint32(b[4*i:])) },
	"I16":  func(b []byte, i int) int64 { return int64(int16(le.Uint16(b[2*i:]))) },
	"U16":  func(b []byte, i int) int64 { return int64(le.Uint16(b[2*i:])) },
	"I8":   func(b []byte, i int) int64 { return int64(int8(b[i])) },
	"U8":   func(b []byte, i int) int64 { return int64(b[i]) },
	"BOOL": func(b []byte, i int) int64 { return int64(b[i]) },
}

// FromF16 widens an IEEE half; the value is exact.
func FromF16(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	exp, mant := uint32(h>>10&31), uint32(h&0x3ff)
	switch {
	case exp == 31: // infinity and NaN
		return math.Float32frombits(sign | 0x7f800000 | mant<<13)
	case exp > 0:
		return math.Float32frombits(sign | (exp+112)<<23 | mant<<13)
	}
	v := float32(mant) * (1.0 / (1 << 24)) // zero and subnormals
	return math.Float32frombits(math.Float32bits(v) | sign)
}

// ToF16 rounds to the nearest half, ties to even; beyond the range: infinity.
func ToF16(v float32) uint16 {
	b := math.Float32bits(v)
	sign := uint16(b >> 16 & 0x8000)
	b &= 0x7fffffff
	switch {
	case b > 0x7f800000:
		return sign | 0x7e00 | uint16(b>>13&0x3ff)
	case b >= 0x477ff000: // rounds to 65520 or more
		return sign | 0x7c00
	case b < 0x38800000: // subnormal: adding 1/2 leaves the mantissa in units of 2^-24
		return sign | uint16(math.Float32bits(math.Float32frombits(b)+0.5)-0x3f000000)
	}
	return sign | uint16((b-0x38000000+0xfff+(b>>13&1))>>13)
}

// ToBF16 rounds to the nearest bfloat16, ties to even; NaN stays NaN.
func ToBF16(v float32) uint16 {
	b := math.Float32bits(v)
	if v != v {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + (b >> 16 & 1)) >> 16)
}

// fromE4M3 is OCP's e4m3: no infinity, one NaN a sign.
func fromE4M3(b byte) float64 {
	exp, mant := int(b>>3&15), float64(b&7)
	v := math.Ldexp(8+mant, exp-10)
	if exp == 0 {
		v = math.Ldexp(mant, -9)
	}
	if b&0x7f == 0x7f {
		v = math.NaN()
	}
	if b&0x80 != 0 {
		v = -v
	}
	return v
}

// FromE8M0 is 2^(exponent−127); NaN for 255 (OCP's Microscaling Formats, E8M0).
func FromE8M0(exponent byte) float64 {
	if exponent == math.MaxUint8 {
		return math.NaN()
	}
	return math.Ldexp(1, int(exponent)-127)
}

// Decode turns the bytes of a numeric dtype into float64 values, exact but for
// integers beyond 2^53. ok is false for types without values here.
func Decode(out []float64, dtype string, raw []byte) (ok bool) {
	read, ok := readers[dtype]
	if !ok {
		return false
	}
	for i := range out {
		out[i] = read(raw, i)
	}
	return true
}

// Encode appends values in dtype (F64, F32, BF16 or F16), rounded to nearest
// even. ok is false for other types.
func Encode[T float32 | float64](out []byte, dtype string, values []T) (_ []byte, ok bool) {
	switch dtype {
	case "F64":
		for _, v := range values {
			out = le.AppendUint64(out, math.Float64bits(float64(v)))
		}
	case "F32":
		for _, v := range values {
			out = le.AppendUint32(out, math.Float32bits(float32(v)))
		}
	case "BF16":
		for _, v := range values {
			out = le.AppendUint16(out, ToBF16(float32(v)))
		}
	case "F16":
		for _, v := range values {
			out = le.AppendUint16(out, ToF16(float32(v)))
		}
	default:
		return out, false
	}
	return out, true
}
