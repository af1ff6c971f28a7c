/* Numbers of 8 bits with a scale for each block (op_fp8.go): a block of threads for each. */
#include "reduce.h"
#include "spread.h"

namespace {

enum { E5M2 = 1 };

/* y in the format, half to even. */
__device__ inline float to_fp8(float y, int format) {
  int drop = format == E5M2 ? 21 : 20;
  float least = format == E5M2 ? 0x1p-14f : 0x1p-6f, magic = format == E5M2 ? 0x1.8p7f : 0x1.8p14f;
  if (fabsf(y) < least) return __fadd_rn(__fadd_rn(y, magic), -magic);
  unsigned u = (unsigned)__float_as_int(y);
  return __int_as_float((int)((u + ((1u << (drop - 1)) - 1) + (u >> drop & 1)) & ~((1u << drop) - 1)));
}

template <typename T> __global__ void round_fp8_kernel(const __grid_constant__ mt_round_fp8_args a, int64_t across) {
  MT_SHARED(float[32], parts);
  MT_SHARED(int[1], odd);
  // This block's rows and columns; the last ones of a tensor may be smaller.
  int64_t r = blockIdx.x / across * a.rows, c = blockIdx.x % across * a.columns;
  int64_t height = a.x.shape[0] - r < a.rows ? a.x.shape[0] - r : a.rows, width = a.x.shape[1] - c < a.columns ? a.x.shape[1] - c : a.columns;
  if (threadIdx.x == 0) odd[0] = 0;
  __syncthreads();
  // The largest magnitude, and whether a value is not finite.
  float most = 0;
  for (int64_t i = threadIdx.x; i < height * width; i += SPREAD) {
    float x = fabsf(to_float(row_of<T>(a.x, r + i / width)[c + i % width]));
    if (!(x <= 3.402823466e38f)) odd[0] = 1;
    most = fmaxf(most, x);
  }
  most = warp_max(most);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = most;
  __syncthreads();
  most = 0;
  for (int i = 0; i < SPREAD / 32; i++) most = fmaxf(most, parts[i]);
  // The largest power of two that keeps `most` inside the format's range (448 or 57344): dividing by it is exact.
  // Blocks of zeros, or with values that are not finite, stay as they are.
  float scale = 0;
  if (most > 0 && odd[0] == 0) {
    scale = fminf(__fdiv_rn(a.format == E5M2 ? 57344.f : 448.f, most), 3.402823466e38f);
    scale = __int_as_float(__float_as_int(scale) & (int)0xff800000);
  }
  for (int64_t i = threadIdx.x; i < height * width; i += SPREAD) {
    float x = to_float(row_of<T>(a.x, r + i / width)[c + i % width]);
    row_of<T>(a.out, r + i / width)[c + i % width] = from_float<T>(scale == 0 ? x : to_fp8(x * scale, a.format) / scale);
  }
}

} // namespace

static void round_fp8(mt_context *ctx, const mt_round_fp8_args &a, void *) {
  if (length(a.x) == 0) return;
  int64_t across = ceil_div(a.x.shape[1], a.columns);
  MT_BY_TYPE(a.x.dtype, MT_LAUNCH(round_fp8_kernel<T>, (unsigned)(ceil_div(a.x.shape[0], a.rows) * across), SPREAD, 0, stream_of(ctx), a, across))
}

MT_OP(round_fp8, nullptr)
