/* Products whose sums have one order whatever the shape (op_matmul.go, Leaves and Grid): 64x64 of C
 * a block, a thread 4x4 of it, from panels 16 deep in shared memory. Of each element one chain of
 * fused multiply-adds goes along the rows of a leaf; the leaves' sums are added as a tree, or on a
 * grid in f64. Every dtype goes this way: tensor cores add several products at once, in an order
 * that is the processor's. */
#ifndef MT_LEAVES_H
#define MT_LEAVES_H

#include <cstdio>

#include "epilogue.h"
#include "exact.h"

namespace leaves {

enum { SIDE = 64, DEPTH = 16, THREADS = 256, STRIDE = SIDE + 4, MOST_LEVELS = 10 /* of a tree: 1024 leaves, as many as there may be */ };

typedef float tile[4][4]; /* a thread's */

/* Blocks of an SM that registers must suffice for; left alone, the compiler aims at more, and spills. */
constexpr int blocks_an_sm(int levels) { return levels > 3 ? 1 : 2; }

/* Steps of the depth that are summed in rising order: `count` of them, `step` apart. */
struct run { int64_t from, count, step; };

/* Brings rows `at`.. of op(A) (or columns of op(B)) and n steps of r from k on. deep_rows: the
 * depth is t's rows. Zeros beyond t's end. */
template <typename T> __device__ inline void fetch(float (&to)[DEPTH][STRIDE], const mt_tensor &t, bool deep_rows, int64_t at, const run &r, int64_t k, int n) {
#pragma unroll 2 /* as below */
  for (int i = threadIdx.x; i < SIDE * DEPTH; i += THREADS) {
    int s = deep_rows ? i % SIDE : i / DEPTH, d = deep_rows ? i / SIDE : i % DEPTH; /* neighbours read neighbours */
    int64_t deep = r.from + (k + d) * r.step, row = deep_rows ? deep : at + s, column = deep_rows ? at + s : deep;
    to[d][s] = d < n && at + s < (deep_rows ? t.shape[1] : t.shape[0]) ? to_float(data_of<T>(t)[row * t.stride[0] + column]) : 0;
  }
}

/* Whether element (i, j) of this thread's tile is C's. */
__device__ inline int64_t row_of_tile(int64_t m0, int i) { return m0 + threadIdx.x / 16 * 4 + i; }
__device__ inline int64_t column_of_tile(int64_t n0, int j) { return n0 + threadIdx.x % 16 * 4 + j; }
__device__ inline bool in_matrix(const mt_tensor &c, int64_t m0, int64_t n0, int i, int j) {
  return row_of_tile(m0, i) < c.shape[0] && column_of_tile(n0, j) < c.shape[1];
}

/* c += the products of a run, one after the other. Every thread of the block takes part. */
template <typename T> __device__ inline void add_run(tile &c, const mt_matmul_args &a, const run &r, int64_t m0, int64_t n0) {
  MT_SHARED(float[DEPTH][STRIDE], left);
  MT_SHARED(float[DEPTH][STRIDE], right);
  int m = threadIdx.x / 16 * 4, n = threadIdx.x % 16 * 4;
  for (int64_t k = 0; k < r.count; k += DEPTH) {
    int depth = r.count - k < DEPTH ? (int)(r.count - k) : (int)DEPTH;
    fetch<T>(left, a.a, a.trans_a, m0, r, k, depth);
    fetch<T>(right, a.b, !a.trans_b, n0, r, k, depth);
    __syncthreads();
#pragma unroll 2 /* more at once take registers that the tree needs */
    for (int d = 0; d < depth; d++) {
      float x[4], y[4];
      for (int i = 0; i < 4; i++) x[i] = left[d][m + i], y[i] = right[d][n + i];
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) c[i][j] = fmaf(x[i], y[j], c[i][j]);
    }
    __syncthreads();
  }
}

/* Adds the sum of leaf number `leaf` to those before, as a binary counter does: levels[i] has a
 * subtree of 2^i leaves where that bit of the number is set. c becomes the largest subtree that
 * the leaf completes; the last leaf's is the tree. Levels are known when this is compiled: an index
 * that is not keeps the sums out of registers. */
template <int LEVELS> __device__ inline void add_leaf(tile (&levels)[LEVELS + 1], tile &c, int leaf) {
  bool completes = true; /* the subtree of the level */
#pragma unroll
  for (int level = 0; level < LEVELS; level++) {
    bool second = leaf >> level & 1;
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
      for (int j = 0; j < 4; j++) {
        if (completes && second) c[i][j] = levels[level][i][j] + c[i][j];
        else if (completes) levels[level][i][j] = c[i][j];
      }
    completes = completes && second;
  }
}

/* The tile from row m0 and column n0 on of a product with up to 2^LEVELS leaves. */
template <typename T, int LEVELS> __device__ inline void multiply_tree(const mt_matmul_args &a, int64_t depth, int64_t m0, int64_t n0) {
  int64_t stretches = a.stretches > 0 ? a.stretches : 1, part = depth / stretches / a.leaves;
  tile levels[LEVELS + 1] = {}, sum;
  for (int leaf = 0; leaf < a.leaves; leaf++) {
    for (int i = 0; i < 4; i++)
      for (int j = 0; j < 4; j++) sum[i][j] = 0;
    for (int64_t s = 0; s < stretches; s++) add_run<T>(sum, a, {s * (depth / stretches) + leaf * part, part, 1}, m0, n0);
    add_leaf<LEVELS>(levels, sum, leaf);
  }
#pragma unroll /* an index that is known, again */
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int j = 0; j < 4; j++)
      if (in_matrix(a.c, m0, n0, i, j)) finish<T>(a, row_of_tile(m0, i), column_of_tile(n0, j), sum[i][j]);
}

/* A thread's sums of leaves on a grid, which need no order, and the largest magnitude of one leaf. */
struct exact_tile {
  double grid, sum[4][4];
  int most;

  __device__ explicit exact_tile(double grid) : grid(grid), sum{}, most(0) {}

  template <typename T> __device__ void add(const mt_matmul_args &a, const run &r, int64_t m0, int64_t n0) {
    tile c = {};
    add_run<T>(c, a, r, m0, n0);
    for (int i = 0; i < 4; i++)
      for (int j = 0; j < 4; j++) {
        if (!in_matrix(a.c, m0, n0, i, j)) continue;
        sum[i][j] += on_grid(c[i][j], grid);
        if (magnitude(c[i][j]) > most) most = magnitude(c[i][j]);
      }
  }

  /* Adds them to C f64 and leaves the block's largest magnitude. */
  __device__ void leave(const mt_tensor &c, int64_t m0, int64_t n0, int *peak) {
    for (int i = 0; i < 4; i++)
      for (int j = 0; j < 4; j++)
        if (in_matrix(c, m0, n0, i, j)) data_of<double>(c)[row_of_tile(m0, i) * c.stride[0] + column_of_tile(n0, j)] += sum[i][j];
    int all = block_larger(most);
    if (threadIdx.x == 0) *peak = all;
  }
};

/* Whether a tree of so many leaves can be made; else ctx->error says so. */
inline bool fits(mt_context *ctx, int32_t leaves, const char *op) {
  if (leaves <= 1 << MOST_LEVELS) return true;
  snprintf(ctx->error, sizeof ctx->error, "%s: %d leaves are too many, because a GPU supports at most %d; lower --reduction-leaves", op, leaves, 1 << MOST_LEVELS);
  return false;
}

/* The statement with LEVELS as the levels that a kernel for so many leaves is compiled with: one
 * leaf, the usual 8, or as many as there may be. */
#define MT_BY_LEVELS(count, ...)                                                                    \
  if ((count) == 1) { const int LEVELS = 0; __VA_ARGS__; }                                          \
  else if ((count) <= 8) { const int LEVELS = 3; __VA_ARGS__; }                                     \
  else { const int LEVELS = leaves::MOST_LEVELS; __VA_ARGS__; }

} // namespace leaves

#endif
