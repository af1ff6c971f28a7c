/* The parts of Muon that are not products of matrices: an element at a time. */
#include "spread.h"

namespace {

__global__ void momentum_kernel(const __grid_constant__ mt_momentum_args a) {
  const float *hyper = data_of<float>(a.hyper);
  if (hyper[MT_HYPER_SKIP] != 0) return;
  float scale = hyper[MT_HYPER_GRAD_SCALE], rest = 1 - a.mu;
  flat<1>(length(a.m), [&](int64_t i, auto) {
    float g = data_of<float>(a.grad)[i] * scale * rest, m = a.mu * data_of<float>(a.m)[i] + g;
    data_of<float>(a.m)[i] = m;
    if (given(a.out)) data_of<float>(a.out)[i] = a.mu * m + g;
  });
}

template <typename T> __global__ void normalize_kernel(const __grid_constant__ mt_normalize_args a) {
  float norm = (float)fmax(sqrt(data_of<double>(a.stats)[MT_STAT_SQUARES]), (double)a.eps);
  flat<1>(length(a.out), [&](int64_t i, auto) { data_of<T>(a.out)[i] = from_float<T>(data_of<float>(a.x)[i] / norm); });
}

template <typename T> __global__ void polynomial_kernel(const __grid_constant__ mt_polynomial_args a) {
  int64_t n = last(a.x);
  flat<1>(length(a.out), [&](int64_t i, auto) {
    float p = to_float(data_of<T>(a.x)[i]) * a.b;
    if (given(a.y)) p += to_float(data_of<T>(a.y)[i]) * a.c;
    if (i % (n + 1) == 0) p += a.a;
    data_of<T>(a.out)[i] = from_float<T>(p);
  });
}

__global__ void follow_kernel(const __grid_constant__ mt_follow_args a) {
  const float *hyper = data_of<float>(a.hyper);
  if (hyper[MT_HYPER_SKIP] != 0) return;
  float step = hyper[MT_HYPER_LR] * a.by, decay = hyper[MT_HYPER_LR] * (hyper[MT_HYPER_WEIGHT_DECAY] * a.decay);
  flat<1>(length(a.param), [&](int64_t i, auto) {
    float p = data_of<float>(a.param)[i];
    p -= step * data_of<float>(a.direction)[i] + decay * p;
    data_of<float>(a.param)[i] = p;
    if (given(a.model)) MT_BY_TYPE(a.model.dtype, data_of<T>(a.model)[i] = from_float<T>(p))
  });
}

} // namespace

static void momentum(mt_context *ctx, const mt_momentum_args &a, void *) {
  int64_t n = length(a.m);
  if (n > 0) MT_LAUNCH(momentum_kernel, spread_blocks(n, 1), SPREAD, 0, stream_of(ctx), a);
}

static void normalize(mt_context *ctx, const mt_normalize_args &a, void *) {
  int64_t n = length(a.out);
  if (n > 0) MT_BY_TYPE(a.out.dtype, MT_LAUNCH(normalize_kernel<T>, spread_blocks(n, 1), SPREAD, 0, stream_of(ctx), a))
}

static void polynomial(mt_context *ctx, const mt_polynomial_args &a, void *) {
  int64_t n = length(a.out);
  if (n > 0) MT_BY_TYPE(a.x.dtype, MT_LAUNCH(polynomial_kernel<T>, spread_blocks(n, 1), SPREAD, 0, stream_of(ctx), a))
}

static void follow(mt_context *ctx, const mt_follow_args &a, void *) {
  int64_t n = length(a.param);
  if (n > 0) MT_LAUNCH(follow_kernel, spread_blocks(n, 1), SPREAD, 0, stream_of(ctx), a);
}

MT_OP(momentum, nullptr)
MT_OP(normalize, nullptr)
MT_OP(polynomial, nullptr)
MT_OP(follow, nullptr)
