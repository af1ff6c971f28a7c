package dataset

import "math/bits"

// mersenne is MT19937 with Knuth's initialisation, as numpy's RandomState and
// torch's CPU generator start it.
type mersenne struct {
	state [624]uint32
	out   [624]uint32 // the numbers of this state
	at    int64       // of the next number in out
}

func newMersenne(seed uint32) *mersenne {
	m := &mersenne{at: 624}
	m.state[0] = seed
	for i := 1; i < len(m.state); i++ {
		seed = 1812433253*(seed^seed>>30) + uint32(i)
		m.state[i] = seed
	}
	return m
}

// refill makes the next state and its 624 numbers.
func (m *mersenne) refill() {
	s := &m.state
	for i := 0; i < 227; i++ {
		s[i] = twist(s[i], s[i+1], s[i+397])
	}
	for i := 227; i < 623; i++ {
		s[i] = twist(s[i], s[i+1], s[i-227])
	}
	s[623] = twist(s[623], s[0], s[396])
	for i, y := range s {
		y ^= y >> 11
		y ^= y << 7 & 0x9d2c5680
		y ^= y << 15 & 0xefc60000
		m.out[i] = y ^ y>>18
	}
	m.at = 0
}

func twist(a, b, far uint32) uint32 {
	y := a&0x80000000 | b&0x7fffffff
	return far ^ y>>1 ^ -(y&1)&0x9908b0df
}

func (m *mersenne) uint32() uint32 {
	if m.at == int64(len(m.out)) {
		m.refill()
	}
	v := m.out[m.at]
	m.at++
	return v
}

// upTo is numpy's random_interval: a number in [0, top] by masked rejection.
func (m *mersenne) upTo(top uint64) uint64 {
	mask := uint64(1)<<bits.Len64(top) - 1
	if top <= 0xffffffff {
		for {
			if v := uint64(m.uint32()) & mask; v <= top {
				return v
			}
		}
	}
	for {
		high := uint64(m.uint32()) << 32
		if v := (high | uint64(m.uint32())) & mask; v <= top {
			return v
		}
	}
}

// randperm is torch.randperm(n) of a CPU generator with the given seed. From
// 2^32/20 items on torch builds the permutation inside out, from 64-bit draws.
func randperm(n int64, seed uint32) []int64 {
	m, p := newMersenne(seed), make([]int64, n)
	if n >= 1<<32/20 {
		for i := int64(0); i < n; i++ {
			high := uint64(m.uint32()) << 32
			z := int64((high | uint64(m.uint32())) % uint64(i+1))
			p[i] = p[z]
			p[z] = i
		}
		return p
	}
	for i := range p {
		p[i] = int64(i)
	}
	for i := int64(0); i < n-1; i++ {
		z := i + int64(m.uint32()%uint32(n-i))
		p[i], p[z] = p[z], p[i]
	}
	return p
}

// pcg64 is numpy's default generator (PCG XSL-RR 128/64).
type pcg64 struct {
	stateHigh, stateLow uint64
	half                uint32 // the upper half of the last draw
	haveHalf            bool
}

// newPCG64Zero is default_rng(0).
func newPCG64Zero() *pcg64 {
	return &pcg64{stateHigh: 0x1aa1b5345996452d, stateLow: 0x09585eb7a69561e3}
}

const (
	pcgMulHigh, pcgMulLow = 0x2360ed051fc65da4, 0x4385df649fccf645
	pcgIncHigh, pcgIncLow = 0x418ddadb3af71a82, 0x588133bc447873a9 // of default_rng(0)
)

func (p *pcg64) uint64() uint64 {
	high, low := bits.Mul64(p.stateLow, pcgMulLow)
	high += p.stateHigh*pcgMulLow + p.stateLow*pcgMulHigh
	low, carry := bits.Add64(low, pcgIncLow, 0)
	high, _ = bits.Add64(high, pcgIncHigh, carry)
	p.stateHigh, p.stateLow = high, low
	return bits.RotateLeft64(high^low, -int(high>>58))
}

// uint32 gives the low half of a draw, then its high half.
func (p *pcg64) uint32() uint32 {
	if p.haveHalf {
		p.haveHalf = false
		return p.half
	}
	v := p.uint64()
	p.half, p.haveHalf = uint32(v>>32), true
	return uint32(v)
}

// below is Generator.integers(0, n) for a 32-bit range (Lemire's method).
func (p *pcg64) below(n uint32) uint32 {
	m := uint64(p.uint32()) * uint64(n)
	for least := -n % n; uint32(m) < least; {
		m = uint64(p.uint32()) * uint64(n)
	}
	return uint32(m >> 32)
}
