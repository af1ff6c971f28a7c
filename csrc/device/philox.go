package device

import "math/bits"

// Philox is Philox4x32-10 (Salmon et al., SC 2011): four random words that
// depend on key and counter alone.
func Philox(key uint64, c [4]uint32) [4]uint32 {
	const m0, m1, w0, w1 = 0xD2511F53, 0xCD9E8D57, 0x9E3779B9, 0xBB67AE85
	k0, k1 := uint32(key), uint32(key>>32)
	for range 10 {
		h0, l0 := bits.Mul32(m0, c[0])
		h1, l1 := bits.Mul32(m1, c[2])
		c = [4]uint32{h1 ^ c[1] ^ k0, l1, h0 ^ c[3] ^ k1, l0}
		k0 += w0
		k1 += w1
	}
	return c
}

// Mix is the finaliser of splitmix64.
func Mix(x uint64) uint64 {
	x += 0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// StreamKey names a stream of random numbers: a seed and a name with the
// global layer number, such as "layers.3.attention_dropout".
func StreamKey(seed uint64, name string) uint64 {
	h := uint64(14695981039346656037) // FNV-1a
	for i := 0; i < len(name); i++ {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	return Mix(Mix(seed) ^ h)
}

// StepKey is the Philox key of a stream at a step; kernels compute it from the
// step they read.
func StepKey(stream, step uint64) uint64 { return Mix(stream ^ Mix(step)) }

// DropThreshold: a word below it drops its element.
func DropThreshold(rate float32) uint32 { return uint32(float64(rate) * (1 << 32)) }
