/* What a step needs to know of its gradients and losses: sums over everything, in
 * f64, in two steps whose cut depends on the length alone; and what follows from them. */
#include "exact.h"
#include "spread.h"

/* Blocks leave `width` sums each in parts; one block adds them up. */
enum { EACH = 16, MOST = 1024 };

static int64_t part_count(int64_t n) { return at_most(ceil_div(n, SPREAD * EACH), MOST); }

__global__ void add_up_kernel(double *out, const double *parts, int count, int width) {
  for (int k = 0; k < width; k++) {
    double sum = 0;
    for (int p = threadIdx.x; p < count; p += SPREAD) sum += parts[p * width + k];
    sum = block_sum(sum);
    if (threadIdx.x == 0) out[k] += sum;
  }
}

template <int WIDTH> __device__ inline void leave(double *parts, const double (&sums)[WIDTH]) {
  for (int k = 0; k < WIDTH; k++) {
    double sum = block_sum(sums[k]);
    if (threadIdx.x == 0) parts[blockIdx.x * WIDTH + k] = sum;
  }
}

template <typename T> __device__ inline double as_double(T x) { return to_float(x); }
template <> __device__ inline double as_double(double x) { return x; }

template <typename T, int N> __global__ void grad_stats_kernel(const T *x, const __grid_constant__ mt_tensor segments, int64_t n, int64_t each, double *parts) {
  double sums[MT_STATS] = {};
  auto count = [&](T value) {
    double v = as_double(value);
    sums[MT_STAT_SQUARES] += v * v;
    sums[MT_STAT_NON_FINITE] += v - v == 0 ? 0 : 1;
    sums[MT_STAT_ZEROS] += v == 0 ? 1 : 0;
  };
  segmented<N>(segments, n, each, [&](int64_t) {
    return [&](int64_t i, auto size) {
      const int M = decltype(size)::value;
      pack<T, M> p = *reinterpret_cast<const pack<T, M> *>(x + i);
      for (int j = 0; j < M; j++) count(p.v[j]);
    };
  });
  leave(parts, sums);
}

template <typename T> static void grad_stats_of(mt_context *ctx, const mt_grad_stats_args &a, double *parts) {
  const int N = 16 / sizeof(T);
  const mt_tensor &x = a.x;
  int64_t n = length(x), each = ceil_div(ceil_div(n, part_count(n)), SPREAD * EACH) * SPREAD * EACH;
  unsigned count = (unsigned)part_count(n);
  if (starts(x, N)) MT_LAUNCH((grad_stats_kernel<T, N>), count, SPREAD, 0, stream_of(ctx), data_of<T>(x), a.segments, n, each, parts);
  else MT_LAUNCH((grad_stats_kernel<T, 1>), count, SPREAD, 0, stream_of(ctx), data_of<T>(x), a.segments, n, each, parts);
}

static void grad_stats(mt_context *ctx, const mt_grad_stats_args &a, void *scratch) {
  int64_t n = length(a.x);
  if (n == 0) return;
  double *parts = static_cast<double *>(scratch);
  if (a.x.dtype == MT_F64) grad_stats_of<double>(ctx, a, parts);
  else MT_BY_TYPE(a.x.dtype, grad_stats_of<T>(ctx, a, parts))
  MT_LAUNCH(add_up_kernel, 1, SPREAD, 0, stream_of(ctx), data_of<double>(a.out), parts, (int)part_count(n), (int)MT_STATS);
}

static int64_t grad_stats_bytes(const void *args) {
  return part_count(length(static_cast<const mt_grad_stats_args *>(args)->x)) * MT_STATS * (int64_t)sizeof(double);
}

MT_OP(grad_stats, grad_stats_bytes)

/* A grid of 0: products are added as they are. */
__global__ void weighted_sum_kernel(const float *x, const float *w, int64_t n, double grid, double *parts) {
  double sums[2] = {};
  for (int64_t i = (int64_t)blockIdx.x * SPREAD + threadIdx.x; i < n; i += (int64_t)gridDim.x * SPREAD) {
    double product = (double)x[i] * w[i];
    sums[0] += grid > 0 ? on_grid(product, grid) : product;
    sums[1] += w[i];
  }
  leave(parts, sums);
}

static void weighted_sum(mt_context *ctx, const mt_weighted_sum_args &a, void *scratch) {
  int64_t n = length(a.x);
  if (n == 0) return;
  double *parts = static_cast<double *>(scratch);
  int count = (int)part_count(n);
  MT_LAUNCH(weighted_sum_kernel, count, SPREAD, 0, stream_of(ctx), data_of<float>(a.x), data_of<float>(a.w), n, a.bits > 0 ? ldexp(1., (int)-a.bits) : 0., parts);
  MT_LAUNCH(add_up_kernel, 1, SPREAD, 0, stream_of(ctx), data_of<double>(a.out), parts, count, 2);
}

static int64_t weighted_sum_bytes(const void *args) {
  return part_count(length(static_cast<const mt_weighted_sum_args *>(args)->x)) * 2 * (int64_t)sizeof(double);
}

MT_OP(weighted_sum, weighted_sum_bytes)

__global__ void grad_scale_kernel(const __grid_constant__ mt_grad_scale_args a) {
  const double *stats = data_of<double>(a.stats), *others = given(a.others) ? data_of<double>(a.others) : stats;
  float *hyper = data_of<float>(a.hyper);
  double scale = hyper[MT_HYPER_LOSS_SCALE], norm = sqrt(stats[MT_STAT_SQUARES]) / scale, factor = 1;
  if (a.max_norm > 0) factor = fmin(1.0, a.max_norm / (norm + 1e-6));
  hyper[MT_HYPER_GRAD_SCALE] = (float)(factor / scale);
  hyper[MT_HYPER_SKIP] = stats[MT_STAT_NON_FINITE] > 0 || others[MT_STAT_NON_FINITE] > 0 ? 1 : 0;
  hyper[MT_HYPER_GRAD_NORM] = (float)norm;
}

static void grad_scale(mt_context *ctx, const mt_grad_scale_args &a, void *) { MT_LAUNCH(grad_scale_kernel, 1, 1, 0, stream_of(ctx), a); }

MT_OP(grad_scale, nullptr)
