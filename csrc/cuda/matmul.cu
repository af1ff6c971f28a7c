/* The matrix product: by cuBLASLt where it is found and can, else by our kernels, whose sums
 * have one order whatever the number of rows; and products by leaves (leaves.h). */
#include "blaslt.h"
#include "gemm.h"
#include "leaves.h"

namespace {

template <typename T, int LEVELS> __global__ void __launch_bounds__(leaves::THREADS, leaves::blocks_an_sm(LEVELS)) tree_kernel(const __grid_constant__ mt_matmul_args a, int64_t depth) {
  leaves::multiply_tree<T, LEVELS>(a, depth, (int64_t)blockIdx.y * leaves::SIDE, (int64_t)blockIdx.x * leaves::SIDE);
}

/* A block adds all leaves of its tile, sample by sample of a chunk. */
template <typename T> __global__ void __launch_bounds__(leaves::THREADS, 2) grid_kernel(const __grid_constant__ mt_matmul_args a, int *peaks) {
  int64_t m0 = (int64_t)blockIdx.y * leaves::SIDE, n0 = (int64_t)blockIdx.x * leaves::SIDE, rows = a.a.shape[0];
  leaves::exact_tile sums(*data_of<double>(a.grid));
  for (int64_t at = 0; at < rows; at += (int64_t)a.chunk * a.batch)
    for (int64_t sample = 0; sample < a.batch; sample++) sums.add<T>(a, {at + sample, a.chunk, a.batch}, m0, n0);
  sums.leave(a.c, m0, n0, peaks + blockIdx.y * gridDim.x + blockIdx.x);
}

dim3 tiles_of(const mt_matmul_args &a) { return dim3(blocks_for(a.c.shape[1], leaves::SIDE), blocks_for(a.c.shape[0], leaves::SIDE)); }

void by_leaves(mt_context *ctx, const mt_matmul_args &a) {
  if (!leaves::fits(ctx, a.leaves, "matmul")) return;
  int64_t depth = a.trans_a ? a.a.shape[0] : a.a.shape[1];
  MT_BY_LEVELS(a.leaves, MT_BY_TYPE(a.a.dtype, MT_LAUNCH((tree_kernel<T, LEVELS>), tiles_of(a), leaves::THREADS, 0, stream_of(ctx), a, depth)))
}

void add_on_grid(mt_context *ctx, const mt_matmul_args &a, int *peaks) {
  dim3 tiles = tiles_of(a);
  MT_BY_TYPE(a.a.dtype, MT_LAUNCH(grid_kernel<T>, tiles, leaves::THREADS, 0, stream_of(ctx), a, peaks))
  mt_raise_peak(stream_of(ctx), data_of<float>(a.peak), peaks, (int64_t)tiles.x * tiles.y);
}

} // namespace

static void matmul(mt_context *ctx, const mt_matmul_args &a, void *scratch) {
  if (length(a.c) == 0) return;
  if (given(a.grid)) {
    add_on_grid(ctx, a, static_cast<int *>(scratch));
  } else if (a.leaves > 0) {
    by_leaves(ctx, a);
  } else if (!a.by_row && !mt_cuda_invariant && mt_blaslt_matmul(ctx, a)) {
    return;
  } else if (a.a.dtype == MT_F32) {
    mt_gemm_f32(stream_of(ctx), a);
  } else {
    mt_gemm_half(stream_of(ctx), a);
  }
}

/* Of the blocks' largest magnitudes. */
static int64_t matmul_bytes(const void *args) {
  const mt_matmul_args &a = *static_cast<const mt_matmul_args *>(args);
  dim3 tiles = tiles_of(a);
  return given(a.grid) ? (int64_t)tiles.x * tiles.y * (int64_t)sizeof(int) : 0;
}

MT_KNOWN(epilogue, MT_BIT(MT_NO_EPILOGUE) | MT_BIT(MT_GELU_TANH_EPILOGUE) | MT_BIT(MT_GELU_ERF_EPILOGUE)) /* epilogue.h */
MT_OP(matmul, matmul_bytes)
