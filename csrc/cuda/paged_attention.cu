/* Attention over blocks of keys and values: a kernel keeps the rows' own, then a warp makes a
 * head of a row, a lane a key at a time and then a share of the channels. */
#include "op.h"
#include "reduce.h"

namespace {

enum { BLOCK = 16, WARPS = 4, MOST = 640 / 32 }; /* positions of a block; warps of a CUDA block; channels of a lane, at most */

struct paged_place {
  const int32_t *table;
  int64_t position;
};

__device__ inline paged_place place_of(const mt_paged_attention_args &a, int64_t row) {
  const int32_t *at = data_of<int32_t>(a.rows) + 2 * row;
  return {data_of<int32_t>(a.tables) + at[0] * a.tables.stride[0], at[1]};
}

template <typename T> __device__ inline T *keys_at(const mt_paged_attention_args &a, const paged_place &p, int64_t position, int64_t group) {
  return data_of<T>(a.cache) + p.table[position / BLOCK] * a.cache.stride[0] + group * a.cache.stride[1];
}

/* Stores channel j of a row and group among keys and values. */
template <typename T> __global__ void keep_kernel(const __grid_constant__ mt_paged_attention_args a) {
  int64_t d = last(a.k), groups = a.k.shape[1], i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= a.k.shape[0] * groups * d) return;
  int64_t j = i % d, group = i / d % groups, row = i / d / groups;
  paged_place p = place_of(a, row);
  T *keys = keys_at<T>(a, p, p.position, group);
  if (!given(a.v)) { /* the values are the keys */
    keys[p.position % BLOCK * d + j] = data_of<T>(a.k)[row * a.k.stride[0] + group * a.k.stride[1] + j];
    return;
  }
  keys[j * BLOCK + p.position % BLOCK] = data_of<T>(a.k)[row * a.k.stride[0] + group * a.k.stride[1] + j];
  keys[a.cache.stride[2] + p.position % BLOCK * d + j] = data_of<T>(a.v)[row * a.v.stride[0] + group * a.v.stride[1] + j];
}

/* A lane makes up to EACH channels. */
template <typename T, int EACH> __global__ void attend_kernel(const __grid_constant__ mt_paged_attention_args a) {
  // A warp is one row and query head.
  int64_t d = last(a.q), heads = a.q.shape[1] * a.q.shape[2], item = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
  if (item >= a.q.shape[0] * heads) return;
  int lane = threadIdx.x % 32;
  int64_t row = item / heads, head = item % heads, group = head / a.q.shape[2];
  paged_place p = place_of(a, row);
  int64_t from = a.window < 0 || p.position < a.window ? 0 : p.position - a.window;
  if (a.chunk > 0 && p.position / a.chunk * a.chunk > from) from = p.position / a.chunk * a.chunk;
  const T *q = data_of<T>(a.q) + row * a.q.stride[0] + group * a.q.stride[1] + head % a.q.shape[2] * a.q.stride[2];
  float slope = given(a.slopes) ? data_of<float>(a.slopes)[head] : 0;
  int64_t step = given(a.v) ? BLOCK : 1, value_side = given(a.v) ? a.cache.stride[2] : 0;
  // Softmax in one pass: top is the largest score so far, sum and out are relative to it.
  float out[EACH] = {}, top = -INFINITY, sum = 0;
  for (int64_t first = from / 32 * 32; first <= p.position; first += 32) {
    // A lane scores one of 32 keys.
    int64_t key = first + lane;
    float score = -INFINITY;
    if (key >= from && key <= p.position) {
      const T *keys = keys_at<T>(a, p, key, group) + key % BLOCK * (given(a.v) ? 1 : d);
      float dot = 0;
      for (int64_t j = 0; j < d; j++) dot += to_float(q[j]) * to_float(keys[j * step]);
      score = dot * a.scale + slope * (float)(key - p.position);
    }
    float before = top;
    top = fmaxf(top, warp_max(score));
    float x = score == -INFINITY ? 0 : expf(score - top), factor = before == -INFINITY ? 0 : expf(before - top);
    if (score != score) x = score; /* nan stays nan */
    sum = sum * factor + warp_sum(x);
    for (int c = 0; c < EACH; c++) out[c] *= factor;
    // All lanes together add the 32 values, each its channels.
    for (int k = 0; k < 32; k++) {
      float weight = __shfl_sync(ALL_LANES, x, k);
      if (first + k < from || first + k > p.position) continue;
      const T *values = keys_at<T>(a, p, first + k, group) + value_side + (first + k) % BLOCK * d;
      for (int c = 0; c < EACH && c * 32 + lane < d; c++) out[c] += weight * to_float(values[c * 32 + lane]);
    }
  }
  // A sink is a key without a value.
  if (given(a.sinks)) {
    float sink = value_at(a.sinks, head), before = top;
    top = fmaxf(top, sink);
    float factor = expf(before - top);
    sum = sum * factor + expf(sink - top);
    for (int c = 0; c < EACH; c++) out[c] *= factor;
  }
  T *o = data_of<T>(a.o) + row * a.o.stride[0] + group * a.o.stride[1] + head % a.q.shape[2] * a.o.stride[2];
  for (int c = 0; c < EACH && c * 32 + lane < d; c++) o[c * 32 + lane] = from_float<T>(out[c] / sum);
}

} // namespace

static void paged_attention(mt_context *ctx, const mt_paged_attention_args &a, void *) {
  int64_t heads = a.q.shape[0] * a.q.shape[1] * a.q.shape[2];
  if (heads == 0) return;
  if (last(a.q) > 32 * MOST) {
    snprintf(ctx->error, sizeof ctx->error, "paged_attention: heads of %lld channels are too wide, because this kernel supports at most %d", (long long)last(a.q), 32 * MOST);
    return;
  }
  MT_BY_TYPE(a.q.dtype, {
    MT_LAUNCH((keep_kernel<T>), blocks_for(length(a.k), 256), 256, 0, stream_of(ctx), a);
    if (last(a.q) <= 256)
      MT_LAUNCH((attend_kernel<T, 256 / 32>), blocks_for(heads, WARPS), WARPS * 32, 0, stream_of(ctx), a);
    else
      MT_LAUNCH((attend_kernel<T, MOST>), blocks_for(heads, WARPS), WARPS * 32, 0, stream_of(ctx), a);
  })
}

MT_OP(paged_attention, nullptr)
