package gguf

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// dequantised are SHA-256 of the values of 64 blocks as the Python package gguf 0.19
// dequantises them (gguf.quants.dequantize, which is tested against ggml's C functions);
// tests/proofs/checkpoints/gguf_peers.py computes them again.
var dequantised = []struct {
	kind   Type
	halves []int // offsets of halves in a block, which are made finite
	hash   string
}{
	{Q4_0, []int{0}, "8dbc134dab0083197cccb053868bab3345fe2661f9305c79f1b63387f6222d7d"},
	{Q4_1, []int{0, 2}, "c1825fb825a57a448b9b27dc6457ccce4c40d1f64d1074df503e8ca439e708d3"},
	{Q5_0, []int{0}, "f2d6c5fb0e3f8f0cff435cb06d7d593352d6831b6ec814b15434af92a1b667dc"},
	{Q5_1, []int{0, 2}, "018da1a47213184a4a54705ad98a54725170383a1fbbbaa770829f261d8ea594"},
	{Q8_0, []int{0}, "97b4421fb09708741548755d9a5c7f9e3caa1ba8800bc81b3a1bae92b57c60d1"},
	{Q2_K, []int{80, 82}, "e9771fb5968888bc5355dd18eb7117fc07aebbb98d2de12b084248da1d8e4a09"},
	{Q3_K, []int{108}, "850bdecf9fb3d243fb261223f006130648bb709e2af40924e5f25f0e577baf3a"},
	{Q4_K, []int{0, 2}, "ff0f3cc0b25dac66acdd3a21c4063785edc0295458c8579965943819aaeb6ce7"},
	{Q5_K, []int{0, 2}, "c56c7c5f57962ccad854930c13cee18849ede720a7ce4a7d38517be4ca5ec046"},
	{Q6_K, []int{208}, "7426d6e24ebaf2b5b69bb655544c123f549abe1fef917578cbc748416f1e13fc"},
	{MXFP4, []int{}, "5a1d7ee0bc4fde395e5ac04391ae9ed9a4269705d2ea0dcf5f44434350fd2eb5"},
}

// pseudoRandom are the bytes of so many blocks of a type, from a linear congruential generator.
func pseudoRandom(kind Type, halves []int, n int) []byte {
	size := int(layouts[kind].bytes)
	state := uint32(12345)
	raw := make([]byte, n*size)
	for i := range raw {
		state = state*1664525 + 1013904223
		raw[i] = byte(state >> 24)
	}
	for b := 0; b < len(raw); b += size {
		for _, h := range halves {
			raw[b+h+1] = raw[b+h+1]&0x83 | 0x30
		}
		if kind == MXFP4 {
			raw[b] %= 250
		}
	}
	return raw
}

// Claim: blocks of every type give ggml's values, bit for bit. Source: the package gguf.
func TestBlocksAsGGML(t *testing.T) {
	for _, c := range dequantised {
		values := make([]float32, 64*layouts[c.kind].elements)
		Decode(values, c.kind, pseudoRandom(c.kind, c.halves, 64))
		out := make([]byte, 4*len(values))
		Encode(out, F32, values)
		sum := sha256.Sum256(out)
		if got := hex.EncodeToString(sum[:]); got != c.hash {
			t.Errorf("%v: %s, want %s (first value %g)", c.kind, got, c.hash, values[0])
		}
	}
}

// Claim: Q8_0 rounds half away from zero by the scale before it is a half. Source: ggml's
// quantize_row_q8_0_ref.
func TestQ8Rounds(t *testing.T) {
	values := make([]float32, 32)
	values[0], values[1], values[2], values[3] = 127, 0.5, -0.5, -1.49
	raw := make([]byte, 34)
	Encode(raw, Q8_0, values)
	if got := [4]int8{int8(raw[2]), int8(raw[3]), int8(raw[4]), int8(raw[5])}; half(raw) != 1 || got != [4]int8{127, 1, -1, -1} {
		t.Errorf("scale %g, codes %v", half(raw), got)
	}
	Encode(raw, Q8_0, make([]float32, 32))
	back := make([]float32, 32)
	if Decode(back, Q8_0, raw); math.Float32bits(back[0]) != 0 {
		t.Errorf("a block of zeros gives %g", back[0])
	}
}

// Claim: values that MXFP4 stands for are written as they are, in the same bytes where the largest code is OpenAI's, 3 or
// above, and others are reported. Source: the format.
func TestMXFP4IsExact(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 8))
	for range 2000 {
		raw, values, again := make([]byte, 17), make([]float32, 32), make([]byte, 17)
		raw[0] = byte(1 + r.IntN(250))
		for i := range raw[1:] {
			raw[1+i] = byte(r.Uint32())
		}
		raw[1] |= 7 // a largest code of 6
		Decode(values, MXFP4, raw)
		if !HoldsMXFP4(values) {
			t.Fatalf("% x is not held", raw)
		}
		Encode(again, MXFP4, values)
		back := make([]float32, 32)
		Decode(back, MXFP4, again)
		if !slices.Equal(values, back) {
			t.Fatalf("% x is written as % x", raw, again)
		}
		values[3] = values[0] * 0.9
		if HoldsMXFP4(values) {
			t.Fatalf("%v is held", values)
		}
	}
}
