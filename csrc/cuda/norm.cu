/* LayerNorm (arXiv 1607.06450) and RMSNorm (arXiv 1910.07467), forward; norm_backward.cu has
 * their gradients. A row is kept in registers between its sums: by a block, or by some lanes
 * of a warp where it is as short as a head's. */
#include "line.h"

MT_KNOWN(norm_kind, MT_BIT(MT_LAYER_NORM_KIND) | MT_BIT(MT_RMS_NORM_KIND))

enum { SHORT_THREADS = 256 }; /* of a block that has several rows */

template <typename T, int N, int PACKS, int LANES>
__global__ void __launch_bounds__(LANES ? SHORT_THREADS : 1024) norm_forward_kernel(const __grid_constant__ mt_norm_forward_args a) {
  typedef row_threads<LANES> threads;
  int64_t h = last(a.x), total = a.rstd.shape[0], row = (int64_t)blockIdx.x * threads::rows() + threads::row();
  bool here = LANES == 0 || row < total;
  if (!here) row = total - 1; /* its lanes go along, as the others' sums ask for them */
  line<T, N, PACKS, LANES> x(row_of<T>(a.x, row), h);
  float mean = 0;
  if (a.kind == MT_LAYER_NORM_KIND) {
    x.each([&](int, const float(&v)[N]) {
      for (int j = 0; j < N; j++) mean += v[j];
    });
    mean = threads::sum(mean) / h;
  }
  float squares = 0;
  x.each([&](int, const float(&v)[N]) {
    for (int j = 0; j < N; j++) squares += (v[j] - mean) * (v[j] - mean);
  });
  float rstd = 1 / sqrtf(threads::sum(squares) / h + a.eps);
  if (!here) return;
  T *y = row_of<T>(a.y, row);
  x.each([&](int c, const float(&v)[N]) {
    float gamma[N], beta[N] = {}, out[N];
    load(gamma, data_of<T>(a.gamma) + c);
    if (given(a.beta)) load(beta, data_of<T>(a.beta) + c);
    for (int j = 0; j < N; j++) out[j] = (v[j] - mean) * rstd * (gamma[j] + a.one_plus) + beta[j];
    store(y + c, out);
  });
  if (threads::place() > 0) return;
  data_of<float>(a.rstd)[row] = rstd;
  if (given(a.mean)) data_of<float>(a.mean)[row] = mean;
}

/* Rows of LANES packs or fewer. */
template <typename T, int LANES> static void short_rows(cudaStream_t stream, const mt_norm_forward_args &a, int64_t n) {
  MT_LAUNCH((norm_forward_kernel<T, wide<T>::value, 1, LANES>), blocks_for(n, SHORT_THREADS / LANES), SHORT_THREADS, 0, stream, a);
}

static void norm_forward(mt_context *ctx, const mt_norm_forward_args &args, void *) {
  mt_norm_forward_args a = args;
  int64_t n = rows(a.x), h = last(a.x), v = 16 / element_size(a.x.dtype);
  if (n * h == 0) return;
  bool aligned = packs(a.x, v) && packs(a.y, v) && packs(a.gamma, v) && packs(a.beta, v);
  int64_t moved = h / v; /* packs of a row */
  a.x = merged(a.x), a.y = merged(a.y);
  cudaStream_t stream = stream_of(ctx);
  MT_BY_TYPE(a.x.dtype, {
    const int N = wide<T>::value;
    if (aligned && moved <= 8) short_rows<T, 8>(stream, a, n);
    else if (aligned && moved <= 16) short_rows<T, 16>(stream, a, n);
    else if (aligned && moved <= 32) short_rows<T, 32>(stream, a, n);
    else if (aligned && moved <= 256) MT_LAUNCH((norm_forward_kernel<T, N, 1, 0>), (unsigned)n, warps_for(moved), 0, stream, a);
    else if (aligned && moved <= 4096) MT_LAUNCH((norm_forward_kernel<T, N, 4, 0>), (unsigned)n, warps_for(ceil_div(moved, 4)), 0, stream, a);
    else MT_LAUNCH((norm_forward_kernel<T, 1, 0, 0>), (unsigned)n, warps_for(at_most(h, 256)), 0, stream, a);
  })
}

MT_OP(norm_forward, nullptr)
