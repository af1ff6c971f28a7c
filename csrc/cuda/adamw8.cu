/* AdamW with moments of 8 bits (op_adamw8.go): a block of threads for each 256 elements that share a scale. Roundings
 * are those of the formula, so products and sums that the compiler would put together are written out. */
#include "reduce.h"
#include "spread.h"

namespace {

enum { CODE_BLOCK = 256, STRETCHES = 65536 };
static_assert((int)CODE_BLOCK == (int)SPREAD, "a thread an element");

/* The largest of the threads' x, in every thread. */
__device__ inline float block_largest(float x) {
  MT_SHARED(float[32], parts);
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  x = warp_max(x);
  if (lane == 0) parts[warp] = x;
  __syncthreads();
  x = warp_max(lane < CODE_BLOCK / 32 ? parts[lane] : 0.f);
  __syncthreads();
  return x;
}

/* The code of this thread's x, which is 0 where it has no element, and the block's scale. */
__device__ inline uint8_t code_of(float x, float *scale, const uint8_t *nearest) {
  float most = block_largest(fabsf(x));
  if (threadIdx.x == 0) *scale = most;
  if (most == 0) return 0;
  float y = __fmul_rn(x, __fdiv_rn(1.f, most));
  y = y > -1 ? fminf(y, 1.f) : -1.f;
  return nearest[(int)__fadd_rn(__fmul_rn(__fmul_rn(__fadd_rn(y, 1.f), 0.5f), (float)(STRETCHES - 1)), 0.5f)];
}

/* The segment that has the block which begins at element from; -1: none has. */
__device__ inline int64_t segment_of(const mt_tensor &table, int64_t from) {
  if (!given(table)) return 0;
  const int64_t *at = data_of<int64_t>(table);
  int64_t low = 0, high = table.shape[0];
  while (low < high) {
    int64_t mid = (low + high) / 2;
    if (at[2 * mid + 1] > from) high = mid;
    else low = mid + 1;
  }
  return low < table.shape[0] && at[2 * low] <= from ? low : -1;
}

__global__ void adamw8_kernel(const __grid_constant__ mt_adamw8_args a) {
  const float *hyper = data_of<float>(a.hyper);
  int64_t from = (int64_t)blockIdx.x * CODE_BLOCK, i = from + threadIdx.x, end = length(a.param), s = segment_of(a.segments, from);
  if (hyper[MT_HYPER_SKIP] != 0 || s < 0) return;
  if (given(a.segments) && data_of<int64_t>(a.segments)[2 * s + 1] < end) end = data_of<int64_t>(a.segments)[2 * s + 1];
  const double *rates = data_of<double>(a.rates);
  const float *mults = data_of<float>(a.mults) + 2 * s, *maps = data_of<float>(a.maps);
  double lr = rates[MT_RATE_LR] * mults[0], decay = rates[MT_RATE_WEIGHT_DECAY] * mults[1];
  float m = 0, v = 0;
  if (i < end) {
    float g = __fmul_rn(data_of<float>(a.grad)[i], hyper[MT_HYPER_GRAD_SCALE]);
    m = __fmul_rn(maps[data_of<uint8_t>(a.m_codes)[i]], data_of<float>(a.m_scales)[blockIdx.x]);
    v = __fmul_rn(maps[256 + data_of<uint8_t>(a.v_codes)[i]], data_of<float>(a.v_scales)[blockIdx.x]);
    m = __fmaf_rn(g, (float)(1 - a.beta1), __fmul_rn(m, (float)a.beta1));
    v = __fmaf_rn(__fmul_rn((float)(1 - a.beta2), g), g, __fmul_rn(v, (float)a.beta2));
    float under = __fadd_rn(__fdiv_rn(__fsqrt_rn(v), (float)rates[MT_RATE_CORRECTION2]), (float)a.eps);
    float p = __fmul_rn(data_of<float>(a.param)[i], (float)(1 - __dmul_rn(lr, decay)));
    p = __fadd_rn(p, __fdiv_rn(__fmul_rn((float)(-lr / rates[MT_RATE_CORRECTION1]), m), under));
    data_of<float>(a.param)[i] = p;
    if (given(a.model)) MT_BY_TYPE(a.model.dtype, data_of<T>(a.model)[i] = from_float<T>(p))
  }
  __syncthreads(); /* the scales are read */
  uint8_t first = code_of(m, data_of<float>(a.m_scales) + blockIdx.x, data_of<uint8_t>(a.nearest));
  uint8_t second = code_of(v, data_of<float>(a.v_scales) + blockIdx.x, data_of<uint8_t>(a.nearest) + STRETCHES);
  if (i < end) data_of<uint8_t>(a.m_codes)[i] = first, data_of<uint8_t>(a.v_codes)[i] = second;
}

} // namespace

static void adamw8(mt_context *ctx, const mt_adamw8_args &a, void *) {
  int64_t n = length(a.param);
  if (n > 0) MT_LAUNCH(adamw8_kernel, blocks_for(n, CODE_BLOCK), CODE_BLOCK, 0, stream_of(ctx), a);
}

MT_OP(adamw8, nullptr)
