/* Rows of a table by id, and their gradients. Backward takes no atomics: tokens are sorted by
 * their rows of the table, and those of a row are added by one warp a slice, in order. */
#include "exact.h"
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

namespace {

/* A token to be sorted: its row of the table, then its number. Those of other ranks' rows come last. */
typedef uint64_t token_key;
const uint32_t NO_ROW = 0xffffffff;
const token_key NO_TOKEN = ~(token_key)0;

__host__ __device__ inline uint32_t row_of_key(token_key key) { return (uint32_t)(key >> 32); }

__device__ inline token_key key_of(const mt_embedding_backward_args &a, int64_t token) {
  if (token >= a.dout.shape[0]) return NO_TOKEN;
  int64_t row = data_of<int32_t>(a.ids)[token] - a.start;
  return (token_key)(row >= 0 && row < a.dtable.shape[0] ? (uint32_t)row : NO_ROW) << 32 | (uint32_t)token;
}

/* Tokens that a block sorts in shared memory; sorted runs that are merged at once; tokens whose
 * gradients a warp has on their way at once, since a frequent word's are added one by one. */
enum { CHUNK = 2048, WAYS = 8, ROWS = 16 };

/* Sorts each CHUNK of tokens, padded to `size`, by a bitonic network (Batcher, 1968): two keys a
 * thread, so that a warp has 64 in a row and waits for other warps only where two keys lie
 * farther apart. */
__global__ void __launch_bounds__(CHUNK / 2) sort_tokens_kernel(const __grid_constant__ mt_embedding_backward_args a, token_key *sorted, int size) {
  MT_SHARED(token_key[CHUNK], keys);
  int64_t tokens = a.dout.shape[0], from = (int64_t)blockIdx.x * CHUNK;
  for (int i = threadIdx.x; i < size; i += blockDim.x) keys[i] = key_of(a, from + i);
  __syncthreads();
  for (int length = 2; length <= size; length *= 2) {
    for (int by = length / 2; by > 0; by /= 2) {
      if (by >= 32) __syncthreads();
      else __syncwarp();
      int low = 2 * (int)threadIdx.x - ((int)threadIdx.x & (by - 1)), high = low + by;
      token_key x = keys[low], y = keys[high];
      bool rising = (low & length) == 0;
      if ((x > y) == rising) keys[low] = y, keys[high] = x;
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < size && from + i < tokens; i += blockDim.x) sorted[from + i] = keys[i];
}

/* Merges runs of `run` sorted keys, WAYS of them to one: a key's index is the number of keys in
 * these runs that come before it. */
__global__ void merge_tokens_kernel(const token_key *sorted, token_key *merged, int64_t tokens, int64_t run) {
  int64_t i = (int64_t)blockIdx.x * SPREAD + threadIdx.x;
  if (i >= tokens) return;
  token_key key = sorted[i];
  int64_t own = i / run, first = own / WAYS * WAYS, place = first * run + i - own * run;
  for (int64_t other = first; other < first + WAYS && other * run < tokens; other++) {
    if (other == own) continue;
    int64_t from = other * run, low = from, high = from + run < tokens ? from + run : tokens;
    while (low < high) {
      int64_t middle = (low + high) / 2;
      if (sorted[middle] < key) low = middle + 1;
      else high = middle;
    }
    place += low - from;
  }
  merged[place] = key;
}

/* A lane's N columns of the sum of the tokens whose row begins at index `at` of sorted. */
template <typename T, int N> __device__ inline void add_run(const mt_embedding_backward_args &a, const token_key *sorted, int64_t at, int64_t c) {
  int64_t tokens = a.dout.shape[0], h = a.dout.shape[1];
  uint32_t row = row_of_key(sorted[at]);
  float sum[N] = {};
  for (int64_t from = at + threadIdx.x % 32, found = 32; found == 32; from += 32) {
    token_key key = from < tokens ? sorted[from] : NO_TOKEN;
    found = __popc(__ballot_sync(ALL_LANES, row_of_key(key) == row));
    for (int k = 0; k < (int)found; k += ROWS) {
      pack<T, N> x[ROWS] = {}; /* what is not there adds nothing */
#pragma unroll
      for (int r = 0; r < ROWS; r++) {
        unsigned token = __shfl_sync(ALL_LANES, (unsigned)key, k + r);
        if (k + r < (int)found && c < h) x[r] = *reinterpret_cast<const pack<T, N> *>(row_of<T>(a.dout, token) + c);
      }
#pragma unroll
      for (int r = 0; r < ROWS; r++)
        for (int j = 0; j < N; j++) sum[j] += to_float(x[r].v[j]);
    }
  }
  if (c >= h) return;
  float *to = row_of<float>(a.dtable, row) + c, old[N];
  load(old, to);
  for (int j = 0; j < N; j++) sum[j] += old[j];
  store(to, sum);
}

/* Block (32 indexes of sorted, slice of 32·N columns): its warps take the rows that begin
 * at these in turn. */
template <typename T, int N>
__global__ void __launch_bounds__(SPREAD) embedding_backward_kernel(const __grid_constant__ mt_embedding_backward_args a, const token_key *sorted) {
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int64_t base = (int64_t)blockIdx.x * 32, at = base + lane, c = ((int64_t)blockIdx.y * 32 + lane) * N;
  uint32_t row = at < a.dout.shape[0] ? row_of_key(sorted[at]) : NO_ROW;
  bool first = row != NO_ROW && (at == 0 || row_of_key(sorted[at - 1]) != row);
  unsigned rows = __ballot_sync(ALL_LANES, first);
  for (int n = 0; rows; rows &= rows - 1, n++)
    if (n % (SPREAD / 32) == warp) add_run<T, N>(a, sorted, base + __ffs((int)rows) - 1, c);
}

/* The tokens sorted, in either half of `room`. */
const token_key *sort_tokens(cudaStream_t stream, const mt_embedding_backward_args &a, token_key *room) {
  int64_t tokens = a.dout.shape[0];
  int size = 64; /* two keys a thread of a warp */
  while (size < tokens && size < CHUNK) size *= 2;
  MT_LAUNCH(sort_tokens_kernel, blocks_for(tokens, CHUNK), size / 2, 0, stream, a, room, size);
  token_key *from = room, *to = room + tokens;
  for (int64_t run = CHUNK; run < tokens; run *= WAYS) {
    MT_LAUNCH(merge_tokens_kernel, blocks_for(tokens, SPREAD), SPREAD, 0, stream, from, to, tokens, run);
    token_key *merged = to;
    to = from, from = merged;
  }
  return from;
}

template <typename T, int N> void add_tokens(cudaStream_t stream, const mt_embedding_backward_args &a, const token_key *sorted) {
  dim3 grid(blocks_for(a.dout.shape[0], 32), blocks_for(a.dout.shape[1], 32 * N));
  MT_LAUNCH((embedding_backward_kernel<T, N>), grid, SPREAD, 0, stream, a, sorted);
}

} // namespace

/* To a table of f64, on its grid: a column a thread, all tokens one after the other. */
template <typename T> __global__ void embed_exactly_kernel(const __grid_constant__ mt_embedding_backward_args a, int *peaks) {
  int64_t c = (int64_t)blockIdx.x * SPREAD + threadIdx.x;
  double grid = *data_of<double>(a.grid);
  int most = 0;
  for (int64_t t = 0; c < a.dout.shape[1] && t < a.dout.shape[0]; t++) {
    int64_t row = data_of<int32_t>(a.ids)[t] - a.start;
    if (row < 0 || row >= a.dtable.shape[0]) continue;
    float x = to_float(row_of<T>(a.dout, t)[c]);
    if (magnitude(x) > most) most = magnitude(x);
    row_of<double>(a.dtable, row)[c] += on_grid(x, grid);
  }
  most = block_larger(most);
  if (threadIdx.x == 0) peaks[blockIdx.x] = most;
}

static void embedding_backward(mt_context *ctx, const mt_embedding_backward_args &a, void *scratch) {
  if (length(a.dout) == 0) return;
  if (a.dtable.dtype == MT_F64) {
    int *peaks = static_cast<int *>(scratch);
    unsigned blocks = blocks_for(a.dout.shape[1], SPREAD);
    MT_BY_TYPE(a.dout.dtype, MT_LAUNCH(embed_exactly_kernel<T>, blocks, SPREAD, 0, stream_of(ctx), a, peaks))
    mt_raise_peak(stream_of(ctx), data_of<float>(a.peak), peaks, blocks);
    return;
  }
  const token_key *sorted = sort_tokens(stream_of(ctx), a, static_cast<token_key *>(scratch));
  MT_BY_TYPE(a.dout.dtype, {
    if (packs(a.dout, 4) && packs(a.dtable, 4)) add_tokens<T, 4>(stream_of(ctx), a, sorted);
    else add_tokens<T, 1>(stream_of(ctx), a, sorted);
  })
}

static int64_t embedding_backward_bytes(const void *args) {
  const mt_embedding_backward_args &a = *static_cast<const mt_embedding_backward_args *>(args);
  if (a.dtable.dtype == MT_F64) return blocks_for(a.dout.shape[1], SPREAD) * (int64_t)sizeof(int);
  int64_t tokens = a.dout.shape[0];
  return tokens * (tokens > CHUNK ? 2 : 1) * (int64_t)sizeof(token_key);
}

MT_OP(embedding_backward, embedding_backward_bytes)
