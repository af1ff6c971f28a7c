/* Numbers of 8 and 4 bits with a scale for each block or tensor (op_fp8.go, op_fp4.go). */
#ifndef MT_FP8_H
#define MT_FP8_H

#include "exact.h"
#include "spread.h"

enum { E2M1 = MT_E5_M2 + 1 }; /* the format of 4 bits */

#define LARGEST_F32 3.402823466e38f

__host__ __device__ inline float small_limit(int format) { return format == E2M1 ? 6.f : format == MT_E5_M2 ? 57344.f : 448.f; }

/* Whether values of which this is the largest magnitude are rounded. */
__device__ inline bool rounds(float most) { return most > 0 && most <= LARGEST_F32; }

__device__ inline float clamped(float y, float limit) { return fmaxf(-limit, fminf(limit, y)); }

/* y in the format, half to even: the mantissa is cut to 3, 2 or 1 bits, below the least normal number to
 * multiples of the least one. |y| is at most the format's largest number. */
__device__ inline float small_float(float y, int format) {
  int drop = format == E2M1 ? 22 : format == MT_E5_M2 ? 21 : 20;
  float least = format == E2M1 ? 1.f : format == MT_E5_M2 ? 0x1p-14f : 0x1p-6f;
  float magic = format == E2M1 ? 0x1.8p22f : format == MT_E5_M2 ? 0x1.8p7f : 0x1.8p14f;
  if (fabsf(y) < least) return __fadd_rn(__fadd_rn(y, magic), -magic);
  unsigned u = (unsigned)__float_as_int(y);
  return __int_as_float((int)((u + ((1u << (drop - 1)) - 1) + (u >> drop & 1)) & ~((1u << drop) - 1)));
}

/* A block of a tensor: its first row and column, and its sides; the last ones may be smaller. */
struct fp8_block {
  int64_t row, column, height, width;
};

__device__ inline fp8_block block_of(const mt_tensor &x, int rows, int columns, int64_t across) {
  int64_t r = blockIdx.x / across * rows, c = blockIdx.x % across * columns;
  return {r, c, x.shape[0] - r < rows ? x.shape[0] - r : rows, x.shape[1] - c < columns ? x.shape[1] - c : columns};
}

/* The largest magnitude of the block, in every thread; a nan where there is one. */
template <typename T> __device__ inline float block_most(const mt_tensor &x, const fp8_block &b) {
  int most = 0;
  for (int64_t i = threadIdx.x; i < b.height * b.width; i += SPREAD) {
    int here = magnitude(to_float(row_of<T>(x, b.row + i / b.width)[b.column + i % b.width]));
    most = here > most ? here : most;
  }
  return __int_as_float(block_larger(most));
}

/* Sets the block of out to change(x). */
template <typename T, typename O, typename F> __device__ inline void change_block(const mt_tensor &out, const mt_tensor &x, const fp8_block &b, F change) {
  for (int64_t i = threadIdx.x; i < b.height * b.width; i += SPREAD)
    row_of<O>(out, b.row + i / b.width)[b.column + i % b.width] = from_float<O>(change(to_float(row_of<T>(x, b.row + i / b.width)[b.column + i % b.width])));
}

#endif
