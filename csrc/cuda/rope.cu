/* Rotary positions (arXiv 2104.09864), in place: a thread turns N pairs. INTERLEAVED is known when
 * the kernel is compiled: an index that is not keeps the values out of registers. */
#include "spread.h"

template <typename T, int N, bool INTERLEAVED> __global__ void rope_kernel(const __grid_constant__ mt_rope_args a) {
  int64_t half = a.rot_dims / 2, heads = a.x.shape[1] * a.x.shape[2];
  cell at = cell_of<N>(a.x.shape[0] * heads, half);
  if (!at.here) return;
  int64_t angle = ((const int32_t *)a.positions.data)[at.row / heads] * half + at.column;
  float c[N], s[N];
  load(c, data_of<float>(a.cos) + angle);
  load(s, data_of<float>(a.sin) + angle);
  T *x = row_of<T>(a.x, at.row), *left = x + at.column, *right = left + half;
  if (INTERLEAVED) left = x + 2 * at.column, right = left + N; /* 2N adjacent elements */
  float v[2][N], out[2][N];
  load(v[0], left);
  load(v[1], right);
#pragma unroll
  for (int j = 0; j < N; j++) {
    const int p = INTERLEAVED ? 2 * j : j, q = INTERLEAVED ? 2 * j + 1 : N + j;
    float sine = a.inverse ? -s[j] : s[j], x0 = v[p / N][p % N], x1 = v[q / N][q % N];
    out[p / N][p % N] = x0 * c[j] - x1 * sine;
    out[q / N][q % N] = x1 * c[j] + x0 * sine;
  }
  store(left, out[0]);
  store(right, out[1]);
}

template <typename T, int N> static void launch(cudaStream_t stream, const mt_rope_args &a, int64_t pairs) {
  if (a.interleaved) MT_LAUNCH((rope_kernel<T, N, true>), spread_blocks(pairs, N), SPREAD, 0, stream, a);
  else MT_LAUNCH((rope_kernel<T, N, false>), spread_blocks(pairs, N), SPREAD, 0, stream, a);
}

static void rope(mt_context *ctx, const mt_rope_args &a, void *) {
  int64_t half = a.rot_dims / 2, pairs = rows(a.x) * half;
  if (pairs == 0) return;
  MT_BY_TYPE(a.x.dtype, {
    const int N = wide<T>::value;
    if (packs(a.x, N) && packs(a.cos, 4) && packs(a.sin, 4) && half % N == 0 && starts(a.cos, N) && starts(a.sin, N))
      launch<T, N>(stream_of(ctx), a, pairs);
    else launch<T, 1>(stream_of(ctx), a, pairs);
  })
}

MT_OP(rope, nullptr)
