/* LayerNorm (arXiv 1607.06450) and RMSNorm (arXiv 1910.07467). Forward: a block a
 * row, held in registers between its sums. Backward: a block walks several rows, so
 * that its threads keep the sums of their columns for dgamma and dbeta. */
#include "line.h"
#include "reduce.h"
#include "sum.h"

MT_KNOWN(norm_kind, MT_BIT(MT_LAYER_NORM_KIND) | MT_BIT(MT_RMS_NORM_KIND))

template <typename T, int N, int PACKS>
__global__ void __launch_bounds__(1024) norm_forward_kernel(const __grid_constant__ mt_norm_forward_args a) {
  int64_t row = blockIdx.x, h = last(a.x);
  line<T, N, PACKS> x(row_of<T>(a.x, row), h);
  float mean = 0;
  if (a.kind == MT_LAYER_NORM_KIND) {
    x.each([&](int, const float(&v)[N], int) {
      for (int j = 0; j < N; j++) mean += v[j];
    });
    mean = block_sum(mean) / h;
  }
  float squares = 0;
  x.each([&](int, const float(&v)[N], int) {
    for (int j = 0; j < N; j++) squares += (v[j] - mean) * (v[j] - mean);
  });
  float rstd = 1 / sqrtf(block_sum(squares) / h + a.eps);
  T *y = row_of<T>(a.y, row);
  x.each([&](int c, const float(&v)[N], int) {
    float gamma[N], beta[N] = {}, out[N];
    load(gamma, data_of<T>(a.gamma) + c);
    if (given(a.beta)) load(beta, data_of<T>(a.beta) + c);
    for (int j = 0; j < N; j++) out[j] = (v[j] - mean) * rstd * (gamma[j] + a.one_plus) + beta[j];
    store(y + c, out);
  });
  if (threadIdx.x > 0) return;
  data_of<float>(a.rstd)[row] = rstd;
  if (given(a.mean)) data_of<float>(a.mean)[row] = mean;
}

static void norm_forward(mt_context *ctx, const mt_norm_forward_args &a, void *) {
  int64_t n = rows(a.x), h = last(a.x), v = 16 / element_size(a.x.dtype);
  if (n * h == 0) return;
  bool aligned = packs(a.x, v) && packs(a.y, v) && packs(a.gamma, v) && packs(a.beta, v);
  int64_t moved = h / v; /* packs of a row */
  MT_BY_TYPE(a.x.dtype, {
    const int N = wide<T>::value;
    if (aligned && moved <= 256) MT_LAUNCH((norm_forward_kernel<T, N, 1>), (unsigned)n, warps_for(moved), 0, stream_of(ctx), a);
    else if (aligned && moved <= 4096) MT_LAUNCH((norm_forward_kernel<T, N, 4>), (unsigned)n, warps_for(ceil_div(moved, 4)), 0, stream_of(ctx), a);
    else MT_LAUNCH((norm_forward_kernel<T, 1, 0>), (unsigned)n, warps_for(at_most(h, 256)), 0, stream_of(ctx), a);
  })
}

MT_OP(norm_forward, nullptr)

/* Rows go to parts by turns; a part is a block. */
static int64_t norm_parts(const mt_norm_backward_args &a) { return at_most(ceil_div(rows(a.x), 4), 512); }

/* With x̂ = (x−mean)·rstd and g = dy·gamma: dx = rstd·(g − mean(g) − x̂·mean(g·x̂)),
 * without mean(g) for RMSNorm. dx may take the place of dy, x's or the residual's: a
 * thread reads what it overwrites before, and no other does. parts: [blocks, h] of
 * dgamma, then of dbeta. */
template <typename T, int N, int PACKS>
__global__ void __launch_bounds__(512) norm_backward_kernel(const __grid_constant__ mt_norm_backward_args a, float *parts) {
  int64_t h = last(a.x), total = rows(a.x);
  bool layer = a.kind == MT_LAYER_NORM_KIND;
  const T *gamma = data_of<T>(a.gamma);
  float *dgamma = parts + blockIdx.x * h, *dbeta = dgamma + gridDim.x * h;
  const int KEPT = PACKS > 0 ? PACKS : 1;
  float sum[KEPT][N] = {}, plain[KEPT][N] = {}; /* of dgamma and dbeta, while in registers */
  for (int64_t row = blockIdx.x; row < total; row += gridDim.x) {
    float rstd = data_of<float>(a.rstd)[row], mean = layer ? data_of<float>(a.mean)[row] : 0;
    line<T, N, PACKS> x(row_of<T>(a.x, row), h), dy(row_of<T>(a.dy, row), h);
    float g_sum = 0, gx_sum = 0;
    x.each([&](int c, const float(&xv)[N], int p) {
      float d[N], w[N];
      if (PACKS > 0) {
        for (int j = 0; j < N; j++) d[j] = dy.kept[p][j];
      } else {
        load(d, dy.x + c);
      }
      load(w, gamma + c);
      for (int j = 0; j < N; j++) {
        float unit = (xv[j] - mean) * rstd, g = d[j] * (w[j] + a.one_plus);
        g_sum += g;
        gx_sum += g * unit;
        if (PACKS > 0) {
          sum[p][j] += d[j] * unit;
          plain[p][j] += d[j];
        } else { /* columns are this thread's own */
          bool first = row == blockIdx.x;
          dgamma[c + j] = (first ? 0 : dgamma[c + j]) + d[j] * unit;
          if (layer) dbeta[c + j] = (first ? 0 : dbeta[c + j]) + d[j];
        }
      }
    });
    g_sum = layer ? block_sum(g_sum) / h : 0;
    gx_sum = block_sum(gx_sum) / h;
    T *dx = row_of<T>(a.dx, row);
    const T *residual = given(a.residual) ? row_of<T>(a.residual, row) : nullptr;
    x.each([&](int c, const float(&xv)[N], int p) {
      float d[N], w[N], rest[N] = {}, out[N];
      if (PACKS > 0) {
        for (int j = 0; j < N; j++) d[j] = dy.kept[p][j];
      } else {
        load(d, dy.x + c);
      }
      load(w, gamma + c);
      if (residual) load(rest, residual + c);
      for (int j = 0; j < N; j++) {
        float unit = (xv[j] - mean) * rstd, g = d[j] * (w[j] + a.one_plus);
        out[j] = rstd * (g - g_sum - unit * gx_sum) + rest[j];
      }
      store(dx + c, out);
    });
  }
#pragma unroll
  for (int p = 0; p < PACKS; p++) {
    int c = line<T, N, PACKS>::column(p);
    if (c >= h) continue;
    for (int j = 0; j < N; j++) {
      dgamma[c + j] = sum[p][j];
      if (layer) dbeta[c + j] = plain[p][j];
    }
  }
}

static void norm_backward(mt_context *ctx, const mt_norm_backward_args &a, void *scratch) {
  int64_t h = last(a.x), v = 16 / element_size(a.x.dtype), count = norm_parts(a);
  if (count * h == 0) return;
  float *parts = static_cast<float *>(scratch);
  bool aligned = packs(a.x, v) && packs(a.dx, v) && packs(a.dy, v) && packs(a.gamma, v) && packs(a.residual, v);
  int64_t moved = h / v;
  MT_BY_TYPE(a.x.dtype, {
    const int N = wide<T>::value;
    if (aligned && moved <= 512) MT_LAUNCH((norm_backward_kernel<T, N, 1>), (unsigned)count, warps_for(moved), 0, stream_of(ctx), a, parts);
    else if (aligned) MT_LAUNCH((norm_backward_kernel<T, N, 0>), (unsigned)count, 512, 0, stream_of(ctx), a, parts);
    else MT_LAUNCH((norm_backward_kernel<T, 1, 0>), (unsigned)count, warps_for(at_most(h, 256)), 0, stream_of(ctx), a, parts);
  })
  mt_add_parts(stream_of(ctx), data_of<float>(a.dgamma), parts, count, h, given(a.dbeta) ? data_of<float>(a.dbeta) : nullptr);
}

static int64_t norm_backward_bytes(const void *args) {
  const mt_norm_backward_args &a = *static_cast<const mt_norm_backward_args *>(args);
  return 2 * norm_parts(a) * last(a.x) * (int64_t)sizeof(float);
}

MT_OP(norm_backward, norm_backward_bytes)
