//go:build cgo && amd64

// Transposition with the vectors that every x86-64 has. It goes by tiles whose rows
// are cache lines on both sides. Lines of the result are written past the caches
// where they are complete there: fetching them first, to be overwritten, takes most of
// the time otherwise.

#include "kernel.h"

#include <emmintrin.h>

enum {
	line = 64, // bytes
	vector = 16,
	tile16 = line / 2,
	tile32 = line / 4,
	ahead = 4 * line, // bytes of a row that are asked for before they are needed
};

// A tile is copied before it is turned: rows of an even stride share sets of the
// first cache and would evict each other.
typedef union {
	_Alignas(line) uint16_t of16[tile16][tile16];
	uint32_t of32[tile32][tile32];
} lines;

static inline void read_line(void *to, const void *from) {
	_mm_prefetch((const char *)from + ahead, _MM_HINT_T0);
	for (int v = 0; v < line / vector; v++) _mm_store_si128((__m128i *)to + v, _mm_loadu_si128((const __m128i *)from + v));
}

static inline void write_line(void *to, const __m128i *from, int step, int past) {
	for (int v = 0; v < line / vector; v++) {
		if (past) _mm_stream_si128((__m128i *)to + v, from[v * step]);
		else _mm_storeu_si128((__m128i *)to + v, from[v * step]);
	}
}

// `whole` reports whether lines of the result are lines of memory.
static inline int whole(const void *dst, int64_t stride_bytes) { return (((uintptr_t)dst | (uintptr_t)stride_bytes) & (line - 1)) == 0; }

static inline __m128i at(const void *p) { return _mm_load_si128((const __m128i *)p); }

// turn_4x4 turns four rows of four elements, from row r and column c on.
static inline void turn_4x4(__m128i out[4], const lines *t, int r, int c) {
	__m128i a = at(&t->of32[r][c]), b = at(&t->of32[r + 1][c]), d = at(&t->of32[r + 2][c]), e = at(&t->of32[r + 3][c]);
	__m128i ab = _mm_unpacklo_epi32(a, b), AB = _mm_unpackhi_epi32(a, b), de = _mm_unpacklo_epi32(d, e), DE = _mm_unpackhi_epi32(d, e);
	out[0] = _mm_unpacklo_epi64(ab, de);
	out[1] = _mm_unpackhi_epi64(ab, de);
	out[2] = _mm_unpacklo_epi64(AB, DE);
	out[3] = _mm_unpackhi_epi64(AB, DE);
}

void mt_turn32(uint32_t *dst, int64_t dst_stride, const uint32_t *src, int64_t src_stride, int64_t rows, int64_t columns) {
	int past = whole(dst, dst_stride * sizeof *dst);
	lines t;
	for (int64_t j = 0; j < columns; j += tile32) {
		for (int64_t i = 0; i < rows; i += tile32) {
			for (int r = 0; r < tile32; r++) read_line(t.of32[r], src + (i + r) * src_stride + j);
			for (int c = 0; c < tile32; c += 4) {
				__m128i out[tile32 / 4][4];
				for (int r = 0; r < tile32 / 4; r++) turn_4x4(out[r], &t, 4 * r, c);
				for (int k = 0; k < 4; k++) write_line(dst + (j + c + k) * dst_stride + i, &out[0][k], 4, past);
			}
		}
	}
	_mm_sfence();
}

// turn_8x8 turns eight rows of eight elements, from row r and column c on.
static inline void turn_8x8(__m128i out[8], const lines *t, int r, int c) {
	__m128i pairs[8], fours[8];
	for (int k = 0; k < 8; k += 2) {
		__m128i a = at(&t->of16[r + k][c]), b = at(&t->of16[r + k + 1][c]);
		pairs[k] = _mm_unpacklo_epi16(a, b), pairs[k + 1] = _mm_unpackhi_epi16(a, b);
	}
	for (int k = 0; k < 8; k += 4) {
		fours[k] = _mm_unpacklo_epi32(pairs[k], pairs[k + 2]), fours[k + 1] = _mm_unpackhi_epi32(pairs[k], pairs[k + 2]);
		fours[k + 2] = _mm_unpacklo_epi32(pairs[k + 1], pairs[k + 3]), fours[k + 3] = _mm_unpackhi_epi32(pairs[k + 1], pairs[k + 3]);
	}
	for (int k = 0; k < 4; k++) {
		out[2 * k] = _mm_unpacklo_epi64(fours[k], fours[k + 4]), out[2 * k + 1] = _mm_unpackhi_epi64(fours[k], fours[k + 4]);
	}
}

void mt_turn16(uint16_t *dst, int64_t dst_stride, const uint16_t *src, int64_t src_stride, int64_t rows, int64_t columns) {
	int past = whole(dst, dst_stride * sizeof *dst);
	lines t;
	for (int64_t j = 0; j < columns; j += tile16) {
		for (int64_t i = 0; i < rows; i += tile16) {
			for (int r = 0; r < tile16; r++) read_line(t.of16[r], src + (i + r) * src_stride + j);
			for (int c = 0; c < tile16; c += 8) {
				__m128i out[tile16 / 8][8];
				for (int r = 0; r < tile16 / 8; r++) turn_8x8(out[r], &t, 8 * r, c);
				for (int k = 0; k < 8; k++) write_line(dst + (j + c + k) * dst_stride + i, &out[0][k], 8, past);
			}
		}
	}
	_mm_sfence();
}
