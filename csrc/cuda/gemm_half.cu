/* C = op(A)·op(B) in bf16 or f16. */
#include "gemm.h"
#include "gemm_half.h"

using namespace gemm_half;

namespace {

template <typename T, bool TRANS_A, bool TRANS_B>
__global__ void __launch_bounds__(THREADS) gemm_half_kernel(const __grid_constant__ mt_matmul_args a, int64_t depth, bool aligned_a, bool aligned_b) {
  multiply_tile<T, TRANS_A, TRANS_B>(a, depth, aligned_a, aligned_b, (int64_t)blockIdx.y * SIDE, (int64_t)blockIdx.x * SIDE);
}

template <typename T, bool TRANS_A, bool TRANS_B> void launch(cudaStream_t stream, const mt_matmul_args &a) {
  const int bytes = room<T, TRANS_A, TRANS_B>::BYTES;
  auto kernel = gemm_half_kernel<T, TRANS_A, TRANS_B>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  dim3 grid(blocks_for(a.c.shape[1], SIDE), blocks_for(a.c.shape[0], SIDE));
  int64_t depth = TRANS_A ? a.a.shape[0] : a.a.shape[1];
  MT_LAUNCH(kernel, grid, THREADS, bytes, stream, a, depth, moves(a.a), moves(a.b));
}

template <typename T> void by_transposes(cudaStream_t stream, const mt_matmul_args &a) {
  if (a.trans_a && a.trans_b) launch<T, true, true>(stream, a);
  else if (a.trans_a) launch<T, true, false>(stream, a);
  else if (a.trans_b) launch<T, false, true>(stream, a);
  else launch<T, false, false>(stream, a);
}

} // namespace

void mt_gemm_half(cudaStream_t stream, const mt_matmul_args &a) {
  if (a.a.dtype == MT_BF16) by_transposes<bf16>(stream, a);
  else by_transposes<f16>(stream, a);
}
