/* AdamW (arXiv 1711.05101) and SGD over a flat buffer, which is many parameters' in
 * one: main parameter, moments and the model's copy in one pass. */
#include "spread.h"

enum { TURNS = 4 }; /* packs that a thread updates */

inline unsigned segmented_blocks(int64_t n, int pack) { return blocks_for(n, (int64_t)SPREAD * TURNS * pack); }

template <int N> __device__ inline void store_model(const mt_tensor &model, int64_t i, const float (&p)[N]) {
  if (given(model)) MT_BY_TYPE(model.dtype, store(data_of<T>(model) + i, p))
}

template <int N> __global__ void adamw_kernel(const __grid_constant__ mt_adamw_args a) {
  const float *hyper = data_of<float>(a.hyper);
  if (hyper[MT_HYPER_SKIP] != 0) return;
  const float *mults = data_of<float>(a.mults);
  float scale = hyper[MT_HYPER_GRAD_SCALE], c1 = 1 / hyper[MT_HYPER_CORRECTION1], c2 = 1 / hyper[MT_HYPER_CORRECTION2];
  segmented<N>(a.segments, length(a.param), SPREAD * TURNS * N, [&](int64_t s) {
    float lr = hyper[MT_HYPER_LR] * mults[2 * s], decay = hyper[MT_HYPER_WEIGHT_DECAY] * mults[2 * s + 1];
    return [&, lr, decay](int64_t i, auto size) {
      const int M = decltype(size)::value;
      float p[M], g[M], m[M], v[M];
      load(p, data_of<float>(a.param) + i);
      load(g, data_of<float>(a.grad) + i);
      load(m, data_of<float>(a.m) + i);
      load(v, data_of<float>(a.v) + i);
      for (int j = 0; j < M; j++) {
        float x = g[j] * scale;
        m[j] = a.beta1 * m[j] + (1 - a.beta1) * x;
        v[j] = a.beta2 * v[j] + (1 - a.beta2) * x * x;
        p[j] -= lr * (m[j] * c1 / (sqrtf(v[j] * c2) + a.eps) + decay * p[j]);
      }
      store(data_of<float>(a.param) + i, p);
      store(data_of<float>(a.m) + i, m);
      store(data_of<float>(a.v) + i, v);
      store_model(a.model, i, p);
    };
  });
}

static void adamw(mt_context *ctx, const mt_adamw_args &a, void *) {
  int64_t n = length(a.param);
  if (n == 0) return;
  bool aligned = starts(a.param, 4) && starts(a.grad, 4) && starts(a.m, 4) && starts(a.v, 4) && starts(a.model, 4);
  if (aligned) MT_LAUNCH(adamw_kernel<4>, segmented_blocks(n, 4), SPREAD, 0, stream_of(ctx), a);
  else MT_LAUNCH(adamw_kernel<1>, segmented_blocks(n, 1), SPREAD, 0, stream_of(ctx), a);
}

MT_OP(adamw, nullptr)

template <int N> __global__ void sgd_kernel(const __grid_constant__ mt_sgd_args a) {
  const float *hyper = data_of<float>(a.hyper);
  if (hyper[MT_HYPER_SKIP] != 0) return;
  const float *mults = data_of<float>(a.mults);
  float scale = hyper[MT_HYPER_GRAD_SCALE];
  segmented<N>(a.segments, length(a.param), SPREAD * TURNS * N, [&](int64_t s) {
    float lr = hyper[MT_HYPER_LR] * mults[2 * s], decay = hyper[MT_HYPER_WEIGHT_DECAY] * mults[2 * s + 1];
    return [&, lr, decay](int64_t i, auto size) {
      const int M = decltype(size)::value;
      float p[M], g[M], m[M] = {};
      load(p, data_of<float>(a.param) + i);
      load(g, data_of<float>(a.grad) + i);
      if (given(a.momentum)) load(m, data_of<float>(a.momentum) + i);
      for (int j = 0; j < M; j++) {
        m[j] = a.mu * m[j] + g[j] * scale + decay * p[j];
        p[j] -= lr * m[j];
      }
      store(data_of<float>(a.param) + i, p);
      if (given(a.momentum)) store(data_of<float>(a.momentum) + i, m);
      store_model(a.model, i, p);
    };
  });
}

static void sgd(mt_context *ctx, const mt_sgd_args &a, void *) {
  int64_t n = length(a.param);
  if (n == 0) return;
  bool aligned = starts(a.param, 4) && starts(a.grad, 4) && starts(a.momentum, 4) && starts(a.model, 4);
  if (aligned) MT_LAUNCH(sgd_kernel<4>, segmented_blocks(n, 4), SPREAD, 0, stream_of(ctx), a);
  else MT_LAUNCH(sgd_kernel<1>, segmented_blocks(n, 1), SPREAD, 0, stream_of(ctx), a);
}

MT_OP(sgd, nullptr)

template <int N> __global__ void lion_kernel(const __grid_constant__ mt_lion_args a) {
  const float *hyper = data_of<float>(a.hyper);
  if (hyper[MT_HYPER_SKIP] != 0) return;
  const float *mults = data_of<float>(a.mults);
  float scale = hyper[MT_HYPER_GRAD_SCALE];
  segmented<N>(a.segments, length(a.param), SPREAD * TURNS * N, [&](int64_t s) {
    float lr = hyper[MT_HYPER_LR] * mults[2 * s], decay = hyper[MT_HYPER_WEIGHT_DECAY] * mults[2 * s + 1];
    return [&, lr, decay](int64_t i, auto size) {
      const int M = decltype(size)::value;
      float p[M], g[M], m[M];
      load(p, data_of<float>(a.param) + i);
      load(g, data_of<float>(a.grad) + i);
      load(m, data_of<float>(a.m) + i);
      for (int j = 0; j < M; j++) {
        float x = g[j] * scale, c = a.beta1 * m[j] + (1 - a.beta1) * x;
        p[j] -= lr * ((c > 0 ? 1.f : c < 0 ? -1.f : 0.f) + decay * p[j]);
        m[j] = a.beta2 * m[j] + (1 - a.beta2) * x;
      }
      store(data_of<float>(a.param) + i, p);
      store(data_of<float>(a.m) + i, m);
      store_model(a.model, i, p);
    };
  });
}

static void lion(mt_context *ctx, const mt_lion_args &a, void *) {
  int64_t n = length(a.param);
  if (n == 0) return;
  bool aligned = starts(a.param, 4) && starts(a.grad, 4) && starts(a.m, 4) && starts(a.model, 4);
  if (aligned) MT_LAUNCH(lion_kernel<4>, segmented_blocks(n, 4), SPREAD, 0, stream_of(ctx), a);
  else MT_LAUNCH(lion_kernel<1>, segmented_blocks(n, 1), SPREAD, 0, stream_of(ctx), a);
}

MT_OP(lion, nullptr)

template <int N> __global__ void schedule_free_kernel(const __grid_constant__ mt_schedule_free_args a) {
  const float *hyper = data_of<float>(a.hyper), *mults = data_of<float>(a.mults);
  const double *rates = data_of<double>(a.rates);
  bool skip = hyper[MT_HYPER_SKIP] != 0;
  float scale = hyper[MT_HYPER_GRAD_SCALE], c = (float)rates[MT_RATE_AVERAGE], c2 = (float)(1 / rates[MT_RATE_CORRECTION2]);
  // A segment has its own multipliers of rate and decay; f32 [len] each: x average, z iterate, v second moment.
  segmented<N>(a.segments, length(a.x), SPREAD * TURNS * N, [&](int64_t s) {
    float lr = (float)(rates[MT_RATE_LR] * mults[2 * s]), decay = (float)(rates[MT_RATE_WEIGHT_DECAY] * mults[2 * s + 1]);
    return [&, lr, decay](int64_t i, auto size) {
      const int M = decltype(size)::value;
      float x[M], z[M], g[M], v[M];
      load(x, data_of<float>(a.x) + i);
      if (!skip) {
        load(z, data_of<float>(a.z) + i);
        load(g, data_of<float>(a.grad) + i);
        load(v, data_of<float>(a.v) + i);
        for (int j = 0; j < M; j++) {
          // The gradient was taken at y, between the two (Defazio et al., arXiv 2405.15682).
          float y = a.beta1 * x[j] + (1 - a.beta1) * z[j], gj = g[j] * scale;
          v[j] = a.beta2 * v[j] + (1 - a.beta2) * gj * gj;
          z[j] -= lr * (gj / (sqrtf(v[j] * c2) + a.eps) + decay * y);
          x[j] = (1 - c) * x[j] + c * z[j];
        }
        store(data_of<float>(a.x) + i, x);
        store(data_of<float>(a.z) + i, z);
        store(data_of<float>(a.v) + i, v);
      }
      // After a skipped step too: the model's values are those of x between steps, of y during one.
      store_model(a.model, i, x);
    };
  });
}

static void schedule_free(mt_context *ctx, const mt_schedule_free_args &a, void *) {
  int64_t n = length(a.x);
  if (n == 0) return;
  bool aligned = starts(a.x, 4) && starts(a.z, 4) && starts(a.grad, 4) && starts(a.v, 4) && starts(a.model, 4);
  if (aligned) MT_LAUNCH(schedule_free_kernel<4>, segmented_blocks(n, 4), SPREAD, 0, stream_of(ctx), a);
  else MT_LAUNCH(schedule_free_kernel<1>, segmented_blocks(n, 1), SPREAD, 0, stream_of(ctx), a);
}

MT_OP(schedule_free, nullptr)

template <typename T> __global__ void blend_kernel(const __grid_constant__ mt_blend_args a) {
  flat<1>(length(a.out), [&](int64_t i, auto) { data_of<T>(a.out)[i] = from_float<T>(a.a * data_of<float>(a.x)[i] + (1 - a.a) * data_of<float>(a.y)[i]); });
}

static void blend(mt_context *ctx, const mt_blend_args &a, void *) {
  int64_t n = length(a.out);
  if (n > 0) MT_BY_TYPE(a.out.dtype, MT_LAUNCH(blend_kernel<T>, spread_blocks(n, 1), SPREAD, 0, stream_of(ctx), a))
}

MT_OP(blend, nullptr)
