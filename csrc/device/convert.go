package device

import (
	"math"
	"unsafe"
)

// Conversions between element types on the host. All round to nearest even;
// what is too large becomes inf, what is small a subnormal, NaN stays NaN.

// F32ToBF16 rounds src into dst, which is as long.
func F32ToBF16(dst []uint16, src []float32) {
	for i, x := range src {
		dst[i] = bf16Bits(x)
	}
}

// BF16ToF32 widens src into dst, which is as long.
func BF16ToF32(dst []float32, src []uint16) {
	for i, h := range src {
		dst[i] = math.Float32frombits(uint32(h) << 16)
	}
}

// F32ToF16 rounds src into dst, which is as long.
func F32ToF16(dst []uint16, src []float32) {
	for i, x := range src {
		dst[i] = f16Bits(x)
	}
}

// F16ToF32 widens src into dst, which is as long.
func F16ToF32(dst []float32, src []uint16) {
	for i, h := range src {
		dst[i] = f16Value(h)
	}
}

// ToFloat64 is the values of src, elements of type d.
func ToFloat64(d DType, src []byte) []float64 {
	out := make([]float64, int64(len(src))/d.Size())
	LoadFloat64(out, d, unsafe.Pointer(unsafe.SliceData(src)))
	return out
}

// FromFloat64 is the bytes of src as elements of type d, rounded once. Integers
// lose their fraction.
func FromFloat64(d DType, src []float64) []byte {
	out := make([]byte, int64(len(src))*d.Size())
	StoreFloat64(unsafe.Pointer(unsafe.SliceData(out)), d, src)
	return out
}

// LoadFloat64 widens len(dst) elements of type d at p.
func LoadFloat64(dst []float64, d DType, p unsafe.Pointer) {
	n := len(dst)
	switch d {
	case F32:
		widen(dst, unsafe.Slice((*float32)(p), n))
	case F64:
		copy(dst, unsafe.Slice((*float64)(p), n))
	case BF16:
		for i, h := range unsafe.Slice((*uint16)(p), n) {
			dst[i] = float64(math.Float32frombits(uint32(h) << 16))
		}
	case F16:
		for i, h := range unsafe.Slice((*uint16)(p), n) {
			dst[i] = float64(f16Value(h))
		}
	case I32:
		widen(dst, unsafe.Slice((*int32)(p), n))
	case I64:
		widen(dst, unsafe.Slice((*int64)(p), n))
	case U16:
		widen(dst, unsafe.Slice((*uint16)(p), n))
	case U8:
		widen(dst, unsafe.Slice((*uint8)(p), n))
	}
}

// StoreFloat64 rounds src, once, to elements of type d at p.
func StoreFloat64(p unsafe.Pointer, d DType, src []float64) {
	n := len(src)
	switch d {
	case F32:
		narrow(unsafe.Slice((*float32)(p), n), src)
	case F64:
		copy(unsafe.Slice((*float64)(p), n), src)
	case BF16:
		out := unsafe.Slice((*uint16)(p), n)
		for i, x := range src {
			out[i] = bf16Bits(toOdd(x))
		}
	case F16:
		out := unsafe.Slice((*uint16)(p), n)
		for i, x := range src {
			out[i] = f16Bits(toOdd(x))
		}
	case I32:
		narrow(unsafe.Slice((*int32)(p), n), src)
	case I64:
		narrow(unsafe.Slice((*int64)(p), n), src)
	case U16:
		narrow(unsafe.Slice((*uint16)(p), n), src)
	case U8:
		narrow(unsafe.Slice((*uint8)(p), n), src)
	}
}

type number interface {
	~float32 | ~int32 | ~int64 | ~uint16 | ~uint8
}

func widen[T number](dst []float64, src []T) {
	for i, x := range src {
		dst[i] = float64(x)
	}
}

func narrow[T number](dst []T, src []float64) {
	for i, x := range src {
		dst[i] = T(x)
	}
}

// toOdd is x as a float32 whose last bit is set when x did not fit, so that
// rounding the result to fewer bits rounds x itself (Boldo and Melquiond, 2005).
func toOdd(x float64) float32 {
	f := float32(x)
	if back := float64(f); back == x || back != back {
		return f
	} else if math.Abs(back) > math.Abs(x) {
		f = math.Float32frombits(math.Float32bits(f) - 1) // toward zero; from inf to the largest
	}
	return math.Float32frombits(math.Float32bits(f) | 1)
}

func bf16Bits(x float32) uint16 {
	b := math.Float32bits(x)
	if x != x {
		return uint16(b>>16) | 0x40 // quiet: the payload may lie in the lost half
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

func f16Bits(x float32) uint16 {
	b := math.Float32bits(x)
	sign, b := uint16(b>>16)&0x8000, b&0x7fffffff
	switch {
	case b > 0x7f800000:
		return sign | 0x7e00 | uint16(b>>13)&0x3ff
	case b >= 0x477ff000: // 65520, half way past the largest
		return sign | 0x7c00
	case b < 0x38800000: // 2^-14: adding 1/2 puts the last bit at 2^-24
		return sign | uint16(math.Float32bits(math.Float32frombits(b)+0.5)-0x3f000000)
	}
	return sign | uint16((b-0x38000000+0xfff+b>>13&1)>>13)
}

func f16Value(h uint16) float32 {
	b := uint32(h&0x7fff) << 13
	if h&0x7c00 == 0x7c00 {
		b |= 0x7f800000
	} else {
		b = math.Float32bits(math.Float32frombits(b) * 0x1p112) // moves the exponent's bias; exact
	}
	return math.Float32frombits(b | uint32(h&0x8000)<<16)
}
