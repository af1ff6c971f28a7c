package gguf

import (
	"math"
	"slices"

	"monotron/internal/safetensors"
)

// Writable reports whether Encode makes a type.
func (t Type) Writable() bool {
	return t == F32 || t == F16 || t == BF16 || t == Q8_0 || t == MXFP4
}

// Encode turns values into the bytes of a type, which must be Writable and fill
// complete blocks. F16 and BF16 are rounded to nearest even; Q8_0 is what ggml's
// reference function makes. MXFP4 holds values that were read from it (see HoldsMXFP4) as they are.
func Encode(dst []byte, t Type, values []float32) {
	switch t {
	case F32:
		for i, v := range values {
			le.PutUint32(dst[4*i:], math.Float32bits(v))
		}
	case F16:
		for i, v := range values {
			le.PutUint16(dst[2*i:], safetensors.ToF16(v))
		}
	case BF16:
		for i, v := range values {
			le.PutUint16(dst[2*i:], safetensors.ToBF16(v))
		}
	case Q8_0:
		for len(values) > 0 {
			encodeQ8_0(dst, values[:32])
			dst, values = dst[34:], values[32:]
		}
	case MXFP4:
		for len(values) > 0 {
			encodeMXFP4(dst, values[:32])
			dst, values = dst[17:], values[32:]
		}
	}
}

// HoldsMXFP4 reports whether Encode gives values as they are.
func HoldsMXFP4(values []float32) bool {
	var block [17]byte
	for len(values) >= 32 {
		if !encodeMXFP4(block[:], values[:32]) {
			return false
		}
		values = values[32:]
	}
	return len(values) == 0
}

// encodeMXFP4 writes 32 values that are codes of one scale. Two scales may fit, with a largest code of 3 or of 6: it is the
// larger one, since OpenAI's quantiser never leaves the smaller one without odd codes but by chance.
func encodeMXFP4(dst []byte, values []float32) bool {
	most := float32(0)
	for _, v := range values {
		most = max(most, float32(math.Abs(float64(v))))
	}
	fraction, exponent := math.Frexp(float64(most)) // 0.5 or 0.75 of a power of two, if it is a code's
	scales := []int{exponent - 3}                   // a code of 4, or 6
	switch {
	case most == 0:
		scales = []int{-127}
	case fraction == 0.75:
		scales = []int{exponent - 2, exponent - 3}
	case fraction != 0.5:
		return false
	}
	for _, scale := range scales {
		if scale >= -127 && scale <= 127 && codesMXFP4(dst[1:17], values, scale) {
			dst[0] = byte(scale + 127)
			return true
		}
	}
	return false
}

// codesMXFP4 writes the codes of a scale, a power of two, if all values have one.
func codesMXFP4(dst []byte, values []float32, scale int) bool {
	clear(dst)
	for i, v := range values {
		twice := float32(math.Ldexp(math.Abs(float64(v)), 1-scale))
		code := slices.Index(fp4[:8], twice)
		if code < 0 {
			return false
		}
		dst[i%16] |= (byte(code) | byte(math.Float32bits(v)>>28&8)) << (i / 16 * 4)
	}
	return true
}

// encodeQ8_0 writes d = max|x|/127 as a half, and x/d rounded half away from zero:
// the codes are made with d before it is rounded.
func encodeQ8_0(dst []byte, values []float32) {
	most := float32(0)
	for _, v := range values {
		most = max(most, float32(math.Abs(float64(v))))
	}
	d := most / 127
	inverse := float32(0)
	if d != 0 {
		inverse = 1 / d
	}
	le.PutUint16(dst, safetensors.ToF16(d))
	for i, v := range values {
		dst[2+i] = byte(int8(math.Round(float64(v * inverse))))
	}
}
