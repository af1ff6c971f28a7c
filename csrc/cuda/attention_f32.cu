/* Attention in f32, nothing rounded in between. A block of eight warps has 32 rows of
 * its own (queries, or keys in the keys' gradients), four a warp, and goes over the
 * others 32 at a time, which it brings into shared memory: a lane computes the scores
 * of one of them, then owns channels lane, lane+32, ... of the sums. */
#include "attention.h"
#include "reduce.h"

namespace {

enum { ROWS = 32, WARPS = 8, OWN = ROWS / WARPS, THREADS = 32 * WARPS };

/* Copies rows at.. of t at p, zeros from row `end` on, to [ROWS][d + 1]: with the
 * odd length lanes read one column of different rows without conflict. */
__device__ inline void fetch(float *to, const mt_tensor &t, const place &p, int at, int end) {
  int d = (int)last(t);
  for (int i = threadIdx.x; i < ROWS * d; i += THREADS) {
    int r = i / d, c = i % d;
    to[r * (d + 1) + c] = at + r < end ? row_at_place<float>(t, p, at + r)[c] : 0;
  }
}

__device__ inline float dot(const float *x, const float *y, int d) {
  float sum = 0;
  for (int c = 0; c < d; c++) sum += x[c] * y[c];
  return sum;
}

/* acc += Σ over the 32 rows of weight[row]·row, in this lane's channels. */
template <int NC> __device__ inline void add_rows(float (&acc)[NC], const float *weight, const float *tile, int d) {
  int lane = threadIdx.x % 32;
  for (int j = 0; j < ROWS; j++)
#pragma unroll
    for (int n = 0; n < NC; n++)
      if (lane + 32 * n < d) acc[n] += weight[j] * tile[j * (d + 1) + lane + 32 * n];
}

template <int NC> __device__ inline void put(const mt_tensor &t, const place &p, int row, const float (&acc)[NC], float scale) {
  float *to = row_at_place<float>(t, p, row);
#pragma unroll
  for (int n = 0; n < NC; n++) {
    int c = threadIdx.x % 32 + 32 * n;
    if (c < last(t)) to[c] = acc[n] * scale;
  }
}

/* The first key that one of the block's queries sees, rounded down to full tiles. */
__device__ inline int first_tile(const mt_attention_forward_args &a, int sample, int q0) {
  float least = 1 << 30; /* exact as f32 */
  int i = q0 + (int)threadIdx.x % 32;
  if (i < queries(a)) least = (float)sight_of(a, sample, i).from;
  return (int)-warp_max(-least) / ROWS * ROWS;
}

/* Factor of a probability: 0, or 1/(1−rate); 1 without dropout. */
__device__ inline float dropped(const mt_attention_forward_args &a, int sample, int head, int i, int key) {
  if (a.drop.rate == 0) return 1;
  float factor[1];
  mask(a.drop, i, sample, a.drop.channel + head).factors(factor, a.k_offset + key);
  return factor[0];
}

template <int NC> __global__ void __launch_bounds__(THREADS) attention_forward_f32_kernel(const __grid_constant__ mt_attention_forward_args a) {
  MT_DYN_SHARED(float, shared);
  MT_SHARED(float[WARPS][ROWS], weights);
  int d = (int)last(a.q), q0 = blockIdx.x * ROWS, head = blockIdx.y, sample = blockIdx.z, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float *q = shared, *k = q + ROWS * (d + 1), *v = k + ROWS * (d + 1), slope = slope_of(a, head);
  place p = place_of(a, sample, head), kv = shared_place(p);
  int sq = queries(a), end = keys_until(a, q0 + ROWS < sq ? q0 + ROWS : sq);
  /* The block's queries stay; a warp has OWN of them. */
  fetch(q, a.q, p, q0, sq);
  float o[OWN][NC] = {}, max[OWN], sum[OWN] = {};
  for (float &m : max) m = -INFINITY;
  /* Tiles of keys: a lane has a key, and the softmax continues from the highest score so far. */
  for (int k0 = first_tile(a, sample, q0); k0 < end; k0 += ROWS) {
    fetch(k, a.k, kv, k0, end);
    fetch(v, a.v, kv, k0, end);
    __syncthreads();
#pragma unroll
    for (int r = 0; r < OWN; r++) {
      int i = q0 + warp * OWN + r, key = k0 + lane;
      sight s = sight_of(a, sample, i);
      float score = s.sees(key) ? a.scale * dot(q + (warp * OWN + r) * (d + 1), k + lane * (d + 1), d) + slope * (key - s.position) : -INFINITY;
      float top = fmaxf(max[r], warp_max(score)), base = top == -INFINITY ? 0 : top;
      float e = expf(score - base), shrink = expf(max[r] - base);
      max[r] = top;
      sum[r] = sum[r] * shrink + warp_sum(e);
      weights[warp][lane] = e > 0 ? e * dropped(a, sample, head, i, key) : 0;
      __syncwarp();
      for (float &x : o[r]) x *= shrink;
      add_rows(o[r], weights[warp], v, d);
      __syncwarp();
    }
    __syncthreads();
  }
  /* Outputs, and the logarithm of each row's sum. */
#pragma unroll
  for (int r = 0; r < OWN; r++) {
    int i = q0 + warp * OWN + r;
    if (i >= sq) continue;
    put(a.o, p, i, o[r], sum[r] > 0 ? 1 / sum[r] : sum[r]);
    if (lane == 0) data_of<float>(a.lse)[stat_at(a, sample, head, i)] = max[r] + logf(sum[r]);
  }
}

/* p·z, and p·(z·dp − delta): what dv and the scores' gradients are made of. */
struct grads { float pz, ds; };
__device__ inline grads score_grads(const mt_attention_forward_args &a, int sample, int head, int i, int key, float qk, float dp, float slope, float lse, float delta) {
  sight s = sight_of(a, sample, i);
  if (!s.sees(key)) return {0, 0};
  float p = expf(a.scale * qk + slope * (key - s.position) - lse), z = dropped(a, sample, head, i, key);
  return {p * z, p * (z * dp - delta)};
}

/* NC == 8: left alone, the compiler for sm_90a keeps to 128 registers, and spills. */
template <int NC>
__global__ void __launch_bounds__(THREADS, NC == 8 ? 1 : 0) attention_dq_f32_kernel(const __grid_constant__ mt_attention_backward_args a, const float *deltas) {
  const mt_attention_forward_args &f = a.forward;
  MT_DYN_SHARED(float, shared);
  MT_SHARED(float[WARPS][ROWS], weights);
  int d = (int)last(f.q), q0 = blockIdx.x * ROWS, head = blockIdx.y, sample = blockIdx.z, warp = threadIdx.x / 32, lane = threadIdx.x % 32, size = ROWS * (d + 1);
  float *q = shared, *d_o = q + size, *k = d_o + size, *v = k + size, slope = slope_of(f, head);
  place p = place_of(f, sample, head), kv = shared_place(p);
  int sq = queries(f), end = keys_until(f, q0 + ROWS < sq ? q0 + ROWS : sq);
  /* The block's queries and their gradients stay; a warp has OWN of them. */
  fetch(q, f.q, p, q0, sq);
  fetch(d_o, a.d_o, p, q0, sq);
  float dq[OWN][NC] = {};
  /* Tiles of keys: a lane has a key; dq adds dS·k. */
  for (int k0 = first_tile(f, sample, q0); k0 < end; k0 += ROWS) {
    fetch(k, f.k, kv, k0, end);
    fetch(v, f.v, kv, k0, end);
    __syncthreads();
#pragma unroll
    for (int r = 0; r < OWN; r++) {
      int own = warp * OWN + r, i = q0 + own;
      float lse = 0, delta = 0;
      if (i < sq) lse = data_of<float>(f.lse)[stat_at(f, sample, head, i)], delta = deltas[stat_at(f, sample, head, i)];
      float qk = dot(q + own * (d + 1), k + lane * (d + 1), d), dp = dot(d_o + own * (d + 1), v + lane * (d + 1), d);
      weights[warp][lane] = score_grads(f, sample, head, i, k0 + lane, qk, dp, slope, lse, delta).ds;
      __syncwarp();
      add_rows(dq[r], weights[warp], k, d);
      __syncwarp();
    }
    __syncthreads();
  }
#pragma unroll
  for (int r = 0; r < OWN; r++)
    if (q0 + warp * OWN + r < sq) put(a.dq, p, q0 + warp * OWN + r, dq[r], f.scale);
}

/* Rows are keys; a lane has a query. All heads of the group add to the same sums. */
template <int NC>
__global__ void __launch_bounds__(THREADS, NC == 2 ? 2 : 1) attention_dkv_f32_kernel(const __grid_constant__ mt_attention_backward_args a, const float *deltas) {
  const mt_attention_forward_args &f = a.forward;
  MT_DYN_SHARED(float, shared);
  MT_SHARED(float[2][WARPS][ROWS], weights);
  int d = (int)last(f.q), k0 = blockIdx.x * ROWS, group = blockIdx.y, sample = blockIdx.z, warp = threadIdx.x / 32, lane = threadIdx.x % 32, size = ROWS * (d + 1);
  float *k = shared, *v = k + size, *q = v + size, *d_o = q + size;
  int sq = queries(f), sk = keys(f), a_group = (int)f.q.shape[2], end = keys_until(f, sq);
  place kv = {f.batch, sample, group, 0};
  /* The block's keys and values stay; a warp has OWN of them. */
  fetch(k, f.k, kv, k0, end);
  fetch(v, f.v, kv, k0, end);
  float dk[OWN][NC] = {}, dv[OWN][NC] = {};
  span seen = looking(f, k0, k0 + ROWS - 1);
  /* Every query head of the group that sees them, in tiles of queries: a lane has a query. */
  for (int h = 0; h < a_group; h++) {
    int head = group * a_group + h;
    float slope = slope_of(f, head);
    place p = {f.batch, sample, group, h};
    for (int q0 = seen.from / ROWS * ROWS; q0 < seen.to; q0 += ROWS) {
      fetch(q, f.q, p, q0, sq);
      fetch(d_o, a.d_o, p, q0, sq);
      __syncthreads();
      int i = q0 + lane;
      float lse = 0, delta = 0;
      if (i < sq) lse = data_of<float>(f.lse)[stat_at(f, sample, head, i)], delta = deltas[stat_at(f, sample, head, i)];
#pragma unroll
      for (int r = 0; r < OWN; r++) {
        int own = warp * OWN + r;
        float qk = dot(k + own * (d + 1), q + lane * (d + 1), d), dp = dot(v + own * (d + 1), d_o + lane * (d + 1), d);
        grads g = score_grads(f, sample, head, i, k0 + own, qk, dp, slope, lse, delta);
        weights[0][warp][lane] = g.pz, weights[1][warp][lane] = g.ds;
        __syncwarp();
        add_rows(dv[r], weights[0][warp], d_o, d);
        add_rows(dk[r], weights[1][warp], q, d);
        __syncwarp();
      }
      __syncthreads();
    }
  }
#pragma unroll
  for (int r = 0; r < OWN; r++) {
    int key = k0 + warp * OWN + r;
    if (key >= sk) continue;
    put(a.dk, kv, key, dk[r], f.scale);
    put(a.dv, kv, key, dv[r], 1);
  }
}

template <int NC> void forward(cudaStream_t stream, const mt_attention_forward_args &a) {
  int bytes = 3 * ROWS * (int)(last(a.q) + 1) * (int)sizeof(float);
  cudaFuncSetAttribute(attention_forward_f32_kernel<NC>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  MT_LAUNCH(attention_forward_f32_kernel<NC>, dim3(blocks_for(queries(a), ROWS), heads_of(a), a.batch), THREADS, bytes, stream, a);
}

template <int NC> void backward(cudaStream_t stream, const mt_attention_backward_args &a, const float *delta) {
  const mt_attention_forward_args &f = a.forward;
  int bytes = 4 * ROWS * (int)(last(f.q) + 1) * (int)sizeof(float);
  cudaFuncSetAttribute(attention_dq_f32_kernel<NC>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  cudaFuncSetAttribute(attention_dkv_f32_kernel<NC>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  MT_LAUNCH(attention_dq_f32_kernel<NC>, dim3(blocks_for(queries(f), ROWS), heads_of(f), f.batch), THREADS, bytes, stream, a, delta);
  MT_LAUNCH(attention_dkv_f32_kernel<NC>, dim3(blocks_for(keys(f), ROWS), (unsigned)f.q.shape[1], f.batch), THREADS, bytes, stream, a, delta);
}

} // namespace

void mt_attention_forward_f32(cudaStream_t stream, const mt_attention_forward_args &a) {
  if (last(a.q) <= 64) forward<2>(stream, a);
  else if (last(a.q) <= 128) forward<4>(stream, a);
  else forward<8>(stream, a);
}

void mt_attention_backward_f32(cudaStream_t stream, const mt_attention_backward_args &a, const float *delta) {
  if (last(a.forward.q) <= 64) backward<2>(stream, a, delta);
  else if (last(a.forward.q) <= 128) backward<4>(stream, a, delta);
  else backward<8>(stream, a, delta);
}
