/* Attention in bf16 for each instruction set, with the bits of AMX (--layout-invariant): operands are packed as f32, and
 * products add up as AMX does. The rest is as for the others. */
#ifndef MT_ISA
#define MT_KERNELS "attention_paired.c"
#include "attention.h"
#include "isa.h"

const attention_kernels *mt_attention_paired(void) { return MT_CALL_AT(mt_isa_ordered, kernels_of); }

#else
#include "gemm_transpose.h"
#include "philox.h"

/* To bf16 as AVX512_BF16 does: numbers below 2^-126 are zeros. */
V vf K(rounded)(vf x) {
  vi zero = ((vi)x & 0x7f800000) == 0;
  return v_rounded((vf)((vi)x & (~zero | INT32_MIN)), MT_BF16);
}

#include "attention_blocks.h"

/* Sums of MR rows by NV vectors: those of one chain, those of the other and what they are added to stay in registers. */
#undef MR
#undef NV
#if MT_ISA == MT_AVX512
#define MR 4
#else
#define MR 2
#endif
#define NV 2
#include "paired.h"

V void K(micro)(int64_t k, const float *a, int64_t lda, const float *b, int64_t ldb, float *c, int64_t ldc, int add) {
  vf sum[MR][NV], even[MR][NV], odd[MR][NV];
#pragma GCC unroll 4
  for (int i = 0; i < MR; i++)
#pragma GCC unroll 2
    for (int j = 0; j < NV; j++) sum[i][j] = add ? v_load(c + i * ldc, MT_F32, j * LANES) : (vf){0};
  for (int64_t p = 0; p < k; p += AMX_STEP) {
    K(chain)(a + p, lda, 1, b + p * ldb, ldb, even);
    K(chain)(a + p + 1, lda, 1, b + (p + 1) * ldb, ldb, odd);
#pragma GCC unroll 4
    for (int i = 0; i < MR; i++)
#pragma GCC unroll 2
      for (int j = 0; j < NV; j++) sum[i][j] = K(add_chains)(sum[i][j], even[i][j], odd[i][j]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < MR; i++)
#pragma GCC unroll 2
    for (int j = 0; j < NV; j++) v_store(c + i * ldc, MT_F32, j * LANES, sum[i][j]);
}

/* Not inlined, so that all of it is between the changes of the mode of its caller. */
static __attribute__((noinline)) void K(flushing_product)(int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b, int64_t ldb, float *c, int64_t ldc, int add) {
  for (int64_t j = 0; j < n; j += NV * LANES)
    for (int64_t i = 0; i < m; i += MR) K(micro)(k, a + i * lda, lda, b + j, ldb, c + i * ldc + j, ldc, add);
}

/* c [m,n] (+)= a [m,k] · b [k,n] */
static void K(product)(int64_t m, int64_t n, int64_t k, const K(value) *a, int64_t lda, const K(value) *b, int64_t ldb, float *c, int64_t ldc, int add) {
  uint64_t before = v_flush_begin();
  K(flushing_product)(m, n, k, a, lda, b, ldb, c, ldc, add);
  v_flush_end(before);
}

V void K(begin)(void) {}
V void K(end)(void) {}

#include "attention_masks.h"

#include "attention_backward.h"
#include "attention_forward.h"

static const attention_kernels *K(kernels_of)(void) {
  static const attention_kernels all = {
      sizeof(K(value)), K(pack), K(forward), K(backward), K(sum),
  };
  return &all;
}
#endif
