/* Attention in bf16 and f16 on tensor cores, forward. A warp has 16 or 32 queries of a head, a
 * block four warps; tiles of keys and values stream through shared memory, which has one of each: a
 * tile's values come while its scores are made, the next keys while its values are added up.
 * Two of each would leave an A100 one block an SM for heads of 128 channels (87 KB), this
 * three (52 KB, with 16 queries a warp). Scores, the softmax and the sums are f32 in registers, scores
 * times log2 e; a probability is rounded to T for its product with the values. Most tiles are seen
 * completely: their scores need no mask, and without ALiBi only a factor, which the exponent takes. */
#include "attention_drop.h"
#include "tiles.h"

namespace {

enum { WARPS = 4, THREADS = 32 * WARPS };

template <int D> struct stream_of_keys { enum { ROWS = D <= 128 ? 64 : 32, SIZE = ROWS * tile_row<D>::STRIDE }; };

/* Blocks of an SM that registers must suffice for: as many as an A100 has shared memory for
 * (heads of 64 channels: five, and with 32 queries a warp four, for which there are never registers). */
constexpr int blocks_an_sm(int channels, int rows, bool drop) { return channels > 128 || rows > 16 ? 2 : channels > 64 || drop ? 3 : 4; }

__device__ inline float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffff, x, 2));
}
__device__ inline float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffff, x, 1);
  return x + __shfl_xor_sync(0xffffffff, x, 2);
}

/* What a block's queries see: each; the keys that all of a tile of 16 do; one behind the last that a warp's do. */
template <int QUERIES> struct looks {
  sight rows[QUERIES];
  span all[QUERIES / 16];
  int end[WARPS];
};

/* Returns the first key that one of the block's queries sees. */
template <int QUERIES> __device__ inline int look(looks<QUERIES> &l, const mt_attention_forward_args &a, int sample, int q0) {
  int i = threadIdx.x;
  if (i < QUERIES) l.rows[i] = sight_of(a, sample, q0 + i);
  __syncthreads();
  if (i < QUERIES / 16) {
    span all = {0, 1 << 30};
    for (int r = 16 * i; r < 16 * i + 16; r++) all = {l.rows[r].from > all.from ? l.rows[r].from : all.from, l.rows[r].last < all.to ? l.rows[r].last + 1 : all.to};
    l.all[i] = all;
  }
  if (i < WARPS) l.end[i] = keys_until(a, q0 + (i + 1) * (QUERIES / WARPS));
  __syncthreads();
  int first = l.rows[0].from;
  for (int r = 1; r < QUERIES; r++) first = l.rows[r].from < first ? l.rows[r].from : first;
  return first;
}

/* Scores of 16 queries with the keys from k0 on: seen ones are moved by their distance. rows: what the lane's
 * first query sees; its other one is 8 further, here and below. */
template <int KEYS> __device__ inline void hide(float (&s)[KEYS / 8][4], const sight *rows, int k0, float scale, float slope) {
  int key = k0 + threadIdx.x % 4 * 2;
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const sight row = rows[8 * h];
    float ahead = (float)(key - row.position); /* converting is slow: once a tile */
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
      for (int e = 0; e < 2; e++) {
        float &x = s[n][2 * h + e];
        x = row.sees(key + n * 8 + e) ? x * scale + slope * (ahead + (float)(n * 8 + e)) : -INFINITY;
      }
  }
}

/* Scores become powers of two below the highest of their row so far; what was summed before shrinks as that rises. */
template <int KEYS, int D> __device__ inline void soften(float (&s)[KEYS / 8][4], float factor, float *highest, float *sum, float (&o)[D / 8][4]) {
#pragma unroll
  for (int h = 0; h < 2; h++) {
    float top = -INFINITY;
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++) top = fmaxf(top, fmaxf(s[n][2 * h], s[n][2 * h + 1]));
    top = fmaxf(highest[h], quad_max(top) * factor);
    float base = top == -INFINITY ? 0 : top, shrink = power_of_two(highest[h] - base), row = 0;
    highest[h] = top;
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
      for (int e = 0; e < 2; e++) {
        float &x = s[n][2 * h + e];
        x = power_of_two(x * factor - base);
        row += x;
      }
    sum[h] = sum[h] * shrink + row;
#pragma unroll
    for (int c = 0; c < D / 8; c++) o[c][2 * h] *= shrink, o[c][2 * h + 1] *= shrink;
  }
}

template <int KEYS> __device__ inline void drop(float (&s)[KEYS / 8][4], const mask &drawn, int first) {
  uint32_t dropped[2];
  drops_of_queries<KEYS / 8>(dropped, drawn, first);
#pragma unroll
  for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
    for (int e = 0; e < 4; e++) s[n][e] = dropped[e / 2] >> (4 * n + e % 2) & 1 ? 0 : s[n][e] * drawn.keep;
}

/* ROWS: a warp's queries, of which each tile of 16 has the same sums whatever ROWS is. */
template <typename T, int D, int ROWS, bool DROP>
__global__ void __launch_bounds__(THREADS, blocks_an_sm(D, ROWS, DROP)) attention_forward_kernel(const __grid_constant__ mt_attention_forward_args a, bool aligned) {
  const int QUERIES = WARPS * ROWS, TILES = ROWS / 16, KEYS = stream_of_keys<D>::ROWS, SIZE = stream_of_keys<D>::SIZE, S = tile_row<D>::STRIDE;
  static_assert(ROWS == 16 || !DROP, "dropout is drawn for 16 queries");
  MT_DYN_SHARED(T, shared);
  MT_SHARED(looks<QUERIES>, seen);
  int tile = gridDim.x - 1 - blockIdx.x; /* the last queries see most: they start first */
  int q0 = tile * QUERIES, head = blockIdx.y, sample = blockIdx.z, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  place p = place_of(a, sample, head), kv = shared_place(p);
  int sq = queries(a), end = keys_until(a, q0 + QUERIES < sq ? q0 + QUERIES : sq);
  T *own = shared, *k = own + QUERIES * S, *v = k + SIZE;
  auto fetch = [&](T *to, const mt_tensor &from, int k0) {
    if (k0 < end) fetch_rows<KEYS, D, THREADS>(to, from, kv, k0, end, aligned);
    copy_commit();
  };
  int k0 = look(seen, a, sample, q0) / KEYS * KEYS;
  fetch_rows<QUERIES, D, THREADS>(own, a.q, p, q0, sq, aligned);
  fetch(k, a.k, k0);

  int first = warp * ROWS + lane / 4; /* of this lane's queries, counted in the block */
  auto draw = [&] { return mask(a.drop, q0 + first + lane % 2 * 8, sample, a.drop.channel + head); };
  mask kept = DROP && D <= 128 ? draw() : mask();
  const float scale = a.scale * LOG2E, slope = slope_of(a, head) * LOG2E;
  const bool unmoved = slope == 0 && scale > 0; /* the largest product is the largest score */
  float highest[ROWS / 8], sum[ROWS / 8] = {}, o[TILES][D / 8][4] = {};
  for (float &x : highest) x = -INFINITY;
  for (; k0 < end; k0 += KEYS) {
    copy_wait<0>();
    __syncthreads(); /* keys are here, and nobody is at the values before */
    fetch(v, a.v, k0);
    const bool any = k0 < seen.end[warp];
    uint32_t weights[TILES][KEYS / 16][4];
    if (any) {
      float s[TILES][KEYS / 8][4] = {};
      multiply_rows<KEYS, D>(s, own + warp * ROWS * S, k);
#pragma unroll
      for (int m = 0; m < TILES; m++) {
        const span all = seen.all[warp * TILES + m];
        const bool whole = unmoved && k0 >= all.from && k0 + KEYS <= all.to;
        if (!whole) hide<KEYS>(s[m], seen.rows + first + 16 * m, k0, scale, slope);
        soften<KEYS, D>(s[m], whole ? scale : 1, highest + 2 * m, sum + 2 * m, o[m]);
        if (DROP) drop<KEYS>(s[m], D <= 128 ? kept : draw(), a.k_offset + k0); /* wide heads have no registers left for it */
        round_weights<KEYS>(weights[m], s[m], T());
      }
    }
    copy_wait<0>();
    __syncthreads(); /* values are here, and nobody is at the keys */
    fetch(k, a.k, k0 + KEYS);
    if (any) add_weighted<KEYS, D, D>(o, weights, v);
  }
  copy_wait<0>();
#pragma unroll
  for (int m = 0; m < TILES; m++) {
    float inverse[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
      int r = 2 * m + h, i = q0 + first + 8 * r;
      sum[r] = quad_sum(sum[r]);
      inverse[h] = sum[r] > 0 ? 1 / sum[r] : sum[r];
      if (i < sq && lane % 4 == 0) data_of<float>(a.lse)[stat_at(a, sample, head, i)] = highest[r] * LN2 + logf(sum[r]);
    }
    each_pair<D>(o[m], [&](int r, int c, float x, float y) {
      int i = q0 + first + 16 * m + r / 8 * 8;
      if (i < sq) store_values<T>(a.o, p, i, c, x * inverse[r / 8], y * inverse[r / 8]);
    });
  }
}

template <typename T, int D, int ROWS, bool DROP> void launch_as(cudaStream_t stream, const mt_attention_forward_args &a) {
  const int QUERIES = WARPS * ROWS;
  int bytes = (QUERIES * tile_row<D>::STRIDE + 2 * stream_of_keys<D>::SIZE) * (int)sizeof(T);
  auto kernel = attention_forward_kernel<T, D, ROWS, DROP>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  dim3 grid(blocks_for(queries(a), QUERIES), heads_of(a), a.batch);
  MT_LAUNCH(kernel, grid, THREADS, bytes, stream, a, moves(a.q) && moves(a.k) && moves(a.v));
}

/* Whether blocks of 128 queries fill a GPU: two an SM are as many as it holds. Fewer do better as twice
 * as many of 64. How many there are depends on the layout: where that may change no bit there is one kernel. */
bool many(const mt_attention_forward_args &a, int processors) {
  return !mt_cuda_invariant && queries(a) > 64 && (int64_t)blocks_for(queries(a), 128) * heads_of(a) * a.batch >= 2 * processors;
}

template <typename T, int D> void launch(cudaStream_t stream, int processors, const mt_attention_forward_args &a) {
  const int ROWS = D <= 128 ? 32 : 16; /* at most: wide heads, and dropout, have no registers for more */
  if (a.drop.rate > 0) launch_as<T, D, 16, true>(stream, a);
  else if (many(a, processors)) launch_as<T, D, ROWS, false>(stream, a);
  else launch_as<T, D, 16, false>(stream, a);
}

template <typename T> void by_channels(cudaStream_t stream, int processors, const mt_attention_forward_args &a) {
  if (last(a.q) <= 64) launch<T, 64>(stream, processors, a);
  else if (last(a.q) <= 128) launch<T, 128>(stream, processors, a);
  else launch<T, 256>(stream, processors, a);
}

} // namespace

void mt_attention_forward_half(cudaStream_t stream, int processors, const mt_attention_forward_args &a) {
  if (a.q.dtype == MT_BF16) by_channels<bf16>(stream, processors, a);
  else by_channels<f16>(stream, processors, a);
}
