//go:build cgo

package device

import (
	"testing"
	"unsafe"
)

// Claim (ops.h): argument structs, and what a device knows, are the same bytes in Go and in C.
func TestArgumentLayouts(t *testing.T) {
	for op := range Ops {
		if op.ArgBytes() != argsBytes(op) {
			t.Errorf("%s: %d bytes in Go, %d in C", op, op.ArgBytes(), argsBytes(op))
		}
	}
	if size := unsafe.Sizeof(Known{}); size != knownBytes {
		t.Errorf("what a device knows: %d bytes in Go, %d in C", size, knownBytes)
	}
}

// Claim (Salmon et al., Random123's kat_vectors): Philox4x32-10's known answers.
func TestPhiloxKnownAnswers(t *testing.T) {
	for _, c := range []struct {
		key     uint64
		counter [4]uint32
		want    [4]uint32
	}{
		{0, [4]uint32{}, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{1<<64 - 1, [4]uint32{1<<32 - 1, 1<<32 - 1, 1<<32 - 1, 1<<32 - 1}, [4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{0x299f31d0a4093822, [4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, [4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	} {
		if got := Philox(c.key, c.counter); got != c.want {
			t.Errorf("key %x counter %x: %x, want %x", c.key, c.counter, got, c.want)
		}
	}
}

// Claim: on a GPU blocks lie at multiples of 256, whatever was taken before: what a library of
// products chooses, and so its sums, cannot depend on where the arena had space.
func TestBlocksOnGPULieAlike(t *testing.T) {
	for name, want := range map[string]uintptr{"cuda": 256, "cpu": 64} {
		d := Counting(name, nil, Watching{})
		for n := int64(1); n < 300; n += 7 {
			x, y := d.Arena.Alloc(Activations, BF16, n), d.Arena.Alloc(Workspace, F32, n, 3)
			if uintptr(x.Data)%want != 0 || uintptr(y.Data)%want != 0 {
				t.Fatalf("%s: %v, %v", name, x, y)
			}
			if n%2 == 0 {
				d.Arena.Free(x)
			}
		}
	}
}
