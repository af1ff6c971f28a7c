/* Attention for each instruction set, in f32, and the choice among them. */
#ifndef MT_ISA
#define MT_KERNELS "attention_kernels.c"
#include "amx.h"
#include "attention.h"
#include "isa.h"
#include <stddef.h>

const attention_kernels *mt_attention_kernels(const mt_attention_forward_args *f) {
  const attention_kernels *own = NULL;
  if (f->q.dtype == MT_BF16) {
    if (mt_amx_with(mt_isa_ordered)) own = mt_attention_amx();
    else own = mt_isa_invariant ? mt_attention_paired() : mt_attention_bf16();
  }
  /* Each query is a lane, so its sums do not depend on the vectors' width, and the operations round alike in all sets. */
  return own ? own : MT_CALL_AT(mt_isa_ordered, kernels_of);
}

float mt_attention_dot(const float *x, const float *y, int64_t n) { return MT_CALL(dot, x, y, n); }

#else
#include "gemm_transpose.h"
#include "philox.h"

V vf K(rounded)(vf x) { return x; }

#include "attention_blocks.h"

#undef MR
#if MT_ISA == MT_AVX512
#define MR 8
#else
#define MR 4
#endif
#define ATT_NV 2

V void K(micro)(int64_t k, const float *a, int64_t lda, const float *b, int64_t ldb, float *c, int64_t ldc, int add) {
  vf sum[MR][ATT_NV];
#pragma GCC unroll 8
  for (int i = 0; i < MR; i++)
#pragma GCC unroll 2
    for (int j = 0; j < ATT_NV; j++) sum[i][j] = add ? v_load(c + i * ldc, MT_F32, j * LANES) : (vf){0};
  for (int64_t p = 0; p < k; p++) {
    vf y0 = v_load(b + p * ldb, MT_F32, 0), y1 = v_load(b + p * ldb, MT_F32, LANES);
#pragma GCC unroll 8
    for (int i = 0; i < MR; i++) {
      vf x = v_set(a[i * lda + p]);
      sum[i][0] = v_mad(x, y0, sum[i][0]);
      sum[i][1] = v_mad(x, y1, sum[i][1]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < MR; i++)
#pragma GCC unroll 2
    for (int j = 0; j < ATT_NV; j++) v_store(c + i * ldc, MT_F32, j * LANES, sum[i][j]);
}

/* c [m,n] (+)= a [m,k] · b [k,n] */
static void K(product)(int64_t m, int64_t n, int64_t k, const K(value) *a, int64_t lda, const K(value) *b, int64_t ldb, float *c, int64_t ldc, int add) {
  for (int64_t j = 0; j < n; j += ATT_NV * LANES)
    for (int64_t i = 0; i < m; i += MR) {
      if (add) K(micro)(k, a + i * lda, lda, b + j, ldb, c + i * ldc + j, ldc, 1);
      else K(micro)(k, a + i * lda, lda, b + j, ldb, c + i * ldc + j, ldc, 0);
    }
}

V void K(begin)(void) {}
V void K(end)(void) {}

#include "attention_masks.h"

#include "attention_backward.h"
#include "attention_forward.h"

static float K(dot)(const float *x, const float *y, int64_t n) {
  vf sum = {0};
  V_EACH(n, j, m, sum = v_mad(v_load_n(x, MT_F32, j, m), v_load_n(y, MT_F32, j, m), sum););
  return v_sum(sum);
}

static const attention_kernels *K(kernels_of)(void) {
  static const attention_kernels all = {
      sizeof(K(value)), K(pack), K(forward), K(backward), K(sum),
  };
  return &all;
}
#endif
