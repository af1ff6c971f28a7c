package fingerprint

import (
	"math/rand/v2"
	"testing"
)

// Claim: the C kernel and Go give the same sums, for every size of element, length and index.
func TestKernelMatchesGo(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		size := []int{1, 2, 4}[r.IntN(3)]
		data := make([]byte, size*r.IntN(300))
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		var fast, plain Sum
		at, keys := r.Uint32(), [2]uint32{r.Uint32(), r.Uint32()}
		if r.IntN(2) == 0 {
			at = 1<<32 - 10 // the index wraps around
		}
		add(&fast, data, size, at, keys)
		addGo(&plain, data, size, at, keys)
		if fast != plain {
			t.Fatalf("%d bytes of size %d at %d: %v by C, %v by Go", len(data), size, at, fast, plain)
		}
	}
}

// Claim: however a tensor is divided, and in whatever order the parts come, the sum is one.
func TestPartsInAnyOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	key := KeyOf("decoder.layers.0.mlp.linear_fc1.weight", "F32", []int64{100, 10})
	for _, size := range []int{2, 4, 8} {
		data := make([]byte, 1000*size)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		for _, start := range []int64{0, 1<<32 - 500, 1<<31 - 300} {
			var all Sum
			all.Add(key, data, size, start)
			var parts []Sum
			for from := 0; from < 1000; {
				to := min(1000, from+1+r.IntN(90))
				var part Sum
				part.Add(key, data[from*size:to*size], size, start+int64(from))
				parts, from = append(parts, part), to
			}
			r.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
			var sum Sum
			for _, p := range parts {
				sum.Plus(p)
			}
			if sum != all {
				t.Errorf("size %d from %d: %v of the parts, %v of all", size, start, sum, all)
			}
		}
	}
}

// Claim: one bit, two elements exchanged, another name, type or shape: another sum.
func TestChangesShow(t *testing.T) {
	data := make([]byte, 4096)
	for i := range data {
		data[i] = byte(i * 7)
	}
	sum := func(name, dtype string, shape ...int64) (s Sum) {
		s.Add(KeyOf(name, dtype, shape), data, 4, 0)
		return s
	}
	before := sum("w", "F32", 32, 32)
	for what, after := range map[string]Sum{"name": sum("v", "F32", 32, 32), "type": sum("w", "I32", 32, 32), "shape": sum("w", "F32", 64, 16)} {
		if after == before {
			t.Errorf("another %s has the same sum", what)
		}
	}
	for bit := range len(data) * 8 {
		data[bit/8] ^= 1 << (bit % 8)
		if sum("w", "F32", 32, 32) == before {
			t.Fatalf("bit %d does not show", bit)
		}
		data[bit/8] ^= 1 << (bit % 8)
	}
	for i := 4; i < len(data); i += 4 {
		a, b := [4]byte(data[:4]), [4]byte(data[i:])
		if a == b {
			continue
		}
		copy(data, b[:])
		copy(data[i:], a[:])
		if sum("w", "F32", 32, 32) == before {
			t.Fatalf("elements 0 and %d exchanged do not show", i/4)
		}
		copy(data, a[:])
		copy(data[i:], b[:])
	}
	clear(data)
	var short, long Sum
	short.Add(1, data[:8], 4, 0)
	long.Add(1, data[:12], 4, 0)
	if short == long {
		t.Error("a zero more does not show")
	}
}

// Claim: the sum and the hash have not changed: checkpoints of years ago have theirs in logs.
func TestFixedValue(t *testing.T) {
	var s Sum
	s.Add(KeyOf("w", "F32", []int64{3}), []byte{0, 0, 128, 63, 0, 0, 0, 64, 0, 0, 64, 64}, 4, 0)
	const sum, hash = "4510c0d54dfc2f9f65244548001d6f5d", "c28358112888921ac66631258a8a74ad3da75a0a1b5967faa5cf890de6f20355" // made by the definition in Python
	if s.String() != sum || s.Hash() != hash {
		t.Errorf("sum %s, hash %s; want %s, %s", s, s.Hash(), sum, hash)
	}
}

func BenchmarkSum(b *testing.B) {
	data := make([]byte, 64<<20)
	var s Sum
	for b.Loop() {
		s.Add(1, data, 4, 0)
	}
	b.SetBytes(int64(len(data)))
}
