//go:build cgo

package device

import (
	"testing"
	"unsafe"
)

// Claim (device.h): argument structs are the same bytes in Go and in C.
func TestArgumentLayouts(t *testing.T) {
	goSizes := [Ops]uintptr{
		unsafe.Sizeof(MatmulArgs{}), unsafe.Sizeof(NormForwardArgs{}), unsafe.Sizeof(NormBackwardArgs{}), unsafe.Sizeof(ActivationForwardArgs{}),
		unsafe.Sizeof(ActivationBackwardArgs{}), unsafe.Sizeof(RopeArgs{}), unsafe.Sizeof(AttentionForwardArgs{}), unsafe.Sizeof(AttentionBackwardArgs{}),
		unsafe.Sizeof(EmbeddingForwardArgs{}), unsafe.Sizeof(EmbeddingBackwardArgs{}), unsafe.Sizeof(CrossEntropyStatsArgs{}),
		unsafe.Sizeof(CrossEntropyLossArgs{}), unsafe.Sizeof(CrossEntropyGradArgs{}), unsafe.Sizeof(DropoutAddArgs{}), unsafe.Sizeof(DropoutBackwardArgs{}),
		unsafe.Sizeof(ColumnSumArgs{}), unsafe.Sizeof(AddArgs{}), unsafe.Sizeof(CopyArgs{}), unsafe.Sizeof(FillArgs{}), unsafe.Sizeof(UniformArgs{}),
		unsafe.Sizeof(GradStatsArgs{}), unsafe.Sizeof(WeightedSumArgs{}), unsafe.Sizeof(GradScaleArgs{}), unsafe.Sizeof(AdamWArgs{}), unsafe.Sizeof(SGDArgs{}),
	}
	for op := Op(0); op < Ops; op++ {
		if int64(goSizes[op]) != cSize(op) {
			t.Errorf("%s: %d bytes in Go, %d in C", op, goSizes[op], cSize(op))
		}
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
