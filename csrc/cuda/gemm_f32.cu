/* C = op(A)·op(B) in f32. */
#include "gemm.h"
#include "gemm_f32.h"

using namespace gemm_f32;

namespace {

__global__ void __launch_bounds__(THREADS) gemm_f32_kernel(const __grid_constant__ mt_matmul_args a, int64_t depth) {
  multiply_tile(a, depth, (int64_t)blockIdx.y * SIDE, (int64_t)blockIdx.x * SIDE);
}

} // namespace

void mt_gemm_f32(cudaStream_t stream, const mt_matmul_args &a) {
  dim3 grid(blocks_for(a.c.shape[1], SIDE), blocks_for(a.c.shape[0], SIDE));
  int64_t depth = a.trans_a ? a.a.shape[0] : a.a.shape[1];
  MT_LAUNCH(gemm_f32_kernel, grid, THREADS, 0, stream, a, depth);
}
