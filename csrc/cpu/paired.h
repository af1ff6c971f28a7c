/* Sums of products in the order of AMX, by any instruction set: of each AMX_STEP products, those of even k are one chain of
 * fused multiply-adds, those of odd k another; the two are added, then the result to the sum. Read under MT_ISA, after
 * simd.h, MR and NV: a micro tile has MR rows of NV vectors. The functions belong between v_flush_begin and v_flush_end. */
#include "amx.h"

/* sum = the products of k, k + 2, ... of a step, with k = 0 or 1: `a` and `b` begin with them. Elements of A lie `row` apart
 * from one row to the next, and `step` apart from one k to the next; rows of B lie `ldb` apart. */
V void K(chain)(const float *a, int64_t row, int64_t step, const float *b, int64_t ldb, vf sum[MR][NV]) {
#pragma GCC unroll 16
  for (int i = 0; i < MR; i++)
#pragma GCC unroll 4
    for (int j = 0; j < NV; j++) sum[i][j] = (vf){0};
  for (int64_t k = 0; k < AMX_STEP; k += 2, a += 2 * step, b += 2 * ldb) {
    vf y[NV];
    __builtin_prefetch(a + 16 * step);
#pragma GCC unroll 4
    for (int j = 0; j < NV; j++) y[j] = v_flushed(v_load(b, MT_F32, j * LANES));
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++) {
      vf x = v_flushed(v_set(a[i * row]));
#pragma GCC unroll 4
      for (int j = 0; j < NV; j++) sum[i][j] = v_flushed(v_mad(x, y[j], sum[i][j]));
    }
  }
}

/* The sum after a step. */
V vf K(add_chains)(vf sum, vf even, vf odd) { return v_flushed(v_flushed(sum) + v_flushed(even + odd)); }
