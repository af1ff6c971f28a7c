/* A block's tile of C = op(A)·op(B) in f32, nothing rounded in between: 64x64 of C, a thread
 * 4x4 of it, from panels 16 deep in shared memory, depth by rows. */
#ifndef MT_GEMM_F32_H
#define MT_GEMM_F32_H

#include "epilogue.h"

namespace gemm_f32 {

enum { SIDE = 64, DEPTH = 16, THREADS = 256, STRIDE = SIDE + 4 };

/* Brings rows `at`.. of op(A) (or columns of op(B)) and depth k.. into [DEPTH][STRIDE].
 * deep_rows: the depth is t's rows. Zeros beyond t's end. */
__device__ inline void fetch(float (&to)[DEPTH][STRIDE], const mt_tensor &t, bool deep_rows, int64_t at, int64_t k) {
  for (int i = threadIdx.x; i < SIDE * DEPTH; i += THREADS) {
    int s = deep_rows ? i % SIDE : i / DEPTH, d = deep_rows ? i / SIDE : i % DEPTH; /* neighbours read neighbours */
    int64_t row = deep_rows ? k + d : at + s, column = deep_rows ? at + s : k + d;
    to[d][s] = row < t.shape[0] && column < t.shape[1] ? data_of<float>(t)[row * t.stride[0] + column] : 0;
  }
}

/* The tile from row m0 and column n0 on. */
__device__ inline void multiply_tile(const mt_matmul_args &a, int64_t depth, int64_t m0, int64_t n0) {
  MT_SHARED(float[DEPTH][STRIDE], left);
  MT_SHARED(float[DEPTH][STRIDE], right);
  int m = threadIdx.x / 16 * 4, n = threadIdx.x % 16 * 4;
  float c[4][4] = {};
  for (int64_t k = 0; k < depth; k += DEPTH) {
    fetch(left, a.a, a.trans_a, m0, k);
    fetch(right, a.b, !a.trans_b, n0, k);
    __syncthreads();
#pragma unroll
    for (int d = 0; d < DEPTH; d++) {
      float x[4], y[4];
      for (int i = 0; i < 4; i++) x[i] = left[d][m + i], y[i] = right[d][n + i];
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) c[i][j] += x[i] * y[j];
    }
    __syncthreads();
  }
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++)
      if (m0 + m + i < a.c.shape[0] && n0 + n + j < a.c.shape[1]) finish<float>(a, m0 + m + i, n0 + n + j, c[i][j]);
}

} // namespace gemm_f32

#endif
