/* Numbers of 8 bits with one scale for a tensor or a group of its rows, and the magnitude that it follows from
 * (op_fp8.go). */
#include "fp8.h"

namespace {

enum { MOST_BLOCKS = 1024, GROUP_BLOCKS = 32 };

unsigned max_abs_blocks(int64_t n) { return (unsigned)at_most(ceil_div(n, SPREAD), MOST_BLOCKS); }

/* The bits of the largest magnitude in this block's part, one of `blocks`, of rows from..to. */
template <typename T> __device__ inline int rows_most(const mt_tensor &x, int64_t from, int64_t to, int64_t block, int64_t blocks) {
  int most = 0;
  int64_t width = x.shape[1];
  for (int64_t i = from * width + block * SPREAD + threadIdx.x; i < to * width; i += blocks * SPREAD) {
    int here = magnitude(to_float(row_of<T>(x, i / width)[i % width]));
    most = here > most ? here : most;
  }
  most = block_larger(most);
  return most < 0x7f800000 ? most : 0x7f800000; /* infinite for a nan */
}

template <typename T> __global__ void max_abs_kernel(const __grid_constant__ mt_max_abs_args a, int *blocks) {
  int most = rows_most<T>(a.x, 0, a.x.shape[0], blockIdx.x, gridDim.x);
  if (threadIdx.x == 0) blocks[blockIdx.x] = most;
}

/* Blocks (i, g) have the rows of group g. */
template <typename T> __global__ void group_max_abs_kernel(const __grid_constant__ mt_max_abs_args a, int *blocks) {
  const int32_t *offsets = data_of<int32_t>(a.offsets) + blockIdx.y;
  int most = rows_most<T>(a.x, offsets[0], offsets[1], blockIdx.x, gridDim.x);
  if (threadIdx.x == 0) blocks[blockIdx.y * GROUP_BLOCKS + blockIdx.x] = most;
}

/* A block for each group takes the largest of its blocks before. */
__global__ void raise_groups_kernel(int *most, const int *blocks) {
  int here = block_larger(threadIdx.x < GROUP_BLOCKS ? blocks[blockIdx.x * GROUP_BLOCKS + threadIdx.x] : 0);
  if (threadIdx.x == 0 && here > most[blockIdx.x]) most[blockIdx.x] = here;
}

/* The group of a row: the last one that begins before it or at it. */
__device__ inline int64_t group_of(const mt_tensor &offsets, int64_t row) {
  const int32_t *at = data_of<int32_t>(offsets);
  int64_t low = 0, high = offsets.shape[0] - 1;
  while (high - low > 1) {
    int64_t mid = (low + high) / 2;
    if (at[mid] <= row) low = mid;
    else high = mid;
  }
  return low;
}

template <typename T, typename O> __global__ void round_tensor_kernel(const __grid_constant__ mt_round_tensor_fp8_args a) {
  cell at = cell_of<1>(rows(a.x), last(a.x));
  if (!at.here) return;
  int64_t g = given(a.offsets) ? group_of(a.offsets, at.row) : 0;
  float x = to_float(row_of<T>(a.x, at.row)[at.column]), limit = small_limit(a.format), scale;
  bool changes = fabsf(x) <= LARGEST_F32;
  if (given(a.scale)) {
    scale = data_of<float>(a.scale)[g];
  } else {
    float most = data_of<float>(a.most)[g];
    scale = fminf(__fdiv_rn(limit, most), LARGEST_F32);
    changes = changes && rounds(most);
  }
  if (changes) x = small_float(clamped(x * scale, limit), a.format) * __fdiv_rn(1.f, scale);
  row_of<O>(a.out, at.row)[at.column] = from_float<O>(x);
}

} // namespace

static void max_abs(mt_context *ctx, const mt_max_abs_args &a, void *scratch) {
  int64_t n = length(a.x);
  if (n == 0) return;
  int *blocks = static_cast<int *>(scratch);
  if (given(a.offsets)) {
    unsigned groups = (unsigned)a.most.shape[0];
    MT_BY_TYPE(a.x.dtype, MT_LAUNCH(group_max_abs_kernel<T>, dim3(GROUP_BLOCKS, groups), SPREAD, 0, stream_of(ctx), a, blocks))
    MT_LAUNCH(raise_groups_kernel, groups, SPREAD, 0, stream_of(ctx), (int *)data_of<float>(a.most), blocks);
    return;
  }
  MT_BY_TYPE(a.x.dtype, MT_LAUNCH(max_abs_kernel<T>, max_abs_blocks(n), SPREAD, 0, stream_of(ctx), a, blocks))
  mt_raise_peak(stream_of(ctx), data_of<float>(a.most), blocks, max_abs_blocks(n));
}

static int64_t max_abs_bytes(const void *args) {
  const mt_max_abs_args &a = *static_cast<const mt_max_abs_args *>(args);
  int64_t blocks = given(a.offsets) ? a.most.shape[0] * GROUP_BLOCKS : max_abs_blocks(length(a.x));
  return blocks * (int64_t)sizeof(int);
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
