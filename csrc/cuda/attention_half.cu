/* Attention in bf16 and f16 on tensor cores, forward. A block has 64 queries of a head,
 * 16 a warp; tiles of keys and values stream through shared memory, which has one of each: a
 * tile's values come while its scores are made, the next keys while its values are added up.
 * Two of each would leave an A100 one block an SM for heads of 128 channels (87 KB), this
 * three (52 KB). Scores, the softmax and the sums are f32 in registers, scores times
 * log2 e; a probability is rounded to T for its product with the values. Most tiles are seen
 * whole: their scores need no mask, and without ALiBi but a factor, which the exponent takes. */
#include "attention_drop.h"
#include "tiles.h"

namespace {

enum { QUERIES = 64, THREADS = 128 };

template <int D> struct stream_of_keys { enum { ROWS = D <= 128 ? 64 : 32, SIZE = ROWS * tile_row<D>::STRIDE }; };

/* Blocks of an SM that registers are to leave room for: as many as an A100 has shared memory for
 * (heads of 64 channels: five, for which there are never registers). */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
enum { MOST_BLOCKS = 3 }; /* with four its compiler spills */
#else
enum { MOST_BLOCKS = 4 };
#endif
constexpr int blocks_an_sm(int channels, bool drop) { return channels > 128 ? 2 : channels > 64 || drop ? 3 : MOST_BLOCKS; }

__device__ inline float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffff, x, 2));
}
__device__ inline float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffff, x, 1);
  return x + __shfl_xor_sync(0xffffffff, x, 2);
}

/* The first key that one of the block's queries sees. */
__device__ inline int first_key(const mt_attention_forward_args &a, int sample, int q0) {
  MT_SHARED(int[QUERIES], from);
  if (threadIdx.x < QUERIES) from[threadIdx.x] = sight_of(a, sample, q0 + threadIdx.x).from;
  __syncthreads();
  int least = from[0];
  for (int i = 1; i < QUERIES; i++) least = from[i] < least ? from[i] : least;
  return least;
}

template <typename T, int D, bool DROP>
__global__ void __launch_bounds__(THREADS, blocks_an_sm(D, DROP)) attention_forward_kernel(const __grid_constant__ mt_attention_forward_args a, bool aligned) {
  const int KEYS = stream_of_keys<D>::ROWS, SIZE = stream_of_keys<D>::SIZE, S = tile_row<D>::STRIDE;
  MT_DYN_SHARED(T, shared);
  int tile = gridDim.x - 1 - blockIdx.x; /* the last queries see most: they start first */
  int q0 = tile * QUERIES, head = blockIdx.y, sample = blockIdx.z, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  place p = place_of(a, sample, head), kv = shared_place(p);
  int sq = queries(a), end = keys_until(a, q0 + QUERIES < sq ? q0 + QUERIES : sq);
  T *own = shared, *k = own + QUERIES * S, *v = k + SIZE;
  auto fetch = [&](T *to, const mt_tensor &from, int k0) {
    if (k0 < end) fetch_rows<KEYS, D, THREADS>(to, from, kv, k0, end, aligned);
    copy_commit();
  };
  int k0 = first_key(a, sample, q0) / KEYS * KEYS;
  fetch_rows<QUERIES, D, THREADS>(own, a.q, p, q0, sq, aligned);
  fetch(k, a.k, k0);

  int i[2] = {q0 + warp * 16 + lane / 4, q0 + warp * 16 + lane / 4 + 8}; /* this lane's rows */
  sight sights[2] = {sight_of(a, sample, i[0]), sight_of(a, sample, i[1])};
  auto draw = [&] { return mask(a.drop, q0 + warp * 16 + lane / 4 + lane % 2 * 8, sample, a.drop.channel + head); };
  mask kept = DROP && D <= 128 ? draw() : mask();
  const float scale = a.scale * LOG2E, slope = slope_of(a, head) * LOG2E;
  const bool unmoved = slope == 0 && scale > 0; /* the largest product is the largest score */
  float max[2] = {-INFINITY, -INFINITY}, sum[2] = {}, o[D / 8][4] = {};
  for (; k0 < end; k0 += KEYS) {
    copy_wait<0>();
    __syncthreads(); /* keys are here, and nobody is at the values before */
    fetch(v, a.v, k0);
    float s[KEYS / 8][4] = {};
    multiply_rows<KEYS, D>(s, own + warp * 16 * S, k);
    bool whole = unmoved && sights[0].sees_all(k0, k0 + KEYS) && sights[1].sees_all(k0, k0 + KEYS);
    whole = __all_sync(0xffffffff, whole);
    const float factor = whole ? scale : 1;
    if (!whole) {
#pragma unroll
      for (int h = 0; h < 2; h++) {
        float ahead = (float)(k0 + lane % 4 * 2 - sights[h].position); /* converting is slow: once a tile */
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
          for (int e = 0; e < 2; e++) {
            float &x = s[n][2 * h + e];
            x = sights[h].sees(k0 + n * 8 + lane % 4 * 2 + e) ? x * scale + slope * (ahead + (float)(n * 8 + e)) : -INFINITY;
          }
      }
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
      float top = -INFINITY;
#pragma unroll
      for (int n = 0; n < KEYS / 8; n++) top = fmaxf(top, fmaxf(s[n][2 * h], s[n][2 * h + 1]));
      top = fmaxf(max[h], quad_max(top) * factor);
      float base = top == -INFINITY ? 0 : top, shrink = power_of_two(max[h] - base), row = 0;
      max[h] = top;
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
    if (DROP) {
      uint32_t dropped[2];
      mask drawn = D <= 128 ? kept : draw(); /* wide heads have no registers left for it */
      drops_of_queries<KEYS / 8>(dropped, drawn, a.k_offset + k0);
#pragma unroll
      for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) s[n][e] = dropped[e / 2] >> (4 * n + e % 2) & 1 ? 0 : s[n][e] * drawn.keep;
    }
    copy_wait<0>();
    __syncthreads(); /* values are here, and nobody is at the keys */
    fetch(k, a.k, k0 + KEYS);
    add_weighted<KEYS, D, D>(o, s, v);
  }
  copy_wait<0>();
  float inverse[2];
  for (int h = 0; h < 2; h++) {
    sum[h] = quad_sum(sum[h]);
    inverse[h] = sum[h] > 0 ? 1 / sum[h] : sum[h];
    if (i[h] < sq && lane % 4 == 0) data_of<float>(a.lse)[stat_at(a, sample, head, i[h])] = max[h] * LN2 + logf(sum[h]);
  }
  each_pair<D>(o, [&](int r, int c, float x, float y) {
    int h = r / 8;
    if (i[h] < sq) store_values<T>(a.o, p, i[h], c, x * inverse[h], y * inverse[h]);
  });
}

template <typename T, int D, bool DROP> void launch_as(cudaStream_t stream, const mt_attention_forward_args &a) {
  int bytes = (QUERIES * tile_row<D>::STRIDE + 2 * stream_of_keys<D>::SIZE) * (int)sizeof(T);
  auto kernel = attention_forward_kernel<T, D, DROP>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  dim3 grid(blocks_for(queries(a), QUERIES), heads_of(a), a.batch);
  MT_LAUNCH(kernel, grid, THREADS, bytes, stream, a, moves(a.q) && moves(a.k) && moves(a.v));
}

template <typename T, int D> void launch(cudaStream_t stream, const mt_attention_forward_args &a) {
  if (a.drop.rate > 0) launch_as<T, D, true>(stream, a);
  else launch_as<T, D, false>(stream, a);
}

template <typename T> void by_channels(cudaStream_t stream, const mt_attention_forward_args &a) {
  if (last(a.q) <= 64) launch<T, 64>(stream, a);
  else if (last(a.q) <= 128) launch<T, 128>(stream, a);
  else launch<T, 256>(stream, a);
}

} // namespace

void mt_attention_forward_half(cudaStream_t stream, const mt_attention_forward_args &a) {
  if (a.q.dtype == MT_BF16) by_channels<bf16>(stream, a);
  else by_channels<f16>(stream, a);
}
