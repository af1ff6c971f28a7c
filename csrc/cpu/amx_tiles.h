/* The AMX tile unit and the forms its operands have, for bf16: a tile of A is 16
 * rows of 32 k; a tile of B is 16 pairs of k by 16 columns, the two of a pair side
 * by side. Steps are in bytes. */
#ifndef MT_AMX_TILES_H
#define MT_AMX_TILES_H

#include "isa_level.h"

#if defined(MT_X86_SETS) && defined(__linux__) && __GNUC__ >= 11
#define MT_HAS_AMX
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c,amx-tile,amx-bf16")
#include <immintrin.h>
#include <stdint.h>

#define AMX_INLINE static inline __attribute__((always_inline, unused))

typedef struct {
  uint8_t palette, start, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
} amx_config;

/* Eight full tiles. A constant in memory: GCC's intrinsic declares only the
 * first eight bytes to the optimiser. */
static const amx_config amx_eight __attribute__((aligned(64))) = {
    .palette = 1, .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};

static inline void amx_begin(void) { _tile_loadconfig(&amx_eight); }

static inline void amx_end(void) { _tile_release(); } /* so that a thread switch does not save 8 KB */

/* 16 x 16 values of 32 bits, r[i] lane j <-> r[j] lane i. */
AMX_INLINE void amx_transpose(__m512i r[16]) {
  __m512i t[16];
  /* Pairs of 32-bit values, then of 64-bit ones: 4 x 4 blocks are transposed inside 128-bit lanes. */
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  /* Lanes move between vectors i and i + 4, then between i and i + 8. */
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xDD);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xDD);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xDD);
    r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
    r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xDD);
  }
}

/* r[p] = rows 2p and 2p+1 of 16 columns, interleaved. step in bytes. */
AMX_INLINE void amx_load_pairs(__m512i r[16], const char *s, int64_t step) {
  const __m512i mix = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
#pragma GCC unroll 16
  for (int p = 0; p < 16; p++) {
    __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256((const void *)(s + 2 * p * step))),
                                      _mm256_loadu_si256((const void *)(s + (2 * p + 1) * step)), 1);
    r[p] = _mm512_permutexvar_epi16(mix, both);
  }
}

AMX_INLINE void amx_load_lines(__m512i r[16], const char *s, int64_t step) {
#pragma GCC unroll 16
  for (int i = 0; i < 16; i++) r[i] = _mm512_loadu_si512(s + i * step);
}

AMX_INLINE void amx_store(char *out, int64_t step, const __m512i r[16]) {
#pragma GCC unroll 16
  for (int i = 0; i < 16; i++) _mm512_storeu_si512(out + i * step, r[i]);
}

/* One tile of 16 lines by 32 k. Lines lie k-contiguous (`deep` 1) or side by side,
 * distances in values; `paired` is B's form. */
AMX_INLINE void amx_pack_tile(char *out, const char *s, int64_t line, int64_t deep, int paired) {
  __m512i r[16];
  if (deep == 1) amx_load_lines(r, s, line * 2);
  else amx_load_pairs(r, s, deep * 2);
  if ((deep == 1) == (paired != 0)) amx_transpose(r);
  amx_store(out, 64, r);
}

/* Fetches the tile that lies 256 k, or a step of 32 k, from s. */
AMX_INLINE void amx_fetch_ahead(const char *s, int64_t line, int64_t deep) {
  for (int i = 0; i < (deep == 1 ? 16 : 32); i++) _mm_prefetch(deep == 1 ? s + 2 * i * line + 512 : s + 2 * (i + 32) * deep, _MM_HINT_T1);
}

#endif
#endif
