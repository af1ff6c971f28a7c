/* Sums of f64 on a grid (op_exact.go). */
#ifndef MT_EXACT_H
#define MT_EXACT_H

#include "reduce.h"

/* x rounded to the nearest multiple of the grid, a power of two: by 1.5·2^52 of them. */
__device__ inline double on_grid(double x, double grid) {
  double magic = grid * 6755399441055744.;
  return (x + magic) - magic;
}

/* The magnitude of x by its bits: in the order of the numbers, a nan the largest. */
__device__ inline int magnitude(float x) {
  int bits;
  memcpy(&bits, &x, sizeof bits);
  return bits & 0x7fffffff;
}

/* The largest over the block, in every thread. */
__device__ inline int block_larger(int x) {
  MT_SHARED(int[32], parts);
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int by = 16; by > 0; by /= 2) {
    int other = __shfl_xor_sync(ALL_LANES, x, by);
    x = x > other ? x : other;
  }
  if (lane == 0) parts[warp] = x;
  __syncthreads();
  for (int w = 0; w < (int)blockDim.x / 32; w++) x = parts[w] > x ? parts[w] : x;
  __syncthreads();
  return x;
}

/* Raises peak, a number that is not negative, to the largest that blocks have left. */
void mt_raise_peak(cudaStream_t stream, float *peak, const int *blocks, int64_t count);

#endif
