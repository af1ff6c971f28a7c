/* Sums and maxima over the threads of a warp and of a block, in an order that the
 * block's size alone decides. Blocks are full warps, 32 of them at most. */
#ifndef MT_REDUCE_H
#define MT_REDUCE_H

#include "kernel.h"

const unsigned ALL_LANES = 0xffffffff;

/* The sum over this lane's group of LANES, a power of two, in each of them. */
template <int LANES, typename T> __device__ inline T lanes_sum(T x) {
#pragma unroll
  for (int by = LANES / 2; by > 0; by /= 2) x += __shfl_xor_sync(ALL_LANES, x, by);
  return x;
}

template <typename T> __device__ inline T warp_sum(T x) { return lanes_sum<32>(x); }

__device__ inline float warp_max(float x) {
#pragma unroll
  for (int by = 16; by > 0; by /= 2) x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, by));
  return x;
}

/* The sum over the block, in every thread. Begins and ends so that it can be
 * called again at once. */
template <typename T> __device__ inline T block_sum(T x) {
  MT_SHARED(T[32], parts);
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  x = warp_sum(x);
  if (lane == 0) parts[warp] = x;
  __syncthreads();
  x = lane < (int)blockDim.x / 32 ? parts[lane] : T(0);
  x = warp_sum(x);
  __syncthreads();
  return x;
}

/* Two such sums with the barriers of one. */
__device__ inline void block_sums(float &x, float &y) {
  MT_SHARED(float[2][32], pairs);
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  x = warp_sum(x), y = warp_sum(y);
  if (lane == 0) pairs[0][warp] = x, pairs[1][warp] = y;
  __syncthreads();
  bool here = lane < (int)blockDim.x / 32;
  x = warp_sum(here ? pairs[0][lane] : 0), y = warp_sum(here ? pairs[1][lane] : 0);
  __syncthreads();
}

#endif
