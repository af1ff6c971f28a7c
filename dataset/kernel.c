//go:build cgo && amd64

// The loops of index building that gain most from vectors and prefetching: numpy's
// shuffle, and the order of a blend.

#include "kernel.h"

#include <immintrin.h>
#include <math.h>

int mt_shuffle_usable(void) { return __builtin_cpu_supports("avx2"); }

int mt_blend_usable(void) { return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq"); }

static inline uint32_t twist(uint32_t a, uint32_t b, uint32_t far) {
	uint32_t y = (a & 0x80000000u) | (b & 0x7fffffffu);
	return far ^ y >> 1 ^ (-(y & 1) & 0x9908b0dfu);
}

// refill makes the next 624 numbers. In steps of eight no number needs one of the same step.
__attribute__((target("avx2"))) static void refill(mt_mersenne *m) {
	uint32_t *s = m->state;
#pragma GCC ivdep
	for (int i = 0; i < 227; i++) s[i] = twist(s[i], s[i + 1], s[i + 397]);
#pragma GCC ivdep
	for (int i = 227; i < 623; i++) s[i] = twist(s[i], s[i + 1], s[i - 227]);
	s[623] = twist(s[623], s[0], s[396]);
	for (int i = 0; i < 624; i++) {
		uint32_t y = s[i];
		y ^= y >> 11;
		y ^= y << 7 & 0x9d2c5680u;
		y ^= y << 15 & 0xefc60000u;
		m->out[i] = y ^ y >> 18;
	}
	m->at = 0;
}

enum { many = 256 };

// draw fills places with numbers for top, top-1, ..., asks for the memory they
// name, and says how many there are: fewer than many where the mask changes.
__attribute__((target("avx2,lzcnt"))) static int draw(mt_mersenne *m, const uint32_t *a, uint32_t top, uint32_t *places) {
	int width = 32 - (int)_lzcnt_u32(top), n = 0;
	uint32_t mask = (uint32_t)(((uint64_t)1 << width) - 1), wanted = top - ((uint32_t)1 << (width - 1)) + 1;
	if (wanted > many) wanted = many;
	while (n < (int)wanted) {
		if (m->at == 624) refill(m);
		int64_t left = 624 - m->at, most = (int)wanted - n;
		if (left > most) left = most; // no more than are wanted, even if none is rejected
		const uint32_t *out = m->out + m->at;
		for (int64_t k = 0; k < left; k++) {
			uint32_t v = out[k] & mask, accepted = v <= top;
			places[n] = v;
			n += (int)accepted;
			top -= accepted;
		}
		m->at += left;
	}
	for (int k = 0; k < n; k++) __builtin_prefetch(a + places[k], 1);
	return n;
}

void mt_shuffle(mt_mersenne *m, uint32_t *a, int64_t n) {
	uint32_t places[2][many + 1];
	int64_t i = n - 1;
	int turn = 0, count = i > 0 ? draw(m, a, (uint32_t)i, places[0]) : 0;
	while (count > 0) { // the places of the next batch are on their way while those of this are swapped
		int64_t rest = i - count;
		int next = rest > 0 ? draw(m, a, (uint32_t)rest, places[!turn]) : 0;
		for (int k = 0; k < count; k++, i--) {
			uint32_t j = places[turn][k], v = a[i];
			a[i] = a[j];
			a[j] = v;
		}
		turn = !turn;
		count = next;
	}
}

__attribute__((target("avx512f,avx512dq"), optimize("fp-contract=off"))) void mt_blend(const double *shares, double *counts, int64_t *left, int64_t members, int64_t t, int64_t steps, int16_t *member, int64_t *number) {
	__m512d behind[mt_blend_members / 8];
	int blocks = (int)(members / 8);
	for (int64_t k = 0; k < steps; k++) {
		__m512d at = _mm512_set1_pd(t + k > 1 ? (double)(t + k) : 1.0), most = _mm512_set1_pd(-INFINITY);
		for (int b = 0; b < blocks; b++) {
			behind[b] = _mm512_sub_pd(_mm512_mul_pd(_mm512_loadu_pd(shares + 8 * b), at), _mm512_loadu_pd(counts + 8 * b));
			most = _mm512_max_pd(most, behind[b]);
		}
		__m512d top = _mm512_set1_pd(_mm512_reduce_max_pd(most));
		int best = mt_blend_members; // the first that has it, found without a branch
		for (int w = 0; w < blocks; w += 8) {
			uint64_t has = 0;
			for (int b = w; b < w + 8 && b < blocks; b++) has |= (uint64_t)_mm512_cmpeq_pd_mask(behind[b], top) << 8 * (b - w);
			int first = has ? 8 * w + __builtin_ctzll(has) : mt_blend_members;
			best = first < best ? first : best;
		}
		member[k] = (int16_t)best;
		number[k] = (int64_t)counts[best];
		counts[best] += 1;
		if (--left[best] == 0) counts[best] = INFINITY;
	}
}
