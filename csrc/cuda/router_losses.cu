/* What a router's own losses are made of, and their gradients: a warp a token, or a part of
 * a sample's tokens. */
#include "exact.h"
#include "router.h"

namespace {

enum { PART = 64, SPREAD = 256 }; /* tokens of a part; threads that add parts */

int64_t part_count(const mt_router_balance_args &a) { return ceil_div(a.logits.shape[0] / a.samples, PART); }

/* Block (part, sample) leaves sums and counts [2,E] of its tokens in parts [part,sample]. On a grid sums
 * have no order; a grid of 0: shares are added as they are. */
template <typename T> __global__ void balance_kernel(const __grid_constant__ mt_router_balance_args a, double grid, double *parts) {
  MT_DYN_SHARED(double, x);
  int experts = (int)last(a.logits);
  double *p = x + experts, *sums = p + experts;
  int *counts = reinterpret_cast<int *>(sums + experts), *taken = counts + experts;
  int64_t tokens = a.logits.shape[0] / a.samples, from = (int64_t)blockIdx.x * PART, to = from + PART < tokens ? from + PART : tokens;
  for (int e = threadIdx.x; e < experts; e += WARP) sums[e] = 0, counts[e] = 0;
  for (int64_t i = from; i < to; i++) {
    warp_load(x, row_of<T>(a.logits, i * a.samples + blockIdx.y), experts);
    warp_shares(p, x, experts, a.score);
    warp_clear(taken, experts);
    for (int j = 0; j < a.k; j++) warp_take(p, taken, experts);
    for (int e = threadIdx.x; e < experts; e += WARP) sums[e] += on_grid(p[e], grid), counts[e] += taken[e];
    __syncwarp(); /* before x changes */
  }
  double *out = parts + ((int64_t)blockIdx.x * gridDim.y + blockIdx.y) * 2 * experts;
  for (int e = threadIdx.x; e < experts; e += WARP) out[e] = sums[e], out[experts + e] = counts[e];
}

__global__ void add_parts_kernel(const __grid_constant__ mt_router_balance_args a, const double *parts, int64_t count) {
  int64_t experts = last(a.logits), n = a.samples * experts, i = (int64_t)blockIdx.x * SPREAD + threadIdx.x;
  if (i >= n) return;
  double probs = 0, counts = 0;
  for (int64_t part = 0; part < count; part++) {
    const double *at = parts + (part * a.samples + i / experts) * 2 * experts + i % experts;
    probs += at[0], counts += at[experts];
  }
  if (a.probs.dtype == MT_F64) data_of<double>(a.probs)[i] = probs;
  else data_of<float>(a.probs)[i] = (float)probs;
  data_of<float>(a.counts)[i] = (float)counts;
}

template <typename T> __global__ void balance_gradient_kernel(const __grid_constant__ mt_router_balance_args a) {
  MT_DYN_SHARED(double, x);
  int experts = (int)last(a.logits);
  double *p = x + experts, *g = p + experts, factor = a.coefficient * *data_of<float>(a.scale);
  const float *counts = row_of<float>(a.counts, blockIdx.x % a.samples);
  float *dx = row_of<float>(a.dlogits, blockIdx.x);
  for (int e = threadIdx.x; e < experts; e += WARP) g[e] = counts[e] * factor;
  warp_load(x, row_of<T>(a.logits, blockIdx.x), experts);
  double total = warp_shares(p, x, experts, a.score), inner = warp_dot(p, g, experts);
  for (int e = threadIdx.x; e < experts; e += WARP) {
    double d = g[e] - inner;
    dx[e] = (float)(dx[e] + (scores_alone(a.score) ? d / total * score_slope(a.score, x[e]) : p[e] * d));
  }
}

template <typename T> __global__ void z_kernel(const __grid_constant__ mt_router_z_args a) {
  MT_DYN_SHARED(double, x);
  int experts = (int)last(a.logits);
  warp_load(x, row_of<T>(a.logits, blockIdx.x), experts);
  double z = warp_softmax(x, x, experts);
  if (!given(a.dlogits)) {
    if (threadIdx.x == 0) data_of<float>(a.squares)[blockIdx.x] = (float)(z * z);
    return;
  }
  float *dx = row_of<float>(a.dlogits, blockIdx.x);
  double factor = 2 * z * a.coefficient * *data_of<float>(a.scale);
  for (int e = threadIdx.x; e < experts; e += WARP) dx[e] = (float)(dx[e] + x[e] * factor);
}

} // namespace

static void router_balance(mt_context *ctx, const mt_router_balance_args &a, void *scratch) {
  int64_t rows = a.logits.shape[0], experts = last(a.logits), parts = part_count(a);
  if (experts == 0 || !fits(ctx, a.logits, "router_balance")) return;
  cudaStream_t stream = stream_of(ctx);
  int bytes = (int)(experts * (3 * sizeof(double) + 2 * sizeof(int)));
  if (given(a.dlogits)) {
    if (rows > 0) MT_BY_TYPE(a.logits.dtype, MT_LAUNCH((balance_gradient_kernel<T>), (unsigned)rows, WARP, bytes, stream, a))
    return;
  }
  double *sums = static_cast<double *>(scratch), grid = a.bits > 0 ? ldexp(1., (int)-a.bits) : 0;
  if (rows > 0) MT_BY_TYPE(a.logits.dtype, MT_LAUNCH((balance_kernel<T>), dim3(parts, a.samples), WARP, bytes, stream, a, grid, sums))
  MT_LAUNCH(add_parts_kernel, blocks_for(a.samples * experts, SPREAD), SPREAD, 0, stream, a, sums, parts);
}

static int64_t balance_bytes(const void *args) {
  const mt_router_balance_args &a = *static_cast<const mt_router_balance_args *>(args);
  return given(a.dlogits) ? 0 : part_count(a) * a.samples * 2 * last(a.logits) * (int64_t)sizeof(double);
}

static void router_z(mt_context *ctx, const mt_router_z_args &a, void *) {
  if (length(a.logits) == 0 || !fits(ctx, a.logits, "router_z")) return;
  int bytes = (int)(last(a.logits) * sizeof(double));
  MT_BY_TYPE(a.logits.dtype, MT_LAUNCH((z_kernel<T>), (unsigned)a.logits.shape[0], WARP, bytes, stream_of(ctx), a))
}

MT_OP(router_balance, balance_bytes)
MT_OP(router_z, nullptr)
