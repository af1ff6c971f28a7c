/* A block's tile of C = op(A)·op(B) in bf16 or f16 by mma.sync: 128x128 of C, eight warps
 * of 64x32 each; three stages of operands, 32 deep, are under way in shared memory. An
 * operand lies there as it does in global memory; what is stored transposed is read
 * transposed. Rows are 8 elements longer than their data, so that the eight rows of a
 * matrix load lie in different banks. */
#ifndef MT_GEMM_HALF_H
#define MT_GEMM_HALF_H

#include "epilogue.h"
#include "ptx.h"

namespace gemm_half {

enum { SIDE = 128, DEPTH = 32, STAGES = 3, THREADS = 256, PAD = 8 };

/* A tile of an operand: [SIDE, DEPTH], or [DEPTH, SIDE] where the depth is the rows. */
template <bool DEEP_ROWS> struct panel {
  enum { ROWS = DEEP_ROWS ? DEPTH : SIDE, COLUMNS = DEEP_ROWS ? SIDE : DEPTH, STRIDE = COLUMNS + PAD, SIZE = ROWS * STRIDE };

  /* Brings rows from `row` on and columns from `column` on of t; zeros beyond its end. */
  template <typename T> __device__ static void fetch(T *to, const mt_tensor &t, int64_t row, int64_t column, bool aligned) {
    for (int i = threadIdx.x; i < ROWS * COLUMNS / 8; i += THREADS) {
      int r = i / (COLUMNS / 8), c = i % (COLUMNS / 8) * 8;
      int64_t left = row + r < t.shape[0] ? t.shape[1] - column - c : 0;
      int n = left < 0 ? 0 : left > 8 ? 8 : (int)left;
      const T *from = data_of<T>(t) + (n > 0 ? (row + r) * t.stride[0] + column + c : 0);
      T *here = to + r * STRIDE + c;
      if (aligned) {
        copy_async(here, from, n * (int)sizeof(T));
      } else {
        for (int j = 0; j < 8; j++) here[j] = j < n ? from[j] : from_float<T>(0);
      }
    }
  }
};

/* Fragments of 16 rows of op(A) from row m on, 16 deep. */
template <bool TRANS, typename T> __device__ inline void fragment_a(uint32_t (&r)[4], const T *tile, int m, int k) {
  int lane = threadIdx.x % 32;
  const int S = panel<TRANS>::STRIDE;
  if (TRANS) load_transposed(r, tile + (k + lane % 8 + lane / 16 * 8) * S + m + lane / 8 % 2 * 8);
  else load_matrices(r, tile + (m + lane % 16) * S + k + lane / 16 * 8);
}
/* Fragments of 16 columns of op(B) from column n on: r[0], r[1] of the first eight. */
template <bool TRANS, typename T> __device__ inline void fragment_b(uint32_t (&r)[4], const T *tile, int n, int k) {
  int lane = threadIdx.x % 32;
  const int S = panel<!TRANS>::STRIDE;
  if (TRANS) load_matrices(r, tile + (n + lane % 8 + lane / 16 * 8) * S + k + lane / 8 % 2 * 8);
  else load_transposed(r, tile + (k + lane % 8 + lane / 8 % 2 * 8) * S + n + lane / 16 * 8);
}

/* The tile from row m0 and column n0 on. */
template <typename T, bool TRANS_A, bool TRANS_B>
__device__ inline void multiply_tile(const mt_matmul_args &a, int64_t depth, bool aligned_a, bool aligned_b, int64_t m0, int64_t n0) {
  // A block makes 128 x 128 elements of C, a warp 64 x 32; depth comes in steps through STAGES shared buffers.
  typedef panel<TRANS_A> left;
  typedef panel<!TRANS_B> right;
  MT_DYN_SHARED(T, shared);
  auto tile_a = [&](int stage) { return shared + stage * (left::SIZE + right::SIZE); };
  auto fetch = [&](int64_t step) {
    int64_t k = step * DEPTH;
    T *to = tile_a((int)(step % STAGES));
    if (k < depth) {
      left::template fetch<T>(to, a.a, TRANS_A ? k : m0, TRANS_A ? m0 : k, aligned_a);
      right::template fetch<T>(to + left::SIZE, a.b, TRANS_B ? n0 : k, TRANS_B ? k : n0, aligned_b);
    }
    copy_commit();
  };
  // m, n: the warp's corner; c: its sums, f32, in fragments of 16 x 8.
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, m = warp / 4 * 64, n = warp % 4 * 32;
  float c[4][4][4] = {};
  for (int s = 0; s < STAGES - 1; s++) fetch(s);
  for (int64_t step = 0; step * DEPTH < depth; step++) {
    copy_wait<STAGES - 2>();
    __syncthreads(); /* the stage is here, and nobody reads the one that is fetched next */
    fetch(step + STAGES - 1);
    const T *ta = tile_a((int)(step % STAGES)), *tb = ta + left::SIZE;
#pragma unroll
    for (int k = 0; k < DEPTH; k += 16) {
      uint32_t fa[4][4], fb[2][4];
#pragma unroll
      for (int i = 0; i < 4; i++) fragment_a<TRANS_A>(fa[i], ta, m + 16 * i, k);
#pragma unroll
      for (int j = 0; j < 2; j++) fragment_b<TRANS_B>(fb[j], tb, n + 16 * j, k);
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) multiply(c[i][j], fa[i], fb[j / 2][j % 2 * 2], fb[j / 2][j % 2 * 2 + 1], T());
    }
  }
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        // Edges of C cut the tile.
        int64_t row = m0 + m + 16 * i + lane / 4 + e / 2 * 8, column = n0 + n + 8 * j + lane % 4 * 2 + e % 2;
        if (row < a.c.shape[0] && column < a.c.shape[1]) finish<T>(a, row, column, c[i][j][e]);
      }
}

/* Shared memory of a block. */
template <typename T, bool TRANS_A, bool TRANS_B> struct room {
  enum { BYTES = STAGES * (panel<TRANS_A>::SIZE + panel<!TRANS_B>::SIZE) * (int)sizeof(T) };
};

/* Whether 16 bytes of t's rows can be moved at once; a row's end may be ragged. */
inline bool moves(const mt_tensor &t) {
  if ((uintptr_t)t.data % 16) return false;
  for (int d = 0; d + 1 < t.rank; d++)
    if (t.shape[d] > 1 && t.stride[d] % 8) return false;
  return true;
}

} // namespace gemm_half

#endif
