/* The branch of an adapter, Y += Scale·X·Aᵀ·op(B): X·Aᵀ in f32 by our own product, whose rows do not depend on
 * how many there are, then an element of Y a thread. */
#include "gemm.h"
#include "spread.h"

namespace {

__device__ inline float at_of(const float *x, int64_t i) { return x[i]; }
template <typename T> __device__ inline float at_of(const T *x, int64_t i) { return to_float(x[i]); }

/* t [n,rank] has rows `step` elements apart. */
template <typename T, typename X, typename Y> __global__ void up_kernel(const __grid_constant__ mt_low_rank_add_args a, const X *t, int64_t step) {
  int64_t rank = a.b.shape[a.trans_b ? 1 : 0], out = a.b.shape[a.trans_b ? 0 : 1], size = last(a.y);
  flat<1>(length(a.y), [&](int64_t i, auto) {
    int64_t row = i / out, j = i - row * out;
    const T *b = data_of<T>(a.b) + (a.trans_b ? j * a.b.stride[0] : j);
    int64_t next = a.trans_b ? 1 : a.b.stride[0];
    float sum = 0;
    for (int64_t k = 0; k < rank; k++) sum = fmaf(at_of(t, row * step + k), at_of(b, k * next), sum);
    Y *y = data_of<Y>(a.y) + row * a.y.stride[0] + (a.y.rank == 3 ? j / size * a.y.stride[1] + j % size : j);
    *y = from_float<Y>(fmaf(a.scale, sum, at_of(y, 0)));
  });
}

/* T = Scale·t, which lies in rows of `rank` elements. */
template <typename T> __global__ void keep_kernel(mt_tensor to, const float *t, int64_t rank, float scale) {
  flat<1>(length(to), [&](int64_t i, auto) { data_of<T>(to)[i / rank * to.stride[0] + i % rank] = from_float<T>(scale * t[i]); });
}

/* Y is f32, or of B's type. */
template <typename T, typename X> void up(mt_context *ctx, const mt_low_rank_add_args &a, const X *t, int64_t step) {
  unsigned blocks = spread_blocks(length(a.y), 1);
  if (a.y.dtype == MT_F32) MT_LAUNCH((up_kernel<T, X, float>), blocks, SPREAD, 0, stream_of(ctx), a, t, step);
  else MT_LAUNCH((up_kernel<T, X, T>), blocks, SPREAD, 0, stream_of(ctx), a, t, step);
}

} // namespace

static void low_rank_add(mt_context *ctx, const mt_low_rank_add_args &a, void *scratch) {
  int64_t n = length(a.y), rank = a.b.shape[a.trans_b ? 1 : 0];
  if (n == 0) return;
  float *t = static_cast<float *>(scratch);
  if (given(a.a)) {
    mt_matmul_args down = {};
    down.a = a.x, down.b = a.a, down.trans_b = 1, down.by_row = 1;
    down.c = {t, MT_F32, 2, {a.x.shape[0], rank}, {rank, 1}};
    if (a.x.dtype == MT_F32) mt_gemm_f32(stream_of(ctx), down);
    else mt_gemm_half(stream_of(ctx), down);
    if (given(a.t)) MT_BY_TYPE(a.t.dtype, MT_LAUNCH(keep_kernel<T>, spread_blocks(length(a.t), 1), SPREAD, 0, stream_of(ctx), a.t, t, rank, a.scale))
    MT_BY_TYPE(a.b.dtype, up<T>(ctx, a, (const float *)t, rank))
  } else {
    MT_BY_TYPE(a.b.dtype, up<T>(ctx, a, (const T *)data_of<T>(a.x), a.x.stride[0]))
  }
}

static int64_t low_rank_bytes(const void *args) {
  auto a = static_cast<const mt_low_rank_add_args *>(args);
  return given(a->a) ? a->x.shape[0] * a->b.shape[a->trans_b ? 1 : 0] * (int64_t)sizeof(float) : 0;
}

MT_OP(low_rank_add, low_rank_bytes)
