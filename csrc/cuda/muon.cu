/* The parts of Muon that are not products of matrices: an element at a time. */
#include "reduce.h"
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
  float norm = (float)fmax(sqrt(data_of<double>(a.stats)[MT_STAT_SQUARES]), (double)a.eps) * a.stretch + a.plus;
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

/* The mean of squares of a row, a block each. */
__global__ void row_means_kernel(const __grid_constant__ mt_normuon_args a, double *means) {
  int64_t n = a.x.shape[1];
  const float *x = data_of<float>(a.x) + blockIdx.x * n;
  double sum = 0;
  for (int64_t c = threadIdx.x; c < n; c += SPREAD) sum += (double)x[c] * x[c];
  sum = block_sum(sum);
  if (threadIdx.x == 0) means[blockIdx.x] = sum / n;
}

/* That of a column, a thread each. */
__global__ void column_means_kernel(const __grid_constant__ mt_normuon_args a, double *means) {
  int64_t m = a.x.shape[0], n = a.x.shape[1], c = (int64_t)blockIdx.x * SPREAD + threadIdx.x;
  if (c >= n) return;
  double sum = 0;
  for (int64_t r = 0; r < m; r++) sum += (double)data_of<float>(a.x)[r * n + c] * data_of<float>(a.x)[r * n + c];
  means[c] = sum / m;
}

/* The averages, and factors in place of the means: one block. */
__global__ void normuon_factors_kernel(const __grid_constant__ mt_normuon_args a, double *means) {
  if (data_of<float>(a.hyper)[MT_HYPER_SKIP] != 0) return;
  int64_t k = length(a.v), count = a.x.shape[0] < a.x.shape[1] ? a.x.shape[0] : a.x.shape[1];
  float *v = data_of<float>(a.v);
  double before = 0, after = 0;
  for (int64_t i = threadIdx.x; i < k; i += SPREAD) {
    v[i] += (1 - a.beta2) * ((float)means[i] - v[i]);
    double step = 1 / sqrt(fmax((double)v[i], (double)a.eps));
    before += means[i], after += means[i] * step * step;
    means[i] = step;
  }
  before = block_sum(before), after = block_sum(after);
  double stretch = sqrt(before * count) / fmax(sqrt(after * count), (double)a.eps);
  for (int64_t i = threadIdx.x; i < k; i += SPREAD) means[i] *= stretch;
}

__global__ void normuon_kernel(const __grid_constant__ mt_normuon_args a, const double *factors) {
  if (data_of<float>(a.hyper)[MT_HYPER_SKIP] != 0) return;
  int64_t m = a.x.shape[0], n = a.x.shape[1];
  flat<1>(m * n, [&](int64_t i, auto) { data_of<float>(a.x)[i] *= (float)factors[m >= n ? i / n : i % n]; });
}

__global__ void adamuon_kernel(const __grid_constant__ mt_adamuon_args a) {
  if (data_of<float>(a.hyper)[MT_HYPER_SKIP] != 0) return;
  flat<1>(length(a.x), [&](int64_t i, auto) {
    float x = data_of<float>(a.x)[i], v = data_of<float>(a.v)[i];
    v += (1 - a.beta2) * (x * x - v);
    data_of<float>(a.v)[i] = v;
    data_of<float>(a.x)[i] = x / (sqrtf(v) + a.eps);
  });
}

} // namespace

static void normuon(mt_context *ctx, const mt_normuon_args &a, void *scratch) {
  int64_t m = a.x.shape[0], n = a.x.shape[1];
  if (m * n == 0) return;
  double *means = static_cast<double *>(scratch);
  if (m >= n) MT_LAUNCH(row_means_kernel, (unsigned)m, SPREAD, 0, stream_of(ctx), a, means);
  else MT_LAUNCH(column_means_kernel, blocks_for(n, SPREAD), SPREAD, 0, stream_of(ctx), a, means);
  MT_LAUNCH(normuon_factors_kernel, 1, SPREAD, 0, stream_of(ctx), a, means);
  MT_LAUNCH(normuon_kernel, spread_blocks(m * n, 1), SPREAD, 0, stream_of(ctx), a, means);
}

static int64_t normuon_bytes(const void *args) { return length(static_cast<const mt_normuon_args *>(args)->v) * (int64_t)sizeof(double); }

static void adamuon(mt_context *ctx, const mt_adamuon_args &a, void *) {
  int64_t n = length(a.x);
  if (n > 0) MT_LAUNCH(adamuon_kernel, spread_blocks(n, 1), SPREAD, 0, stream_of(ctx), a);
}

MT_OP(normuon, normuon_bytes)
MT_OP(adamuon, nullptr)

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
