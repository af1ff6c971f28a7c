/* Tiles of rows in shared memory, and products of a warp's rows with them on tensor
 * cores. D: the channels of a row, a multiple of 16; those beyond the real ones are 0. */
#ifndef MT_TILES_H
#define MT_TILES_H

#include "attention.h"
#include "ptx.h"

/* Rows are 8 elements longer than their data, so that the eight rows of a matrix load
 * lie in different banks. */
template <int D> struct tile_row { enum { STRIDE = D + 8 }; };

/* Whether 16 bytes of a row of any head can be moved at once; its end may be ragged. */
inline bool moves(const mt_tensor &t) {
  if ((uintptr_t)t.data % 16) return false;
  for (int d = 0; d + 1 < t.rank; d++)
    if (t.shape[d] > 1 && t.stride[d] % 8) return false;
  return true;
}

/* Copies rows at.. of t at p, zeros from row `end` on, without waiting. A thread has the
 * same channels of every row it copies, and advances from one to the next by an addition; no byte
 * outside the rows is read. Rows are aligned but where heads are of odd sizes. */
template <int ROWS, int D, int THREADS, typename T>
__device__ inline void fetch_rows(T *to, const mt_tensor &t, const place &p, int at, int end, bool aligned) {
  const int S = tile_row<D>::STRIDE, EACH = THREADS / (D / 8); /* rows at once */
  static_assert(THREADS % (D / 8) == 0 && ROWS % EACH == 0, "threads go over rows evenly");
  unsigned thread = thread_again(); /* between tiles the registers are others' */
  int first = thread / (D / 8), c = thread % (D / 8) * 8, n = (int)last(t) - c;
  int64_t step = p.batch * t.stride[0];
  n = n < 0 ? 0 : n > 8 ? 8 : n;
  const T *from = row_at_place<T>(t, p, at + first) + c;
  to += first * S + c;
  if (aligned) {
#pragma unroll
    for (int r = 0; r < ROWS; r += EACH, from += EACH * step) copy_async(to + r * S, from, at + first + r < end ? n * (int)sizeof(T) : 0);
  } else {
#pragma unroll 1
    for (int r = 0; r < ROWS; r += EACH, from += EACH * step)
      for (int j = 0; j < 8; j++) to[r * S + j] = at + first + r < end && j < n ? from[j] : from_float<T>(0);
  }
}

/* scores [16 M, N] += rows [16 M, D] of a tile · the rows [N, D] of another, transposed. */
template <int N, int D, int M, typename T> __device__ inline void multiply_rows(float (&scores)[M][N / 8][4], const T *own, const T *other) {
  const int S = tile_row<D>::STRIDE;
  int lane = threadIdx.x % 32;
#pragma unroll
  for (int k = 0; k < D; k += 16) {
    uint32_t a[M][4];
#pragma unroll
    for (int m = 0; m < M; m++) load_matrices(a[m], own + (16 * m + lane % 16) * S + k + lane / 16 * 8);
#pragma unroll
    for (int n = 0; n < N; n += 16) {
      uint32_t b[4];
      load_matrices(b, other + (n + lane % 8 + lane / 16 * 8) * S + k + lane / 8 % 2 * 8);
#pragma unroll
      for (int m = 0; m < M; m++) {
        multiply(scores[m][n / 8], a[m], b[0], b[1], T());
        multiply(scores[m][n / 8 + 1], a[m], b[2], b[3], T());
      }
    }
  }
}
template <int N, int D, typename T> __device__ inline void multiply_rows(float (&scores)[N / 8][4], const T *own, const T *other) {
  multiply_rows<N, D, 1>(reinterpret_cast<float (&)[1][N / 8][4]>(scores), own, other);
}

/* Weights [16, N] as multiply_rows leaves them, rounded to T: the first factor of add_weighted. */
template <int N, typename T> __device__ inline void round_weights(uint32_t (&to)[N / 16][4], const float (&weights)[N / 8][4], T) {
#pragma unroll
  for (int k = 0; k < N / 16; k++)
#pragma unroll
    for (int i = 0; i < 4; i++) to[k][i] = pair_of<T>(weights[2 * k + i / 2][i % 2 * 2], weights[2 * k + i / 2][i % 2 * 2 + 1]);
}

/* sums [16 M, C] += weights [16 M, N] · columns 0..C-1 of rows [N, D]. */
template <int N, int D, int C, int M, typename T>
__device__ inline void add_weighted(float (&sums)[M][C / 8][4], const uint32_t (&weights)[M][N / 16][4], const T *rows) {
  const int S = tile_row<D>::STRIDE;
  int lane = threadIdx.x % 32;
#pragma unroll
  for (int k = 0; k < N; k += 16)
#pragma unroll
    for (int c = 0; c < C; c += 16) {
      uint32_t b[4];
      load_transposed(b, rows + (k + lane % 8 + lane / 8 % 2 * 8) * S + c + lane / 16 * 8);
#pragma unroll
      for (int m = 0; m < M; m++) {
        multiply(sums[m][c / 8], weights[m][k / 16], b[0], b[1], T());
        multiply(sums[m][c / 8 + 1], weights[m][k / 16], b[2], b[3], T());
      }
    }
}
template <int N, int D, int C, typename T> __device__ inline void add_weighted(float (&sums)[C / 8][4], const float (&weights)[N / 8][4], const T *rows) {
  uint32_t rounded[1][N / 16][4];
  round_weights<N>(rounded[0], weights, T());
  add_weighted<N, D, C, 1>(reinterpret_cast<float (&)[1][C / 8][4]>(sums), rounded, rows);
}

/* This lane's part of sums [16, C]: f(row, column, value and the next column's). */
template <int C, typename F> __device__ inline void each_pair(const float (&sums)[C / 8][4], F f) {
  int lane = threadIdx.x % 32;
#pragma unroll
  for (int c = 0; c < C / 8; c++)
#pragma unroll
    for (int half = 0; half < 2; half++) f(lane / 4 + 8 * half, c * 8 + lane % 4 * 2, sums[c][2 * half], sums[c][2 * half + 1]);
}

/* Stores two adjacent columns of a row of d, of which the second may not be there; both at
 * once where they lie so. */
template <typename T> __device__ inline void store_pair(T *row, int column, int d, float x, float y) {
  if (column + 1 < d && (uintptr_t)(row + column) % (2 * sizeof(T)) == 0) {
    const float both[2] = {x, y};
    store(row + column, both);
    return;
  }
  if (column < d) row[column] = from_float<T>(x);
  if (column + 1 < d) row[column + 1] = from_float<T>(y);
}

/* The same into a row of t at p, whose values are T, or f32 where they are parts of sums. */
template <typename T> __device__ inline void store_values(const mt_tensor &t, const place &p, int row, int column, float x, float y) {
  if (t.dtype == MT_F32) store_pair(row_at_place<float>(t, p, row), column, (int)last(t), x, y);
  else store_pair(row_at_place<T>(t, p, row), column, (int)last(t), x, y);
}

#endif
