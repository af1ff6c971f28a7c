//go:build cgo && amd64

// The loops that gain most from vectors and prefetching: numpy's shuffle, the order
// of a blend, and tokens of 16 bits.

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

// draw fills slots with numbers for top, top-1, ..., asks for the memory they
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
	while (count > 0) { // the elements of the next batch are on their way while those of this are swapped
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

#define wide __attribute__((target("avx512f,avx512dq"), optimize("fp-contract=off")))

enum { group = 8 }; // of vectors, all done before any is waited for

// values writes share * at - count of 64 members and returns the largest of each lane.
wide static inline __attribute__((always_inline)) __m512d values(const double *shares, const double *counts, __m512d at, __m512d *behind) {
	for (int b = 0; b < group; b++) {
		behind[b] = _mm512_sub_pd(_mm512_mul_pd(_mm512_loadu_pd(shares + 8 * b), at), _mm512_loadu_pd(counts + 8 * b));
	}
	__m512d x = _mm512_max_pd(behind[0], behind[1]), y = _mm512_max_pd(behind[2], behind[3]);
	__m512d z = _mm512_max_pd(behind[4], behind[5]), w = _mm512_max_pd(behind[6], behind[7]);
	return _mm512_max_pd(_mm512_max_pd(x, y), _mm512_max_pd(z, w));
}

// where has a bit for every one of 64 members whose value is top.
wide static inline __attribute__((always_inline)) uint64_t where(const __m512d *behind, __m512d top) {
	uint64_t has[2] = {0};
	for (int b = 0; b < group; b++) has[b & 1] |= (uint64_t)_mm512_cmpeq_pd_mask(behind[b], top) << 8 * b;
	return has[0] | has[1];
}

// take finds the first of the largest and counts it. Counts are stored by complete
// vectors, since a load of a vector waits for a smaller store into it.
wide static inline __attribute__((always_inline)) int take(const double *shares, double *counts, int64_t *left, int groups, int64_t t, int64_t *number) {
	__m512d behind[mt_blend_members / 8], at = _mm512_set1_pd(t > 1 ? (double)t : 1.0);
	__m512d most = values(shares, counts, at, behind);
	for (int g = 1; g < groups; g++) most = _mm512_max_pd(most, values(shares + 64 * g, counts + 64 * g, at, behind + group * g));
	__m512d top = _mm512_max_pd(most, _mm512_shuffle_f64x2(most, most, 0x4e));
	top = _mm512_max_pd(top, _mm512_shuffle_f64x2(top, top, 0xb1));
	top = _mm512_max_pd(top, _mm512_permutex_pd(top, 0x4e));
	top = _mm512_max_pd(top, _mm512_permute_pd(top, 0x55));
	int best = 0;
	for (int g = groups - 1; g >= 0; g--) {
		uint64_t has = where(behind + group * g, top);
		best = has ? 64 * g + (int)__builtin_ctzll(has) : best;
	}
	double *of = counts + (best & ~7);
	__m512d now = _mm512_loadu_pd(of);
	__mmask8 one = (__mmask8)(1 << (best & 7));
	*number = (int64_t)counts[best];
	_mm512_storeu_pd(of, _mm512_mask_add_pd(now, one, now, _mm512_set1_pd(1.0)));
	if (__builtin_expect(--left[best] == 0, 0)) _mm512_storeu_pd(of, _mm512_mask_mov_pd(now, one, _mm512_set1_pd(INFINITY)));
	return best;
}

// blend does runs side by side: one waits for its own last choice at every step,
// and the others fill that time.
wide static inline __attribute__((always_inline)) void blend(const double *shares, double *counts, int64_t *left, int64_t members, int groups, int64_t t, int64_t steps, int runs, int16_t *member, int64_t *number) {
	for (int64_t k = 0; k < steps; k++) {
		for (int r = 0; r < runs; r++) {
			int64_t to = r * steps + k;
			member[to] = (int16_t)take(shares, counts + r * members, left + r * members, groups, t + to, &number[to]);
		}
	}
}

wide void mt_blend(const double *shares, double *counts, int64_t *left, int64_t members, int64_t t, int64_t steps, int runs, int16_t *member, int64_t *number) {
	int groups = (int)(members / 64);
	if (groups == 1 && runs == 2) blend(shares, counts, left, members, 1, t, steps, 2, member, number);
	else if (groups == 2 && runs == 2) blend(shares, counts, left, members, 2, t, steps, 2, member, number);
	else blend(shares, counts, left, members, groups, t, steps, runs, member, number);
}

int mt_short_usable(void) { return __builtin_cpu_supports("avx2"); }

__attribute__((target("avx2"))) uint32_t mt_short(uint16_t *to, const int32_t *ids, int64_t n) {
	__m256i all = _mm256_setzero_si256();
	int64_t i = 0;
	for (; i + 16 <= n; i += 16) {
		__m256i a = _mm256_loadu_si256((const void *)(ids + i)), b = _mm256_loadu_si256((const void *)(ids + i + 8));
		all = _mm256_or_si256(all, _mm256_or_si256(a, b));
		_mm256_storeu_si256((void *)(to + i), _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8));
	}
	uint32_t lanes[8], bits = 0;
	_mm256_storeu_si256((void *)lanes, all);
	for (int k = 0; k < 8; k++) bits |= lanes[k];
	for (; i < n; i++) {
		to[i] = (uint16_t)ids[i];
		bits |= (uint32_t)ids[i];
	}
	return bits;
}
