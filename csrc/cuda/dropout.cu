/* Bias, dropout and the residual in one pass; backward draws the mask again. */
#include "philox.h"
#include "spread.h"

/* Factors around 1, for N channels from `channel` on. */
template <int N> __device__ inline void jitters(float (&out)[N], const mask &m, float jitter, int64_t channel) {
  words w = {};
  for (int j = 0; j < N; j++) {
    int at = (int)((channel + j) & 3);
    if (j == 0 || at == 0) w = m.four(channel + j);
    out[j] = 1 + jitter * (2 * ((float)(word(w, at) >> 8) * 0x1p-24f) - 1);
  }
}

/* Multiplies N channels of row `row` of a flattened [s, b] by their mask. */
template <int N> __device__ inline void apply(float (&x)[N], const mt_dropout &d, cell at) {
  if (d.rate == 0 && d.jitter == 0) return;
  int64_t b = d.samples.shape[0];
  float factor[N];
  mask m(d, at.row / b, (int)(at.row % b), 0);
  if (d.jitter != 0) jitters(factor, m, d.jitter, d.channel + at.column);
  else m.factors(factor, d.channel + at.column);
  for (int j = 0; j < N; j++) x[j] = factor[j] == 0 ? 0 : x[j] * factor[j];
}

template <typename T, int N> __global__ void dropout_add_kernel(const __grid_constant__ mt_dropout_add_args a) {
  cell at = cell_of<N>(a.x.shape[0], a.x.shape[1]);
  if (!at.here) return;
  float x[N], other[N];
  load(x, row_of<T>(a.x, at.row) + at.column);
  if (given(a.bias)) {
    load(other, data_of<T>(a.bias) + at.column);
    for (int j = 0; j < N; j++) x[j] += other[j];
  }
  apply(x, a.drop, at);
  if (given(a.residual)) {
    load(other, row_of<T>(a.residual, at.row) + at.column);
    for (int j = 0; j < N; j++) x[j] += other[j];
  }
  store(row_of<T>(a.out, at.row) + at.column, x);
}

static void dropout_add(mt_context *ctx, const mt_dropout_add_args &a, void *) {
  int64_t n = length(a.x);
  if (n == 0) return;
  MT_BY_TYPE(a.x.dtype, {
    const int N = wide<T>::value;
    bool aligned = packs(a.x, N) && packs(a.out, N) && packs(a.residual, N) && packs(a.bias, N);
    if (aligned) MT_LAUNCH((dropout_add_kernel<T, N>), spread_blocks(n, N), SPREAD, 0, stream_of(ctx), a);
    else MT_LAUNCH((dropout_add_kernel<T, 1>), spread_blocks(n, 1), SPREAD, 0, stream_of(ctx), a);
  })
}

MT_OP(dropout_add, nullptr)

template <typename T, int N> __global__ void dropout_backward_kernel(const __grid_constant__ mt_dropout_backward_args a) {
  cell at = cell_of<N>(a.dy.shape[0], a.dy.shape[1]);
  if (!at.here) return;
  float x[N];
  load(x, row_of<T>(a.dy, at.row) + at.column);
  apply(x, a.drop, at);
  store(row_of<T>(a.dx, at.row) + at.column, x);
}

static void dropout_backward(mt_context *ctx, const mt_dropout_backward_args &a, void *) {
  int64_t n = length(a.dy);
  if (n == 0) return;
  MT_BY_TYPE(a.dy.dtype, {
    const int N = wide<T>::value;
    if (packs(a.dy, N) && packs(a.dx, N)) MT_LAUNCH((dropout_backward_kernel<T, N>), spread_blocks(n, N), SPREAD, 0, stream_of(ctx), a);
    else MT_LAUNCH((dropout_backward_kernel<T, 1>), spread_blocks(n, 1), SPREAD, 0, stream_of(ctx), a);
  })
}

MT_OP(dropout_backward, nullptr)
