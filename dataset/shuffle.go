package dataset

import (
	"math"
	"math/bits"
)

// shuffle is RandomState.shuffle: for i from the last element down to the second,
// swap with an element drawn from 0..i.
//
// Written so, each swap of a large array waits for memory and each rejected draw
// for a mispredicted branch. So draws are made many at a time without branches,
// the elements they name are read together, and only then are they swapped, in
// the order that numpy has.
func shuffle[T uint32 | int64](m *mersenne, a []T) {
	if short, ok := any(a).([]uint32); ok && shuffleInC && len(a) <= math.MaxUint32 {
		shuffleKernel(m, short)
		return
	}
	shuffleInGo(m, a)
}

func shuffleInGo[T uint32 | int64](m *mersenne, a []T) {
	const many = 256
	var draws [many]uint32
	for i := len(a) - 1; i > 0; {
		if uint64(i) > math.MaxUint32 {
			j := m.upTo(uint64(i))
			a[i], a[j] = a[j], a[i]
			i--
			continue
		}
		n := m.draw(draws[:], uint32(i))
		fetch(a, draws[:n])
		for _, j := range draws[:n] {
			a[i], a[j] = a[j], a[i]
			i--
		}
	}
}

// draw fills dst with numbers for the elements top, top-1, ... and returns how many
// those are: all of dst, or fewer where the mask changes, at a power of two.
func (m *mersenne) draw(dst []uint32, top uint32) int {
	width := bits.Len32(top)
	mask := uint32(1)<<width - 1
	dst = dst[:min(uint32(len(dst)), top-uint32(1)<<(width-1)+1)]
	n := 0
	for n < len(dst) {
		if m.at == int64(len(m.out)) {
			m.refill()
		}
		out := m.out[m.at:]
		out = out[:min(len(out), len(dst)-n)] // no more than are wanted, even if none is rejected
		for _, v := range out {
			v &= mask
			dst[n] = v
			accepted := 0
			if v <= top {
				accepted = 1
			}
			n += accepted
			top -= uint32(accepted)
		}
		m.at += int64(len(out))
	}
	return n
}

// fetch reads the rows, so that the processor loads them side by side.
func fetch[T uint32 | int64](a []T, rows []uint32) {
	var sum T
	for _, j := range rows {
		sum += a[j]
	}
	fetched(sum)
}

// fetched keeps the compiler from dropping what fetch reads.
//
//go:noinline
func fetched[T uint32 | int64](T) {}
