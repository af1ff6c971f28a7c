/* Numbers of 4 bits with a scale in E4M3 for each block and one in f32 for the tensor (op_fp4.go): a block of
 * threads for each. */
#include "fp8.h"

namespace {

template <typename T, typename O> __global__ void round_nvfp4_kernel(const __grid_constant__ mt_round_nvfp4_args a, int64_t across) {
  fp8_block b = block_of(a.x, a.rows, a.columns, across);
  float most = *data_of<float>(a.most), own = block_most<T>(a.x, b);
  bool changes = rounds(most);
  // The tensor's scale, the block's in E4M3, and what values are multiplied with before and after.
  float tensor = fminf(__fdiv_rn(2688.f, most), LARGEST_F32);
  float scale = small_float(clamped(own * (tensor * (1.f / 6)), 448.f), MT_E4_M3);
  float encode = fminf(__fdiv_rn(1.f, scale * __fdiv_rn(1.f, tensor)), LARGEST_F32), decode = scale * most * (1.f / 2688);
  change_block<T, O>(a.out, a.x, b, [&](float x) { return changes ? small_float(clamped(x * encode, 6.f), E2M1) * decode : x; });
}

} // namespace

static void round_nvfp4(mt_context *ctx, const mt_round_nvfp4_args &a, void *) {
  if (length(a.x) == 0) return;
  int64_t across = ceil_div(a.x.shape[1], a.columns);
  unsigned blocks = (unsigned)(ceil_div(a.x.shape[0], a.rows) * across);
  if (a.out.dtype == a.x.dtype) {
    MT_BY_TYPE(a.x.dtype, MT_LAUNCH((round_nvfp4_kernel<T, T>), blocks, SPREAD, 0, stream_of(ctx), a, across))
  } else {
    MT_BY_TYPE(a.x.dtype, MT_LAUNCH((round_nvfp4_kernel<T, float>), blocks, SPREAD, 0, stream_of(ctx), a, across))
  }
}

MT_OP(round_nvfp4, nullptr)
