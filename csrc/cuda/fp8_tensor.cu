/* Numbers of 8 bits with one scale for a tensor, and the magnitude that it follows from (op_fp8.go). */
#include "fp8.h"

namespace {

enum { MOST_BLOCKS = 1024 };

unsigned max_abs_blocks(int64_t n) { return (unsigned)at_most(ceil_div(n, SPREAD), MOST_BLOCKS); }

template <typename T> __global__ void max_abs_kernel(const __grid_constant__ mt_max_abs_args a, int *blocks) {
  int most = 0;
  int64_t width = a.x.shape[1];
  for (int64_t i = (int64_t)blockIdx.x * SPREAD + threadIdx.x; i < a.x.shape[0] * width; i += (int64_t)gridDim.x * SPREAD) {
    int here = magnitude(to_float(row_of<T>(a.x, i / width)[i % width]));
    most = here > most ? here : most;
  }
  most = block_larger(most);
  if (threadIdx.x == 0) blocks[blockIdx.x] = most < 0x7f800000 ? most : 0x7f800000; /* infinite for a nan */
}

template <typename T, typename O> __global__ void round_tensor_kernel(const __grid_constant__ mt_round_tensor_fp8_args a) {
  cell at = cell_of<1>(rows(a.x), last(a.x));
  if (!at.here) return;
  float x = to_float(row_of<T>(a.x, at.row)[at.column]), most = *data_of<float>(a.most), limit = small_limit(a.format);
  if (rounds(most)) {
    float scale = fminf(__fdiv_rn(limit, most), LARGEST_F32);
    x = small_float(clamped(x * scale, limit), a.format) * __fdiv_rn(1.f, scale);
  }
  row_of<O>(a.out, at.row)[at.column] = from_float<O>(x);
}

} // namespace

static void max_abs(mt_context *ctx, const mt_max_abs_args &a, void *scratch) {
  int64_t n = length(a.x);
  if (n == 0) return;
  int *blocks = static_cast<int *>(scratch);
  MT_BY_TYPE(a.x.dtype, MT_LAUNCH(max_abs_kernel<T>, max_abs_blocks(n), SPREAD, 0, stream_of(ctx), a, blocks))
  mt_raise_peak(stream_of(ctx), data_of<float>(a.most), blocks, max_abs_blocks(n));
}

static int64_t max_abs_bytes(const void *args) {
  return max_abs_blocks(length(static_cast<const mt_max_abs_args *>(args)->x)) * (int64_t)sizeof(int);
}

MT_OP(max_abs, max_abs_bytes)

static void round_tensor_fp8(mt_context *ctx, const mt_round_tensor_fp8_args &a, void *) {
  if (length(a.x) == 0) return;
  unsigned blocks = spread_blocks(length(a.x), 1);
  if (a.out.dtype == a.x.dtype) {
    MT_BY_TYPE(a.x.dtype, MT_LAUNCH((round_tensor_kernel<T, T>), blocks, SPREAD, 0, stream_of(ctx), a))
  } else {
    MT_BY_TYPE(a.x.dtype, MT_LAUNCH((round_tensor_kernel<T, float>), blocks, SPREAD, 0, stream_of(ctx), a))
  }
}

MT_OP(round_tensor_fp8, nullptr)
