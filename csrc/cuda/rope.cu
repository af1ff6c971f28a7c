/* Rotary positions (arXiv 2104.09864), in place: a thread turns N pairs. */
#include "spread.h"

template <typename T, int N> __global__ void rope_kernel(const __grid_constant__ mt_rope_args a) {
  int64_t half = a.rot_dims / 2, heads = a.x.shape[1] * a.x.shape[2];
  cell at = cell_of<N>(a.x.shape[0] * heads, half);
  if (!at.here) return;
  int64_t angle = ((const int32_t *)a.positions.data)[at.row / heads] * half + at.column;
  float c[N], s[N];
  load(c, data_of<float>(a.cos) + angle);
  load(s, data_of<float>(a.sin) + angle);
  T *x = row_of<T>(a.x, at.row), *left = x + at.column, *right = left + half;
  if (a.interleaved) left = x + 2 * at.column, right = left + N; /* 2N adjacent elements */
  float v[2][N], out[2][N];
  load(v[0], left);
  load(v[1], right);
  for (int j = 0; j < N; j++) {
    int p = a.interleaved ? 2 * j : j, q = a.interleaved ? 2 * j + 1 : N + j;
    float sine = a.inverse ? -s[j] : s[j], x0 = v[p / N][p % N], x1 = v[q / N][q % N];
    out[p / N][p % N] = x0 * c[j] - x1 * sine;
    out[q / N][q % N] = x1 * c[j] + x0 * sine;
  }
  store(left, out[0]);
  store(right, out[1]);
}

static void rope(mt_context *ctx, const mt_rope_args &a, void *) {
  int64_t half = a.rot_dims / 2, pairs = rows(a.x) * half;
  if (pairs == 0) return;
  MT_BY_TYPE(a.x.dtype, {
    const int N = wide<T>::value;
    if (packs(a.x, N) && packs(a.cos, 4) && packs(a.sin, 4) && half % N == 0 && starts(a.cos, N) && starts(a.sin, N))
      MT_LAUNCH((rope_kernel<T, N>), spread_blocks(pairs, N), SPREAD, 0, stream_of(ctx), a);
    else MT_LAUNCH((rope_kernel<T, 1>), spread_blocks(pairs, 1), SPREAD, 0, stream_of(ctx), a);
  })
}

MT_OP(rope, nullptr)
