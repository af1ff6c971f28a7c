/* Attention in bf16 by the dot products of AVX512_BF16: its products; the rest is as for
 * the others. */
#include "amx_tiles.h"
#include "attention.h"
#include "isa_level.h"
#include "tile.h"

#ifdef MT_HAS_AMX
#define MT_ISA MT_AVX512
#define K(name) name##_dots
#include "simd.h"

#include "gemm_transpose.h"
#include "philox.h"

#include "attention_pairs.h"

enum { ROWS = 8, VECTORS = 2 };

V __m512bh pair_of(const K(value) *a) {
  int32_t both;
  memcpy(&both, a, sizeof both);
  return (__m512bh)_mm512_set1_epi32(both);
}

V void K(micro)(int64_t k, const K(value) *a, int64_t lda, const K(value) *b, int64_t ldb, float *c, int64_t ldc, int add) {
  __m512 sum[ROWS][VECTORS];
#pragma GCC unroll 8
  for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 2
    for (int j = 0; j < VECTORS; j++) sum[i][j] = add ? _mm512_loadu_ps(c + i * ldc + 16 * j) : _mm512_setzero_ps();
  for (int64_t p = 0; p < k; p += 2) {
    __m512bh y0 = (__m512bh)_mm512_loadu_si512(b + p * ldb), y1 = (__m512bh)_mm512_loadu_si512(b + p * ldb + 32);
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++) {
      __m512bh x = pair_of(a + i * lda + p);
      sum[i][0] = _mm512_dpbf16_ps(sum[i][0], x, y0);
      sum[i][1] = _mm512_dpbf16_ps(sum[i][1], x, y1);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 2
    for (int j = 0; j < VECTORS; j++) _mm512_storeu_ps(c + i * ldc + 16 * j, sum[i][j]);
}

static void K(product)(int64_t m, int64_t n, int64_t k, const K(value) *a, int64_t lda, const K(value) *b, int64_t ldb, float *c, int64_t ldc, int add) {
  for (int64_t j = 0; j < n; j += 16 * VECTORS)
    for (int64_t i = 0; i < m; i += ROWS) {
      if (add) K(micro)(k, a + i * lda, lda, b + 2 * j, ldb, c + i * ldc + j, ldc, 1);
      else K(micro)(k, a + i * lda, lda, b + 2 * j, ldb, c + i * ldc + j, ldc, 0);
    }
}

V void K(begin)(void) {}
V void K(end)(void) {}

#include "attention_masks.h"

#include "attention_backward.h"
#include "attention_forward.h"

const attention_kernels *mt_attention_bf16(void) {
  static const attention_kernels all = {
      sizeof(K(value)), K(pack), K(forward), K(backward), K(sum),
  };
  return mt_isa_dots() ? &all : 0;
}

#else
const attention_kernels *mt_attention_bf16(void) { return 0; }
#endif
