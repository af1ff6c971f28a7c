/* Attention in bf16 on AMX: its products; the rest is as for the others. */
#include "amx_tiles.h"
#include "attention.h"
#include "isa_level.h"
#include "tile.h"

#ifdef MT_HAS_AMX
#define MT_ISA MT_AVX512
#define K(name) name##_amx
#include "simd.h"

#include "gemm_transpose.h"
#include "philox.h"

#include "attention_pairs.h"

V void K(micro)(int64_t k, const K(value) *a, int64_t lda, const K(value) *b, int64_t ldb, float *c, int64_t ldc, int add) {
  float *low = c + 16 * ldc;
  if (add) {
    _tile_loadd(0, c, ldc * 4);
    _tile_loadd(1, c + 16, ldc * 4);
    _tile_loadd(2, low, ldc * 4);
    _tile_loadd(3, low + 16, ldc * 4);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t p = 0; p < k; p += 32, a += 32, b += 32 * ldb) { /* loads first: see gemm_amx.c */
    _tile_loadd(4, a, lda * 2);
    _tile_loadd(6, b, ldb * 4);
    _tile_loadd(5, a + 16 * lda, lda * 2);
    _tile_loadd(7, b + 32, ldb * 4);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, c, ldc * 4);
  _tile_stored(1, c + 16, ldc * 4);
  _tile_stored(2, low, ldc * 4);
  _tile_stored(3, low + 16, ldc * 4);
}

static void K(product)(int64_t m, int64_t n, int64_t k, const K(value) *a, int64_t lda, const K(value) *b, int64_t ldb, float *c, int64_t ldc, int add) {
  for (int64_t j = 0; j < n; j += 32)
    for (int64_t i = 0; i < m; i += 32) K(micro)(k, a + i * lda, lda, b + 2 * j, ldb, c + i * ldc + j, ldc, add);
}

V void K(begin)(void) { amx_begin(); }
V void K(end)(void) { amx_end(); }

#include "attention_masks.h"

#include "attention_backward.h"
#include "attention_forward.h"

const attention_kernels *mt_attention_amx(void) {
  static const attention_kernels all = {
      sizeof(K(value)), K(pack), K(forward), K(backward), K(sum),
  };
  return &all;
}

#else
const attention_kernels *mt_attention_amx(void) { return 0; }
#endif
