/* Numbers of 8 bits with a scale for each block (op_fp8.go): a block of threads for each. */
#include "fp8.h"

namespace {

/* A power of two: products and quotients of it do not round. */
__device__ inline float fp8_scale(float most, float limit, int rule) {
  if (rule == MT_SCALE_E8_M0) { /* 127 less the exponent, rounded up, and a number's own 127; 2^-127 is not a normal number */
    unsigned bits = (unsigned)__float_as_int(most * __fdiv_rn(1.f, limit)), up = bits > 0x400000 ? (bits + 0x7fffff) >> 23 : 0;
    return __int_as_float((int)((254 - up) << 23));
  }
  return __int_as_float(__float_as_int(fminf(__fdiv_rn(limit, most), LARGEST_F32)) & (int)0xff800000);
}

template <typename T> __global__ void round_fp8_kernel(const __grid_constant__ mt_round_fp8_args a, int64_t across) {
  fp8_block b = block_of(a.x, a.rows, a.columns, across);
  float most = block_most<T>(a.x, b);
  bool changes = rounds(most);
  float scale = changes ? fp8_scale(most, small_limit(a.format), a.rule) : 1;
  change_block<T, T>(a.out, a.x, b, [&](float x) { return changes ? small_float(x * scale, a.format) / scale : x; });
}

} // namespace

static void round_fp8(mt_context *ctx, const mt_round_fp8_args &a, void *) {
  if (length(a.x) == 0) return;
  int64_t across = ceil_div(a.x.shape[1], a.columns);
  MT_BY_TYPE(a.x.dtype, MT_LAUNCH(round_fp8_kernel<T>, (unsigned)(ceil_div(a.x.shape[0], a.rows) * across), SPREAD, 0, stream_of(ctx), a, across))
}

MT_KNOWN(scale_rule, MT_BIT(MT_SCALE_BELOW) | MT_BIT(MT_SCALE_E8_M0))
MT_OP(round_fp8, nullptr)
