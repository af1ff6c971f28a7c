//go:build cgo && amd64

package bpe

/*
#cgo CFLAGS: -O3 -g0 -std=gnu11 -Wall
#include "kernel.h"
*/
import "C"

import (
	"math"
	"math/bits"
	"slices"
	"unsafe"
)

// kernel is kernel.c's part of an encoder. It does what encoder.text does for
// GPT-2's pattern.
type kernel struct {
	model     C.mt_bpe_model
	made, end C.int64_t // what it says of the last call
}

// packed is a Model in kernel.c's form, for all its encoders.
type packed struct {
	merges  []uint64
	pairs   []uint32
	some    []byte
	into    []int32
	bytes   []int32
	classes []class
	offset  uint32 // mt_bpe_model
}

var kernelUsable = C.mt_bpe_usable() != 0

// newKernel is nil where the processor or the model is not one for kernel.c.
func newKernel(m *Model) *kernel {
	if m.packed == nil {
		m.packed = pack(m)
	}
	p := m.packed
	if p.merges == nil {
		return nil
	}
	shorts, longs := large(int(C.mt_bpe_shorts_size())), large(int(C.mt_bpe_longs_size()))
	return &kernel{model: C.mt_bpe_model{
		merges:      (*C.uint64_t)(unsafe.SliceData(p.merges)),
		into:        (*C.int32_t)(unsafe.SliceData(p.into)),
		offset:      C.uint64_t(p.offset),
		pairs:       (*C.uint32_t)(unsafe.SliceData(p.pairs)),
		some:        (*C.uint8_t)(unsafe.SliceData(p.some)),
		mask:        C.uint64_t(len(p.merges) - 1),
		shift:       C.int64_t(64 - bits.Len(uint(len(p.merges)-1))),
		bytes:       (*C.int32_t)(unsafe.SliceData(p.bytes)),
		classes:     (*C.uint8_t)(unsafe.Pointer(unsafe.SliceData(p.classes))),
		class_count: C.uint64_t(len(p.classes)),
		shorts:      unsafe.Pointer(unsafe.SliceData(shorts)),
		longs:       unsafe.Pointer(unsafe.SliceData(longs)),
	}}
}

// pack is empty where kernel.c cannot do the model.
func pack(m *Model) *packed {
	p := &packed{classes: classTable(), bytes: slices.Clone(m.bytes[:])}
	if !kernelUsable || !m.pattern.gpt2 || m.tokens != nil || slices.Min(p.bytes) < 0 || slices.Max(p.bytes) >= C.mt_bpe_ids {
		return p
	}
	// A table of 2^log slots is at most 4/5 full; ranks must fit the bits that an entry has for them.
	log := bits.Len(uint(m.merges.count + m.merges.count/4))
	top := int32(0)
	for _, s := range m.merges.slots {
		top = max(top, s.rank)
	}
	if top >= C.mt_bpe_rank {
		return p
	}
	// All that merging visits lies side by side: on one large page if it fits.
	memory := large(8<<log + 4<<16 + 1<<(C.mt_bpe_some_log-3) + 4*(int(top)+1))
	merges := carve[uint64](&memory, 1<<log)
	p.pairs, p.some, p.into = carve[uint32](&memory, 1<<16), carve[byte](&memory, 1<<(C.mt_bpe_some_log-3)), carve[int32](&memory, int(top)+1)
	for _, s := range m.merges.slots {
		if s.pair == 0 {
			continue
		}
		// An entry: 38 bits of the pair, 26 of its rank. `some` is a bit filter in front of the table.
		left, right := s.pair>>32-1, s.pair&math.MaxUint32
		if left >= C.mt_bpe_ids || right >= C.mt_bpe_ids || uint32(s.id) >= C.mt_bpe_ids {
			return p
		}
		p.into[s.rank] = s.id
		pair := left<<19 | right
		h := pair * 0x9e3779b97f4a7c15
		p.some[h>>(64-C.mt_bpe_some_log+3)] |= 1 << (h >> (64 - C.mt_bpe_some_log) & 7)
		i := h >> (64 - log)
		for merges[i] != 0 {
			i = (i + 1) & (1<<log - 1)
		}
		merges[i] = pair<<26 | uint64(s.rank+1)
	}
	// Pairs of bytes, by which every piece begins, have a table of their own.
	for i := range p.pairs {
		p.pairs[i] = math.MaxUint32
		if rank, id := m.merges.Find(p.bytes[i>>8], p.bytes[i&0xff]); id >= 0 {
			p.pairs[i] = uint32(rank)
		}
	}
	p.offset = offsetOf(p.into)
	p.merges = merges
	return p
}

// offsetOf is what all ids have above their ranks; 0 without such a number.
func offsetOf(into []int32) uint32 {
	for rank, id := range into {
		if id-int32(rank) != into[0] {
			return 0
		}
	}
	if len(into) == 0 {
		return 0
	}
	return uint32(into[0])
}

// carve takes n numbers from the front of memory.
func carve[T any](memory *[]byte, n int) []T {
	var zero T
	size := n * int(unsafe.Sizeof(zero))
	out := unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(*memory))), n)
	*memory = (*memory)[size:]
	return out
}

// large is n bytes of zeros at least, on large pages where there are any.
func large(n int) []byte {
	const page = 2 << 20
	n = (n + page - 1) &^ (page - 1)
	b := make([]byte, n+page)
	b = b[-uintptr(unsafe.Pointer(unsafe.SliceData(b)))%page:][:n]
	C.mt_bpe_advise(unsafe.Pointer(unsafe.SliceData(b)), C.size_t(n))
	return b
}

// spare is space for ids that the kernel wants behind those of a text.
const spare = 16

// text adds the ids of text; hard does a piece that is long.
func (k *kernel) text(dst []int32, text []byte, hard func(dst []int32, piece []byte) []int32) []int32 {
	for len(text) > 0 {
		dst = slices.Grow(dst, min(len(text), 1<<15)+spare)
		free := dst[len(dst):cap(dst)]
		at := C.mt_bpe_gpt2(k.model, (*C.uint8_t)(unsafe.SliceData(text)), C.int64_t(len(text)),
			(*C.int32_t)(unsafe.SliceData(free)), C.int64_t(len(free)), &k.made, &k.end)
		dst = dst[:len(dst)+int(k.made)]
		if k.end > 0 {
			dst = hard(dst, text[at:k.end])
			at = k.end
		}
		text = text[at:]
	}
	return dst
}
