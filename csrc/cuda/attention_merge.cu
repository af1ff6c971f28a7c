/* Two attentions of the same queries to different keys, joined: a warp a query of a head. */
#include "op.h"

namespace {

__global__ void attention_merge_kernel(const __grid_constant__ mt_attention_merge_args a) {
  int64_t row = (int64_t)blockIdx.x * 8 + threadIdx.x / 32, batch = a.lse.shape[0], heads = a.lse.shape[1], sq = a.lse.shape[2], d = last(a.o);
  if (row >= sq * batch * heads) return;
  int64_t at = (row / heads % batch * heads + row % heads) * sq + row / heads / batch;
  float *lse = data_of<float>(a.lse) + at, mine = *lse, other = data_of<float>(a.part_lse)[at];
  __syncwarp(); /* all have read before one writes */
  if (other == -INFINITY) return;
  float w = 1 / (1 + expf(mine - other)), *o = data_of<float>(a.o) + row * d;
  const float *part = data_of<float>(a.part) + row * d;
  for (int64_t c = threadIdx.x % 32; c < d; c += 32) o[c] += w * (part[c] - o[c]);
  if (threadIdx.x % 32 == 0) *lse = fmaxf(mine, other) + log1pf(expf(-fabsf(mine - other)));
}

} // namespace

static void attention_merge(mt_context *ctx, const mt_attention_merge_args &a, void *) {
  int64_t rows = length(a.lse);
  if (length(a.o) > 0) MT_LAUNCH(attention_merge_kernel, blocks_for(rows, 8), 256, 0, stream_of(ctx), a);
}

MT_OP(attention_merge, nullptr)
