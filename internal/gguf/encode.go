package gguf

import (
	"math"

	"monotron/internal/safetensors"
)

// Writable reports whether Encode makes a type.
func (t Type) Writable() bool { return t == F32 || t == F16 || t == BF16 || t == Q8_0 }

// Encode turns values into the bytes of a type, which must be Writable and fill
// complete blocks. F16 and BF16 are rounded to nearest even; Q8_0 is what ggml's
// reference function makes.
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
	}
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
