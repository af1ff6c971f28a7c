/* Products of groups of rows with a matrix each, by our own tiles. The host knows how many
 * rows there are, not whose: there are blocks for any cut of them, and each finds its group
 * in the offsets. */
#include "gemm_f32.h"
#include "gemm_half.h"
#include "leaves.h"

namespace {

/* A block's part: the product of its group, and its rows of it. */
struct part {
  mt_matmul_args product;
  int64_t depth, row;
  bool here; /* false: there is nothing to do */
};

__device__ inline mt_tensor matrix_of(const mt_tensor &t, int64_t g, int64_t size) {
  mt_tensor m = {static_cast<char *>(t.data) + g * t.stride[0] * size, t.dtype, 2, {t.shape[1], t.shape[2]}, {t.stride[1], 1}};
  return m;
}

__device__ inline mt_tensor rows_between(const mt_tensor &t, int64_t from, int64_t to, int64_t size) {
  mt_tensor rows = {static_cast<char *>(t.data) + from * t.stride[0] * size, t.dtype, 2, {to - from, t.shape[1]}, {t.stride[0], 1}};
  return rows;
}

/* Tile number `tile` of all groups' tiles of `side` rows. */
template <typename T> __device__ part part_of_rows(const mt_grouped_matmul_args &a, int64_t tile, int side) {
  const int32_t *offsets = data_of<int32_t>(a.offsets);
  int64_t groups = a.offsets.shape[0] - 1, g = 0;
  for (; g < groups; g++) {
    int64_t tiles = (offsets[g + 1] - offsets[g] + side - 1) / side;
    if (tile < tiles) break;
    tile -= tiles;
  }
  part p = {};
  if (g == groups) return p;
  int64_t c_size = a.c.dtype == MT_F32 ? 4 : sizeof(T);
  p.product.a = rows_between(a.a, offsets[g], offsets[g + 1], sizeof(T));
  p.product.b = matrix_of(a.b, g, sizeof(T));
  p.product.c = rows_between(a.c, offsets[g], offsets[g + 1], c_size);
  p.product.trans_b = a.trans_b;
  if (given(a.bias)) {
    p.product.bias.data = row_of<T>(a.bias, g);
    p.product.bias.rank = 1;
  }
  p.depth = a.a.shape[1], p.row = tile * side, p.here = true;
  return p;
}

/* Of the gradient of group g's matrix. */
template <typename T> __device__ part part_of_gradient(const mt_grouped_matmul_args &a, int64_t g, int64_t tile, int side) {
  const int32_t *offsets = data_of<int32_t>(a.offsets);
  part p = {};
  p.product.a = rows_between(a.a, offsets[g], offsets[g + 1], sizeof(T));
  p.product.b = rows_between(a.b, offsets[g], offsets[g + 1], sizeof(T));
  p.product.c = matrix_of(a.c, g, a.c.dtype == MT_F64 ? sizeof(double) : sizeof(float));
  p.product.trans_a = p.product.accumulate = 1;
  p.depth = offsets[g + 1] - offsets[g], p.row = tile * side, p.here = p.depth > 0;
  return p;
}

template <typename T> __device__ inline part part_of_block(const mt_grouped_matmul_args &a, int side) {
  return a.trans_a ? part_of_gradient<T>(a, blockIdx.z, blockIdx.y, side) : part_of_rows<T>(a, blockIdx.y, side);
}

__global__ void __launch_bounds__(gemm_f32::THREADS, 3) grouped_f32_kernel(const __grid_constant__ mt_grouped_matmul_args a) {
  part p = part_of_block<float>(a, gemm_f32::SIDE);
  if (p.here) gemm_f32::multiply_tile(p.product, p.depth, p.row, (int64_t)blockIdx.x * gemm_f32::SIDE);
}

template <typename T, bool TRANS_A, bool TRANS_B>
__global__ void __launch_bounds__(gemm_half::THREADS) grouped_half_kernel(const __grid_constant__ mt_grouped_matmul_args a, bool aligned_a, bool aligned_b) {
  part p = part_of_block<T>(a, gemm_half::SIDE);
  if (p.here) gemm_half::multiply_tile<T, TRANS_A, TRANS_B>(p.product, p.depth, aligned_a, aligned_b, p.row, (int64_t)blockIdx.x * gemm_half::SIDE);
}

/* Products whose sums are trees of leaves. */
template <typename T, int LEVELS> __global__ void __launch_bounds__(leaves::THREADS, LEVELS == 0 ? 2 : 1) grouped_tree_kernel(const __grid_constant__ mt_grouped_matmul_args a) {
  part p = part_of_rows<T>(a, blockIdx.y, leaves::SIDE);
  p.product.leaves = a.leaves, p.product.stretches = a.stretches;
  if (p.here) leaves::multiply_tree<T, LEVELS>(p.product, p.depth, p.row, (int64_t)blockIdx.x * leaves::SIDE);
}

/* Gradients on a grid: a leaf is neighbouring rows with one number. */
template <typename T> __global__ void __launch_bounds__(leaves::THREADS, 2) grouped_grid_kernel(const __grid_constant__ mt_grouped_matmul_args a, int *peaks) {
  part p = part_of_gradient<T>(a, blockIdx.z, blockIdx.y, leaves::SIDE);
  int64_t n0 = (int64_t)blockIdx.x * leaves::SIDE, end;
  const int32_t *leaf = data_of<int32_t>(a.leaf) + data_of<int32_t>(a.offsets)[blockIdx.z];
  leaves::exact_tile sums(*data_of<double>(a.grid));
  for (int64_t at = 0; at < p.depth; at = end) {
    for (end = at + 1; end < p.depth && leaf[end] == leaf[at];) end++;
    sums.add<T>(p.product, {at, end - at, 1}, p.row, n0);
  }
  sums.leave(p.product.c, p.row, n0, peaks + ((int64_t)blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x);
}

/* Blocks for tiles of `side`: no more than one of a group's is not full. */
dim3 grid_of(const mt_grouped_matmul_args &a, int side) {
  int64_t groups = a.offsets.shape[0] - 1;
  if (a.trans_a) return dim3(blocks_for(last(a.c), side), blocks_for(a.c.shape[1], side), (unsigned)groups);
  return dim3(blocks_for(last(a.c), side), (unsigned)(a.a.shape[0] / side + at_most(groups, a.a.shape[0])));
}

template <typename T, bool TRANS_A, bool TRANS_B> void launch(cudaStream_t stream, const mt_grouped_matmul_args &a) {
  const int bytes = gemm_half::room<T, TRANS_A, TRANS_B>::BYTES;
  auto kernel = grouped_half_kernel<T, TRANS_A, TRANS_B>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  MT_LAUNCH(kernel, grid_of(a, gemm_half::SIDE), gemm_half::THREADS, bytes, stream, a, gemm_half::moves(a.a), gemm_half::moves(a.b));
}

template <typename T> void by_transposes(cudaStream_t stream, const mt_grouped_matmul_args &a) {
  if (a.trans_a) launch<T, true, false>(stream, a);
  else if (a.trans_b) launch<T, false, true>(stream, a);
  else launch<T, false, false>(stream, a);
}

} // namespace

static void grouped_matmul(mt_context *ctx, const mt_grouped_matmul_args &a, void *scratch) {
  if (length(a.c) == 0 || a.a.shape[0] == 0) return;
  if (given(a.grid)) {
    dim3 blocks = grid_of(a, leaves::SIDE);
    int *peaks = static_cast<int *>(scratch);
    MT_BY_TYPE(a.a.dtype, MT_LAUNCH(grouped_grid_kernel<T>, blocks, leaves::THREADS, 0, stream_of(ctx), a, peaks))
    mt_raise_peak(stream_of(ctx), data_of<float>(a.peak), peaks, (int64_t)blocks.x * blocks.y * blocks.z);
  } else if (a.leaves > 0) {
    if (!leaves::fits(ctx, a.leaves, "grouped_matmul")) return;
    MT_BY_LEVELS(a.leaves, MT_BY_TYPE(a.a.dtype, MT_LAUNCH((grouped_tree_kernel<T, LEVELS>), grid_of(a, leaves::SIDE), leaves::THREADS, 0, stream_of(ctx), a)))
  } else if (a.a.dtype == MT_F32) {
    MT_LAUNCH(grouped_f32_kernel, grid_of(a, gemm_f32::SIDE), gemm_f32::THREADS, 0, stream_of(ctx), a);
  } else if (a.a.dtype == MT_BF16) {
    by_transposes<bf16>(stream_of(ctx), a);
  } else {
    by_transposes<f16>(stream_of(ctx), a);
  }
}

/* Of the blocks' largest magnitudes. */
static int64_t grouped_matmul_bytes(const void *args) {
  const mt_grouped_matmul_args &a = *static_cast<const mt_grouped_matmul_args *>(args);
  dim3 blocks = grid_of(a, leaves::SIDE);
  return given(a.grid) ? (int64_t)blocks.x * blocks.y * blocks.z * (int64_t)sizeof(int) : 0;
}

MT_OP(grouped_matmul, grouped_matmul_bytes)
