/* Rows of a table by id, and their gradients. Backward takes no atomics: the block
 * of a token that is the first with its id sums all tokens of that id, in order. */
#include "reduce.h"
#include "spread.h"

template <typename T, int N> __global__ void embedding_forward_kernel(const __grid_constant__ mt_embedding_forward_args a) {
  cell at = cell_of<N>(a.out.shape[0], a.out.shape[1]);
  if (!at.here) return;
  int64_t id = ((const int32_t *)a.ids.data)[at.row] - a.start;
  T *out = row_of<T>(a.out, at.row) + at.column;
  float x[N] = {}, old[N] = {};
  if (id >= 0 && id < a.table.shape[0]) load(x, row_of<T>(a.table, id) + at.column);
  if (a.accumulate) load(old, out);
  for (int j = 0; j < N; j++) x[j] += old[j];
  store(out, x);
}

static void embedding_forward(mt_context *ctx, const mt_embedding_forward_args &a, void *) {
  int64_t n = length(a.out);
  if (n == 0) return;
  MT_BY_TYPE(a.out.dtype, {
    const int N = wide<T>::value;
    if (packs(a.out, N) && packs(a.table, N)) MT_LAUNCH((embedding_forward_kernel<T, N>), spread_blocks(n, N), SPREAD, 0, stream_of(ctx), a);
    else MT_LAUNCH((embedding_forward_kernel<T, 1>), spread_blocks(n, 1), SPREAD, 0, stream_of(ctx), a);
  })
}

MT_OP(embedding_forward, nullptr)

/* Whether any thread of the block says yes. */
__device__ inline bool block_any(bool yes) {
  MT_SHARED(int[SPREAD / 32], votes);
  bool any = __any_sync(ALL_LANES, yes);
  if (threadIdx.x % 32 == 0) votes[threadIdx.x / 32] = any;
  __syncthreads();
  any = false;
  for (int w = 0; w < SPREAD / 32; w++) any |= votes[w] != 0;
  __syncthreads();
  return any;
}

/* The places of the threads that say yes, in order, into list; their number. */
__device__ inline int block_list(int (&list)[SPREAD], bool yes) {
  MT_SHARED(int[SPREAD / 32], counts);
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  unsigned votes = __ballot_sync(ALL_LANES, yes);
  if (lane == 0) counts[warp] = __popc(votes);
  __syncthreads();
  int before = 0, all = 0;
  for (int w = 0; w < SPREAD / 32; w++) {
    if (w < warp) before += counts[w];
    all += counts[w];
  }
  if (yes) list[before + __popc(votes & ((1u << lane) - 1))] = threadIdx.x;
  __syncthreads();
  return all;
}

/* Block (token, slice of SPREAD·N columns). */
template <typename T, int N> __global__ void embedding_backward_kernel(const __grid_constant__ mt_embedding_backward_args a) {
  MT_SHARED(int[SPREAD], list);
  int64_t token = blockIdx.x, tokens = a.dout.shape[0], h = a.dout.shape[1];
  const int32_t *ids = static_cast<const int32_t *>(a.ids.data);
  int32_t id = ids[token];
  if (id < a.start || id >= a.start + a.dtable.shape[0]) return;
  bool earlier = false;
  for (int64_t t = threadIdx.x; t < token; t += SPREAD) earlier |= ids[t] == id;
  if (block_any(earlier)) return;
  int64_t c = ((int64_t)blockIdx.y * SPREAD + threadIdx.x) * N;
  float sum[N] = {};
  for (int64_t from = token; from < tokens; from += SPREAD) {
    int found = block_list(list, from + threadIdx.x < tokens && ids[from + threadIdx.x] == id);
    if (c < h) {
#pragma unroll 4
      for (int k = 0; k < found; k++) {
        float x[N];
        load(x, row_of<T>(a.dout, from + list[k]) + c);
        for (int j = 0; j < N; j++) sum[j] += x[j];
      }
    }
    __syncthreads(); /* before the list changes */
  }
  if (c >= h) return;
  float *to = row_of<float>(a.dtable, id - a.start) + c, old[N];
  load(old, to);
  for (int j = 0; j < N; j++) sum[j] += old[j];
  store(to, sum);
}

static void embedding_backward(mt_context *ctx, const mt_embedding_backward_args &a, void *) {
  int64_t tokens = a.dout.shape[0], h = a.dout.shape[1];
  if (tokens * h == 0) return;
  MT_BY_TYPE(a.dout.dtype, {
    if (packs(a.dout, 4) && packs(a.dtable, 4)) MT_LAUNCH((embedding_backward_kernel<T, 4>), dim3(tokens, blocks_for(h, 4 * SPREAD)), SPREAD, 0, stream_of(ctx), a);
    else MT_LAUNCH((embedding_backward_kernel<T, 1>), dim3(tokens, blocks_for(h, SPREAD)), SPREAD, 0, stream_of(ctx), a);
  })
}

MT_OP(embedding_backward, nullptr)
