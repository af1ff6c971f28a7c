/* Attention in bf16 and f16 on tensor cores, backward (arXiv 2307.08691, section 3.1),
 * without atomics: one kernel has 64 keys of a group and goes over the queries, one has 64
 * queries of a head and goes over the keys. Both compute a warp's scores again from
 * lse, 16 own rows against a streamed tile, so that the probabilities lie in registers as
 * the next product wants them. Of the scores' gradients p·(z·dp − delta) is rounded to T.
 * Scores are times log2 e, and so is lse; where a warp's rows see a complete tile, and without
 * ALiBi, there is nothing to mask or to add. */
#include "attention_drop.h"
#include "tiles.h"

namespace {

enum { OWN = 64, THREADS = 128 };

/* Rows that stream by. */
template <int D> struct streamed { enum { ROWS = 32, SIZE = ROWS * tile_row<D>::STRIDE }; };

/* What a kernel must know of a query. */
struct query {
  sight s;
  float at, lse2, delta; /* at: its position; converting is slow, and a position is used with many keys */
};
/* What of it lies in memory; document: where documents are given. */
struct query_parts {
  float lse, delta;
  int document;
};
__device__ inline query query_from(const mt_attention_forward_args &f, int i, const query_parts &parts) {
  sight s = sight_from(f, i, [&] { return parts.document; });
  return {s, (float)s.position, parts.lse * LOG2E, parts.delta};
}
__device__ inline query query_of(const mt_attention_forward_args &f, const float *deltas, int sample, int head, int i) {
  query q = {sight_of(f, sample, i), 0, 0, 0};
  if (i >= queries(f)) return q;
  int64_t at = stat_at(f, sample, head, i);
  q.at = (float)q.s.position, q.lse2 = data_of<float>(f.lse)[at] * LOG2E, q.delta = deltas[at];
  return q;
}
/* Brings them without waiting. */
__device__ inline void fetch_query(query_parts &to, const mt_attention_forward_args &f, const float *deltas, int sample, int head, int i) {
  bool there = i < queries(f);
  int64_t at = stat_at(f, sample, head, i);
  copy_async_word(&to.lse, data_of<float>(f.lse) + at, there);
  copy_async_word(&to.delta, deltas + at, there);
  if (given(f.doc_start)) copy_async_word(&to.document, document_of(f, sample, i), there);
}

/* where: key, as a float; scale and slope times log2 e. */
__device__ inline float probability(const query &q, int key, float where, float qk, float scale, float slope) {
  return q.s.sees(key) ? power_of_two(qk * scale + slope * (where - q.at) - q.lse2) : 0;
}

/* dq: a block's rows are queries. */
template <typename T, int D, bool DROP>
__global__ void __launch_bounds__(THREADS) attention_dq_kernel(const __grid_constant__ mt_attention_backward_args a, const float *deltas, bool aligned) {
  // A block has OWN queries of one head and sample, a warp 16 of them; keys and values come through shared
  // memory in stages of KEYS rows, two of which are in use.
  const mt_attention_forward_args &f = a.forward;
  const int KEYS = streamed<D>::ROWS, SIZE = streamed<D>::SIZE, S = tile_row<D>::STRIDE;
  MT_DYN_SHARED(T, shared);
  MT_SHARED(int[OWN], first);
  int q0 = (gridDim.x - 1 - blockIdx.x) * OWN, head = blockIdx.y, sample = blockIdx.z, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  place p = place_of(f, sample, head), kv = shared_place(p);
  int sq = queries(f), end = keys_until(f, q0 + OWN < sq ? q0 + OWN : sq);
  T *q = shared, *d_o = q + OWN * S, *stages = d_o + OWN * S;
  auto fetch = [&](int stage, int k0) {
    if (k0 < end) {
      fetch_rows<KEYS, D, THREADS>(stages + stage * 2 * SIZE, f.k, kv, k0, end, aligned);
      fetch_rows<KEYS, D, THREADS>(stages + stage * 2 * SIZE + SIZE, f.v, kv, k0, end, aligned);
    }
    copy_commit();
  };
  // Keys before the first that any of these queries sees are skipped.
  if (threadIdx.x < OWN) first[threadIdx.x] = sight_of(f, sample, q0 + threadIdx.x).from;
  __syncthreads();
  int k0 = first[0];
  for (int i = 1; i < OWN; i++) k0 = first[i] < k0 ? first[i] : k0;
  k0 = k0 / KEYS * KEYS;
  fetch_rows<OWN, D, THREADS>(q, f.q, p, q0, sq, aligned);
  fetch_rows<OWN, D, THREADS>(d_o, a.d_o, p, q0, sq, aligned);
  fetch(0, k0);

  // A lane's two rows, as mma lays out its fragments; mask draws are made once where registers suffice.
  int i[2] = {q0 + warp * 16 + lane / 4, q0 + warp * 16 + lane / 4 + 8};
  query own[2] = {query_of(f, deltas, sample, head, i[0]), query_of(f, deltas, sample, head, i[1])};
  auto draw = [&] { return mask(f.drop, q0 + warp * 16 + lane / 4 + lane % 2 * 8, sample, f.drop.channel + head); };
  mask kept = DROP && D <= 128 ? draw() : mask();
  const float scale = f.scale * LOG2E, slope = slope_of(f, head) * LOG2E;
  float dq[D / 8][4] = {};
  for (int stage = 0; k0 < end; k0 += KEYS, stage ^= 1) {
    fetch(stage ^ 1, k0 + KEYS);
    copy_wait<1>();
    __syncthreads();
    const T *k = stages + stage * 2 * SIZE, *v = k + SIZE;
    float s[KEYS / 8][4] = {}, dp[KEYS / 8][4] = {};
    // s = q·kᵀ, dp = do·vᵀ: [16, KEYS] of a warp.
    multiply_rows<KEYS, D>(s, q + warp * 16 * S, k);
    multiply_rows<KEYS, D>(dp, d_o + warp * 16 * S, v);
    float where = (float)(k0 + lane % 4 * 2);
    uint32_t dropped[2] = {};
    mask drawn = DROP && D > 128 ? draw() : kept; /* wide heads have no registers left for it */
    if (DROP) drops_of_queries<KEYS / 8>(dropped, drawn, f.k_offset + k0);
    // Probabilities, without masks where all keys are seen by both rows of every lane.
    bool whole = slope == 0 && own[0].s.sees_all(k0, k0 + KEYS) && own[1].s.sees_all(k0, k0 + KEYS);
    if (__all_sync(0xffffffff, whole)) {
#pragma unroll
      for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) s[n][e] = power_of_two(s[n][e] * scale - own[e / 2].lse2);
    } else {
#pragma unroll
      for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
          s[n][e] = probability(own[e / 2], k0 + n * 8 + lane % 4 * 2 + e % 2, where + (float)(n * 8 + e % 2), s[n][e], scale, slope);
    }
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        // dscore = p·(z·dp - delta), delta = Σ do·o; dq += dscore·k
        float z = dropped[e / 2] >> (4 * n + e % 2) & 1 ? 0 : drawn.keep;
        s[n][e] *= z * dp[n][e] - own[e / 2].delta;
      }
    add_weighted<KEYS, D, D>(dq, s, k);
    __syncthreads();
  }
  copy_wait<0>();
  // The scores' scale is applied once, to the sum.
  each_pair<D>(dq, [&](int r, int c, float x, float y) {
    if (i[r / 8] < sq) store_values<T>(a.dq, p, i[r / 8], c, x * f.scale, y * f.scale);
  });
}

/* dk, dv: a block's rows are keys, whose sums go over all heads of the group. C: the
 * channels that the block makes, from slice·C on; all of them where registers allow. */
template <typename T, int D, int C, bool DROP>
__global__ void __launch_bounds__(THREADS) attention_dkv_kernel(const __grid_constant__ mt_attention_backward_args a, const float *deltas, bool aligned) {
  const mt_attention_forward_args &f = a.forward;
  const int QUERIES = streamed<D>::ROWS, SIZE = streamed<D>::SIZE, S = tile_row<D>::STRIDE, SLICES = D / C;
  MT_DYN_SHARED(T, shared);
  MT_SHARED(query_parts[2][QUERIES], coming); /* with each stage's rows; a thread's own */
  MT_SHARED(query[QUERIES], seen);
  int k0 = blockIdx.x / SLICES * OWN, channel = blockIdx.x % SLICES * C, group = blockIdx.y, sample = blockIdx.z, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int sq = queries(f), sk = keys(f), a_group = (int)f.q.shape[2], end = keys_until(f, sq);
  place kv = {f.batch, sample, group, 0};
  T *k = shared, *v = k + OWN * S, *stages = v + OWN * S;
  span looks = looking(f, k0, k0 + OWN - 1);
  int first = looks.from / QUERIES, tiles = looks.to > looks.from ? (looks.to + QUERIES - 1) / QUERIES - first : 0;
  /* Step n is tile n % tiles of head n / tiles of the group. */
  auto fetch = [&](int stage, int n) {
    if (n < tiles * a_group) {
      int h = n / tiles, q0 = (first + n % tiles) * QUERIES;
      place p = {f.batch, sample, group, h};
      fetch_rows<QUERIES, D, THREADS>(stages + stage * 2 * SIZE, f.q, p, q0, sq, aligned);
      fetch_rows<QUERIES, D, THREADS>(stages + stage * 2 * SIZE + SIZE, a.d_o, p, q0, sq, aligned);
      if (threadIdx.x < QUERIES) fetch_query(coming[stage][threadIdx.x], f, deltas, sample, group * a_group + h, q0 + threadIdx.x);
    }
    copy_commit();
  };
  fetch_rows<OWN, D, THREADS>(k, f.k, kv, k0, end, aligned);
  fetch_rows<OWN, D, THREADS>(v, f.v, kv, k0, end, aligned);
  fetch(0, 0);

  int key[2] = {k0 + warp * 16 + lane / 4, k0 + warp * 16 + lane / 4 + 8};
  float places[2] = {(float)key[0], (float)key[1]};
  mask drawn = DROP ? mask(f.drop, 0, sample, 0) : mask();
  float dk[C / 8][4] = {}, dv[C / 8][4] = {};
  for (int n = 0; n < tiles * a_group; n++) {
    int stage = n % 2, head = group * a_group + n / tiles, q0 = (first + n % tiles) * QUERIES;
    fetch(stage ^ 1, n + 1);
    copy_wait<1>();
    if (threadIdx.x < QUERIES) seen[threadIdx.x] = query_from(f, q0 + threadIdx.x, coming[stage][threadIdx.x]);
    __syncthreads();
    const T *q = stages + stage * 2 * SIZE, *d_o = q + SIZE;
    const float scale = f.scale * LOG2E, slope = slope_of(f, head) * LOG2E;
    float s[QUERIES / 8][4] = {}, dp[QUERIES / 8][4] = {}; /* [keys, queries] */
    multiply_rows<QUERIES, D>(s, k + warp * 16 * S, q);
    multiply_rows<QUERIES, D>(dp, v + warp * 16 * S, d_o);
    uint32_t dropped[QUERIES / 8] = {};
    if (DROP) {
      drawn.head = (uint32_t)(f.drop.channel + head);
      drops_of_keys(dropped, drawn, (uint32_t)f.drop.position, f.k_offset + k0 + warp * 16, q0);
    }
    int first_here = k0 + warp * 16; /* of the warp's keys; a lane checks one query */
    bool whole = slope == 0 && seen[lane].s.sees_all(first_here, first_here + 16);
    whole = __all_sync(0xffffffff, whole);
    auto finish = [&](int c, int e, float p, float delta) {
      float z = dropped[c] >> (e / 2 * 4 + e % 2 * 8) & 1 ? 0 : drawn.keep;
      s[c][e] = p * z;
      dp[c][e] = p * (z * dp[c][e] - delta);
    };
    if (whole) {
#pragma unroll
      for (int c = 0; c < QUERIES / 8; c++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
          const query &x = seen[c * 8 + lane % 4 * 2 + e % 2];
          finish(c, e, power_of_two(s[c][e] * scale - x.lse2), x.delta);
        }
    } else {
#pragma unroll
      for (int c = 0; c < QUERIES / 8; c++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
          const query &x = seen[c * 8 + lane % 4 * 2 + e % 2];
          finish(c, e, probability(x, key[e / 2], places[e / 2], s[c][e], scale, slope), x.delta);
        }
    }
    add_weighted<QUERIES, D, C>(dv, s, d_o + channel);
    add_weighted<QUERIES, D, C>(dk, dp, q + channel);
    __syncthreads();
  }
  copy_wait<0>();
  each_pair<C>(dk, [&](int r, int c, float x, float y) {
    if (key[r / 8] < sk) store_values<T>(a.dk, kv, key[r / 8], channel + c, x * f.scale, y * f.scale);
  });
  each_pair<C>(dv, [&](int r, int c, float x, float y) {
    if (key[r / 8] < sk) store_values<T>(a.dv, kv, key[r / 8], channel + c, x, y);
  });
}

template <typename T, int D, bool DROP> void launch_as(cudaStream_t stream, const mt_attention_backward_args &a, const float *delta) {
  const mt_attention_forward_args &f = a.forward;
  const int C = D <= 128 ? D : 128;
  int bytes = (2 * OWN * tile_row<D>::STRIDE + 4 * streamed<D>::SIZE) * (int)sizeof(T);
  bool aligned = moves(f.q) && moves(f.k) && moves(f.v) && moves(a.d_o);
  auto dq = attention_dq_kernel<T, D, DROP>;
  cudaFuncSetAttribute(dq, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  MT_LAUNCH(dq, dim3(blocks_for(queries(f), OWN), heads_of(f), f.batch), THREADS, bytes, stream, a, delta, aligned);
  auto dkv = attention_dkv_kernel<T, D, C, DROP>;
  cudaFuncSetAttribute(dkv, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  MT_LAUNCH(dkv, dim3(blocks_for(keys(f), OWN) * (D / C), (unsigned)f.q.shape[1], f.batch), THREADS, bytes, stream, a, delta, aligned);
}

template <typename T, int D> void launch(cudaStream_t stream, const mt_attention_backward_args &a, const float *delta) {
  if (a.forward.drop.rate > 0) launch_as<T, D, true>(stream, a, delta);
  else launch_as<T, D, false>(stream, a, delta);
}

template <typename T> void by_channels(cudaStream_t stream, const mt_attention_backward_args &a, const float *delta) {
  int64_t d = last(a.forward.q);
  if (d <= 64) launch<T, 64>(stream, a, delta);
  else if (d <= 128) launch<T, 128>(stream, a, delta);
  else launch<T, 256>(stream, a, delta);
}

} // namespace

void mt_attention_backward_half(cudaStream_t stream, const mt_attention_backward_args &a, const float *delta) {
  if (a.forward.q.dtype == MT_BF16) by_channels<bf16>(stream, a, delta);
  else by_channels<f16>(stream, a, delta);
}
