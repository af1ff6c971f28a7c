/* Sums whose bits no order changes: see op_exact.go. */
#include "exact.h"
#include "spread.h"

__global__ void raise_peak_kernel(int *peak, const int *blocks, int64_t count) {
  int most = *peak;
  for (int64_t b = threadIdx.x; b < count; b += SPREAD) most = blocks[b] > most ? blocks[b] : most;
  most = block_larger(most);
  if (threadIdx.x == 0) *peak = most;
}

void mt_raise_peak(cudaStream_t stream, float *peak, const int *blocks, int64_t count) {
  MT_LAUNCH(raise_peak_kernel, 1, SPREAD, 0, stream, (int *)peak, blocks, count);
}

template <typename T> __global__ void grid_add_kernel(const __grid_constant__ mt_grid_add_args a, int *peaks) {
  int64_t i = (int64_t)blockIdx.x * SPREAD + threadIdx.x;
  int most = 0;
  if (i < length(a.x)) {
    T x = data_of<T>(a.x)[i];
    data_of<double>(a.sum)[i] += on_grid(x, given(a.grid) ? *data_of<double>(a.grid) : 0);
    most = magnitude((float)x);
  }
  most = block_larger(most);
  if (threadIdx.x == 0) peaks[blockIdx.x] = most;
}

static void grid_add(mt_context *ctx, const mt_grid_add_args &a, void *scratch) {
  int64_t n = length(a.sum);
  if (n == 0) return;
  if (length(a.x) > n) { /* row by row */
    for (int64_t at = 0; at < length(a.x); at += n) {
      mt_grid_add_args row = a;
      row.x.data = static_cast<char *>(a.x.data) + at * element_size(a.x.dtype);
      row.x.rank = 1, row.x.shape[0] = n, row.x.stride[0] = 1;
      grid_add(ctx, row, scratch);
    }
    return;
  }
  int *peaks = static_cast<int *>(scratch);
  if (a.x.dtype == MT_F64) MT_LAUNCH(grid_add_kernel<double>, blocks_for(n, SPREAD), SPREAD, 0, stream_of(ctx), a, peaks);
  else MT_LAUNCH(grid_add_kernel<float>, blocks_for(n, SPREAD), SPREAD, 0, stream_of(ctx), a, peaks);
  if (given(a.peak)) mt_raise_peak(stream_of(ctx), data_of<float>(a.peak), peaks, blocks_for(n, SPREAD));
}

static int64_t grid_add_bytes(const void *args) {
  return blocks_for(length(static_cast<const mt_grid_add_args *>(args)->sum), SPREAD) * (int64_t)sizeof(int);
}

MT_OP(grid_add, grid_add_bytes)

enum { LIMBS = 4, EACH = 16 };

static unsigned squares_blocks(int64_t n) { return (unsigned)at_most(ceil_div(n, SPREAD * EACH), 1024); }

/* Blocks leave LIMBS sums each, which one thread a limb adds up. */
__global__ void exact_squares_kernel(const __grid_constant__ mt_exact_squares_args a, double *parts) {
  double sums[LIMBS] = {};
  for (int64_t i = (int64_t)blockIdx.x * SPREAD + threadIdx.x; i < length(a.x); i += (int64_t)gridDim.x * SPREAD) {
    double x = data_of<float>(a.x)[i] * a.scale, rest = x * x, grid = 1;
    for (int k = 0; k < LIMBS; k++) {
      grid = ldexp(grid, (int)-a.bits);
      double limb = on_grid(rest, grid);
      sums[k] += limb;
      rest -= limb;
    }
  }
  for (int k = 0; k < LIMBS; k++) {
    double sum = block_sum(sums[k]);
    if (threadIdx.x == 0) parts[blockIdx.x * LIMBS + k] = sum;
  }
}

__global__ void add_limbs_kernel(double *out, const double *parts, int count) {
  for (int p = 0; p < count; p++) out[threadIdx.x] += parts[p * LIMBS + threadIdx.x];
}

static void exact_squares(mt_context *ctx, const mt_exact_squares_args &a, void *scratch) {
  int64_t n = length(a.x);
  if (n == 0) return;
  double *parts = static_cast<double *>(scratch);
  unsigned count = squares_blocks(n);
  MT_LAUNCH(exact_squares_kernel, count, SPREAD, 0, stream_of(ctx), a, parts);
  MT_LAUNCH(add_limbs_kernel, 1, LIMBS, 0, stream_of(ctx), data_of<double>(a.out), parts, (int)count);
}

static int64_t exact_squares_bytes(const void *args) {
  return squares_blocks(length(static_cast<const mt_exact_squares_args *>(args)->x)) * LIMBS * (int64_t)sizeof(double);
}

MT_OP(exact_squares, exact_squares_bytes)
