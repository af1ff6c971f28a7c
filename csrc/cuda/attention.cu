/* Attention that never stores scores (arXiv 2205.14135, 2307.08691), as one op: which
 * kernels run, and the sum that backward needs first. Backward has one kernel for the
 * keys' gradients and one for the queries': each sums in an order of its own and no
 * atomics are needed, at the price of computing the scores twice. */
#include "attention.h"

#include <cstdio>

#include "cudnn.h"
#include "reduce.h"

static bool refused(mt_context *ctx, const mt_tensor &q) {
  if (last(q) <= MOST_CHANNELS) return false;
  snprintf(ctx->error, sizeof ctx->error, "attention: heads of %lld channels are too wide, because this device has kernels for up to %d; use --device cpu, or more and narrower heads", (long long)last(q), MOST_CHANNELS);
  return true;
}

/* What is wrong with the launches, if anything: heads that the kernels have channels for, but
 * a block of this GPU no shared memory. */
static void explain(mt_context *ctx, const mt_tensor &q) {
  cudaError_t e = cudaGetLastError();
  mt_cuda_check(ctx, e, "attention");
  if (e == cudaErrorInvalidValue)
    snprintf(ctx->error, sizeof ctx->error, "attention: heads of %lld channels need more shared memory than a block of this GPU has; use --device cpu, or more and narrower heads", (long long)last(q));
}

static void attention_forward(mt_context *ctx, const mt_attention_forward_args &a, void *) {
  if (length(a.q) == 0 || refused(ctx, a.q) || mt_cudnn_attention_forward(ctx, a)) return;
  if (a.q.dtype == MT_F32) mt_attention_forward_f32(stream_of(ctx), a);
  else mt_attention_forward_half(stream_of(ctx), state_of(ctx)->processors, a);
  explain(ctx, a.q);
}

MT_OP(attention_forward, nullptr)

/* delta[b, heads, sq] = Σ do·o, which the gradients of all scores of a row share. A warp a row. */
template <typename T> __global__ void attention_delta_kernel(const __grid_constant__ mt_attention_backward_args a, float *delta) {
  const mt_attention_forward_args &f = a.forward;
  int64_t row = (int64_t)blockIdx.x * 8 + threadIdx.x / 32, sq = queries(f), heads = heads_of(f);
  bool here = row < sq * heads * f.batch;
  float sum = 0;
  if (here) {
    place p = place_of(f, (int)(row / (sq * heads)), (int)(row / sq % heads));
    const T *o = row_at_place<T>(f.o, p, row % sq), *d_o = row_at_place<T>(a.d_o, p, row % sq);
    for (int c = threadIdx.x % 32; c < last(f.o); c += 32) sum += to_float(o[c]) * to_float(d_o[c]);
  }
  sum = warp_sum(sum);
  if (here && threadIdx.x % 32 == 0) delta[row] = sum;
}

static void attention_delta(cudaStream_t stream, const mt_attention_backward_args &a, float *delta) {
  int64_t rows = length(a.forward.lse);
  MT_BY_TYPE(a.d_o.dtype, MT_LAUNCH(attention_delta_kernel<T>, blocks_for(rows, 8), 256, 0, stream, a, delta))
}

static void attention_backward(mt_context *ctx, const mt_attention_backward_args &a, void *scratch) {
  if (length(a.forward.q) == 0 || refused(ctx, a.forward.q) || mt_cudnn_attention_backward(ctx, a)) return;
  float *delta = static_cast<float *>(scratch);
  attention_delta(stream_of(ctx), a, delta);
  if (a.forward.q.dtype == MT_F32) mt_attention_backward_f32(stream_of(ctx), a, delta);
  else mt_attention_backward_half(stream_of(ctx), a, delta);
  explain(ctx, a.forward.q);
}

static int64_t attention_backward_bytes(const void *args) {
  return length(static_cast<const mt_attention_backward_args *>(args)->forward.lse) * (int64_t)sizeof(float);
}

MT_OP(attention_backward, attention_backward_bytes)
