/* Scaling, soft capping, and the sinks of attention. */
#include "reduce.h"
#include "spread.h"

MT_KNOWN(score_rule, MT_BIT(MT_PLAIN_SCORES)) /* attention's kernels have no cap */

namespace {

template <typename T> __global__ void scale_kernel(const __grid_constant__ mt_scale_args a) {
  float by = a.factor.rank > 0 ? a.by * *data_of<float>(a.factor) : a.by;
  flat<1>(length(a.out), [&](int64_t i, auto) { data_of<T>(a.out)[i] = from_float<T>(to_float(data_of<T>(a.x)[i]) * by); });
}

template <typename T> __global__ void soft_cap_kernel(const __grid_constant__ mt_soft_cap_args a) {
  flat<1>(length(a.out), [&](int64_t i, auto) { data_of<T>(a.out)[i] = from_float<T>(a.cap * tanhf(to_float(data_of<T>(a.x)[i]) / a.cap)); });
}

template <typename T> __global__ void soft_cap_backward_kernel(const __grid_constant__ mt_soft_cap_backward_args a) {
  flat<1>(length(a.dx), [&](int64_t i, auto) {
    float t = value_at(a.y, i) / a.cap;
    data_of<T>(a.dx)[i] = from_float<T>(to_float(data_of<T>(a.dy)[i]) * (1 - t * t));
  });
}

/* A warp a query of a head. */
template <typename T> __global__ void attention_sink_kernel(const __grid_constant__ mt_attention_sink_args a) {
  int64_t row = (int64_t)blockIdx.x * 8 + threadIdx.x / 32, batch = a.lse.shape[0], heads = a.lse.shape[1], sq = a.lse.shape[2], d = last(a.o);
  if (row >= sq * batch * heads) return;
  int64_t head = row % heads;
  float *lse = data_of<float>(a.lse) + (row / heads % batch * heads + head) * sq + row / heads / batch, mine = *lse, sink = value_at(a.sinks, head);
  __syncwarp(); /* all have read before one writes */
  float factor = 1 / (1 + expf(sink - mine));
  T *o = data_of<T>(a.o) + row_at(a.o, row);
  for (int64_t c = threadIdx.x % 32; c < d; c += 32) o[c] = from_float<T>(to_float(o[c]) * factor);
  if (threadIdx.x % 32 == 0) *lse = fmaxf(mine, sink) + log1pf(expf(-fabsf(mine - sink)));
}

/* A block a head, which goes through its queries in order: the sum has one order. */
template <typename T> __global__ void attention_sink_backward_kernel(const __grid_constant__ mt_attention_sink_backward_args a) {
  int64_t head = blockIdx.x, batch = a.lse.shape[0], heads = a.lse.shape[1], sq = a.lse.shape[2], d = last(a.o);
  float sink = value_at(a.sinks, head), total = 0;
  for (int64_t i = threadIdx.x; i < batch * sq; i += SPREAD) {
    int64_t row = (i % sq * batch + i / sq) * heads + head;
    const T *o = data_of<T>(a.o) + row_at(a.o, row), *d_o = data_of<T>(a.d_o) + row_at(a.d_o, row);
    float sum = 0;
    for (int64_t c = 0; c < d; c++) sum += to_float(o[c]) * to_float(d_o[c]);
    total -= expf(sink - data_of<float>(a.lse)[(i / sq * heads + head) * sq + i % sq]) * sum;
  }
  total = block_sum(total);
  if (threadIdx.x == 0) data_of<float>(a.dsinks)[head] += total;
}

} // namespace

static void scale(mt_context *ctx, const mt_scale_args &a, void *) {
  int64_t n = length(a.out);
  if (n > 0) MT_BY_TYPE(a.x.dtype, MT_LAUNCH(scale_kernel<T>, spread_blocks(n, 1), SPREAD, 0, stream_of(ctx), a))
}

static void soft_cap(mt_context *ctx, const mt_soft_cap_args &a, void *) {
  int64_t n = length(a.out);
  if (n > 0) MT_BY_TYPE(a.x.dtype, MT_LAUNCH(soft_cap_kernel<T>, spread_blocks(n, 1), SPREAD, 0, stream_of(ctx), a))
}

static void soft_cap_backward(mt_context *ctx, const mt_soft_cap_backward_args &a, void *) {
  int64_t n = length(a.dx);
  if (n > 0) MT_BY_TYPE(a.dx.dtype, MT_LAUNCH(soft_cap_backward_kernel<T>, spread_blocks(n, 1), SPREAD, 0, stream_of(ctx), a))
}

static void attention_sink(mt_context *ctx, const mt_attention_sink_args &a, void *) {
  if (length(a.o) > 0) MT_BY_TYPE(a.o.dtype, MT_LAUNCH(attention_sink_kernel<T>, blocks_for(length(a.lse), 8), 256, 0, stream_of(ctx), a))
}

static void attention_sink_backward(mt_context *ctx, const mt_attention_sink_backward_args &a, void *) {
  if (length(a.o) > 0) MT_BY_TYPE(a.o.dtype, MT_LAUNCH(attention_sink_backward_kernel<T>, (unsigned)length(a.sinks), SPREAD, 0, stream_of(ctx), a))
}

MT_OP(scale, nullptr)
MT_OP(soft_cap, nullptr)
MT_OP(soft_cap_backward, nullptr)
MT_OP(attention_sink, nullptr)
MT_OP(attention_sink_backward, nullptr)
