/* How tensors are walked, on the host and in kernels. */
#ifndef MT_TENSOR_H
#define MT_TENSOR_H

#include "kernel.h"

__host__ __device__ inline bool given(const mt_tensor &t) { return t.rank > 0; }
__host__ __device__ inline int64_t last(const mt_tensor &t) { return t.shape[t.rank - 1]; }

__host__ __device__ inline int64_t length(const mt_tensor &t) {
  int64_t n = 1;
  for (int d = 0; d < t.rank; d++) n *= t.shape[d];
  return n;
}

/* Vectors along the last dimension. */
__host__ __device__ inline int64_t rows(const mt_tensor &t) {
  int64_t n = 1;
  for (int d = 0; d + 1 < t.rank; d++) n *= t.shape[d];
  return n;
}

/* Offset in elements of such a vector. */
__host__ __device__ inline int64_t row_at(const mt_tensor &t, int64_t row) {
  if (t.rank < 2) return 0;
  int64_t at = 0;
  for (int d = t.rank - 2; d > 0; d--) {
    at += row % t.shape[d] * t.stride[d];
    row /= t.shape[d];
  }
  return at + row * t.stride[0];
}

/* The same rows in as few dimensions as they can have: who walks over them divides less. */
inline mt_tensor merged(mt_tensor t) {
  if (!given(t)) return t;
  int n = 0; /* dimensions that rows have so far */
  for (int d = 0; d + 1 < t.rank; d++) {
    if (t.shape[d] == 1) continue;
    if (n > 0 && t.stride[n - 1] == t.shape[d] * t.stride[d]) {
      t.shape[n - 1] *= t.shape[d];
      t.stride[n - 1] = t.stride[d];
    } else {
      t.shape[n] = t.shape[d];
      t.stride[n++] = t.stride[d];
    }
  }
  t.shape[n] = last(t);
  t.stride[n] = t.stride[t.rank - 1];
  t.rank = n + 1;
  return t;
}

template <typename T> __host__ __device__ inline T *row_of(const mt_tensor &t, int64_t row) { return static_cast<T *>(t.data) + row_at(t, row); }
template <typename T> __host__ __device__ inline T *data_of(const mt_tensor &t) { return static_cast<T *>(t.data); }

inline int64_t element_size(int dtype) {
  static const int8_t bytes[] = {4, 2, 2, 4, 8, 2, 8, 1};
  return bytes[dtype];
}

/* The rows of a leaf of t [rows, ..]: `chunk` of them, `batch` apart (ColumnSumArgs). */
inline mt_tensor leaf_rows(mt_tensor t, int64_t leaf, int64_t chunk, int64_t batch) {
  if (!given(t)) return t;
  t.data = static_cast<char *>(t.data) + (leaf / batch * chunk * batch + leaf % batch) * t.stride[0] * element_size(t.dtype);
  t.shape[0] = chunk;
  t.stride[0] *= batch;
  return t;
}

/* Row `row` of t [rows, n]. */
inline mt_tensor one_row(mt_tensor t, int64_t row) {
  if (!given(t)) return t;
  t.data = static_cast<char *>(t.data) + row * t.stride[0] * element_size(t.dtype);
  t.shape[0] = t.shape[1];
  t.stride[0] = t.stride[1];
  t.rank = 1;
  return t;
}

inline bool contiguous(const mt_tensor &t) {
  int64_t step = 1;
  for (int d = t.rank - 1; d >= 0; d--) {
    if (t.shape[d] != 1 && t.stride[d] != step) return false;
    step *= t.shape[d];
  }
  return true;
}

/* mt_device_api's invariant was called: how rows lie, which layouts change, may not choose a kernel, as
 * another one adds up or fuses otherwise; nor may a library. */
extern bool mt_cuda_invariant;

/* Whether every row of t starts where n elements can be moved at once, and holds a
 * multiple of n. A tensor that is not given hinders nobody. For kernels that only move bits. */
inline bool packs_bits(const mt_tensor &t, int n) {
  if (!given(t)) return true;
  if ((uintptr_t)t.data % (n * element_size(t.dtype)) || last(t) % n) return false;
  for (int d = 0; d + 1 < t.rank; d++)
    if (t.shape[d] > 1 && t.stride[d] % n) return false;
  return true;
}

/* The same for kernels that compute, which therefore have one way for all tensors where layouts may
 * not change a bit. */
inline bool packs(const mt_tensor &t, int n) { return !mt_cuda_invariant && packs_bits(t, n); }

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t at_least(int64_t a, int64_t b) { return a > b ? a : b; }

#endif
