/* Rows of tokens on their way to experts and back, a row's weight, and sums over the rows
 * of an expert. */
#include "exact.h"
#include "spread.h"

namespace {

/* Bits are moved, whatever they mean: N elements of T's size at a time. */
template <typename T, int N> __global__ void gather_kernel(const __grid_constant__ mt_gather_rows_args a) {
  cell at = cell_of<N>(a.out.shape[0], a.out.shape[1]);
  if (!at.here) return;
  int64_t row = data_of<int32_t>(a.rows)[at.row];
  pack<T, N> p = {};
  if (row >= 0 && row < a.in.shape[0]) p = *reinterpret_cast<const pack<T, N> *>(row_of<T>(a.in, row) + at.column);
  *reinterpret_cast<pack<T, N> *>(row_of<T>(a.out, at.row) + at.column) = p;
}

template <typename T, int N> __global__ void combine_kernel(const __grid_constant__ mt_combine_rows_args a) {
  cell at = cell_of<N>(a.out.shape[0], a.out.shape[1]);
  if (!at.here) return;
  int64_t k = last(a.slots);
  const int32_t *slots = data_of<int32_t>(a.slots) + at.row * k;
  float sum[N] = {};
  for (int64_t j = 0; j < k; j++) {
    if (slots[j] < 0 || slots[j] >= a.in.shape[0]) continue;
    float x[N];
    load(x, row_of<T>(a.in, slots[j]) + at.column);
    for (int i = 0; i < N; i++) sum[i] += x[i];
  }
  store(row_of<T>(a.out, at.row) + at.column, sum);
}

template <typename T, int N> __global__ void scale_kernel(const __grid_constant__ mt_scale_rows_args a) {
  cell at = cell_of<N>(a.x.shape[0], a.x.shape[1]);
  if (!at.here) return;
  float x[N], w = data_of<float>(a.weight)[at.row];
  load(x, row_of<T>(a.x, at.row) + at.column);
  for (int i = 0; i < N; i++) x[i] *= w;
  store(row_of<T>(a.y, at.row) + at.column, x);
}

/* A block a row. */
template <typename T, int N> __global__ void dot_kernel(const __grid_constant__ mt_row_dots_args a) {
  const T *x = row_of<T>(a.x, blockIdx.x), *y = row_of<T>(a.y, blockIdx.x);
  float sum = 0;
  for (int64_t c = (int64_t)threadIdx.x * N; c < a.x.shape[1]; c += SPREAD * N) {
    float u[N], v[N];
    load(u, x + c);
    load(v, y + c);
    for (int i = 0; i < N; i++) sum += u[i] * v[i];
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) data_of<float>(a.out)[blockIdx.x] = sum;
}

enum { ROW_THREADS = 8 };

/* A block sums 32 columns of a group's rows, which its ROW_THREADS rows of threads take in turn. */
template <typename T> __global__ void sum_kernel(const __grid_constant__ mt_grouped_sum_args a) {
  MT_SHARED(float[ROW_THREADS][32], sums);
  int64_t c = (int64_t)blockIdx.x * 32 + threadIdx.x, g = blockIdx.y;
  int64_t from = data_of<int32_t>(a.offsets)[g], to = data_of<int32_t>(a.offsets)[g + 1];
  float sum = 0;
  if (c < a.x.shape[1])
    for (int64_t r = from + threadIdx.y; r < to; r += ROW_THREADS) sum += to_float(row_of<T>(a.x, r)[c]);
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || c >= a.x.shape[1]) return;
  for (int r = 1; r < ROW_THREADS; r++) sum += sums[r][threadIdx.x];
  row_of<float>(a.out, g)[c] += sum;
}

/* The same on a grid: a thread a column, which adds up the rows of a leaf (neighbours with one number), then the leaves. */
template <typename T> __global__ void sum_leaves_kernel(const __grid_constant__ mt_grouped_sum_args a, int *peaks) {
  int64_t c = (int64_t)blockIdx.x * SPREAD + threadIdx.x, g = blockIdx.y;
  int64_t from = data_of<int32_t>(a.offsets)[g], to = data_of<int32_t>(a.offsets)[g + 1];
  const int32_t *leaf = data_of<int32_t>(a.leaf);
  double grid = *data_of<double>(a.grid), total = 0;
  float sum = 0;
  int most = 0;
  for (int64_t r = from; c < a.x.shape[1] && r < to; r++) {
    sum += to_float(row_of<T>(a.x, r)[c]);
    if (r + 1 < to && leaf[r + 1] == leaf[r]) continue;
    total += on_grid(sum, grid);
    if (magnitude(sum) > most) most = magnitude(sum);
    sum = 0;
  }
  if (c < a.x.shape[1]) row_of<double>(a.out, g)[c] += total;
  most = block_larger(most);
  if (threadIdx.x == 0) peaks[blockIdx.y * gridDim.x + blockIdx.x] = most;
}

dim3 columns_of(const mt_grouped_sum_args &a) { return dim3(blocks_for(a.x.shape[1], SPREAD), (unsigned)a.out.shape[0]); }

template <typename T> void gather_as(cudaStream_t stream, const mt_gather_rows_args &a) {
  const int N = wide<T>::value;
  if (packs_bits(a.out, N) && packs_bits(a.in, N)) MT_LAUNCH((gather_kernel<T, N>), spread_blocks(length(a.out), N), SPREAD, 0, stream, a);
  else MT_LAUNCH((gather_kernel<T, 1>), spread_blocks(length(a.out), 1), SPREAD, 0, stream, a);
}

} // namespace

static void gather_rows(mt_context *ctx, const mt_gather_rows_args &a, void *) {
  if (length(a.out) == 0) return;
  if (element_size(a.out.dtype) == 4) gather_as<uint32_t>(stream_of(ctx), a);
  else gather_as<uint16_t>(stream_of(ctx), a);
}

static void combine_rows(mt_context *ctx, const mt_combine_rows_args &a, void *) {
  int64_t n = length(a.out);
  if (n == 0) return;
  MT_BY_TYPE(a.out.dtype, {
    const int N = wide<T>::value;
    if (packs(a.out, N) && packs(a.in, N)) MT_LAUNCH((combine_kernel<T, N>), spread_blocks(n, N), SPREAD, 0, stream_of(ctx), a);
    else MT_LAUNCH((combine_kernel<T, 1>), spread_blocks(n, 1), SPREAD, 0, stream_of(ctx), a);
  })
}

static void scale_rows(mt_context *ctx, const mt_scale_rows_args &a, void *) {
  int64_t n = length(a.x);
  if (n == 0) return;
  MT_BY_TYPE(a.x.dtype, {
    const int N = wide<T>::value;
    if (packs(a.x, N) && packs(a.y, N)) MT_LAUNCH((scale_kernel<T, N>), spread_blocks(n, N), SPREAD, 0, stream_of(ctx), a);
    else MT_LAUNCH((scale_kernel<T, 1>), spread_blocks(n, 1), SPREAD, 0, stream_of(ctx), a);
  })
}

static void row_dots(mt_context *ctx, const mt_row_dots_args &a, void *) {
  unsigned rows = (unsigned)a.x.shape[0];
  if (rows == 0) return;
  MT_BY_TYPE(a.x.dtype, {
    const int N = wide<T>::value;
    if (packs(a.x, N) && packs(a.y, N)) MT_LAUNCH((dot_kernel<T, N>), rows, SPREAD, 0, stream_of(ctx), a);
    else MT_LAUNCH((dot_kernel<T, 1>), rows, SPREAD, 0, stream_of(ctx), a);
  })
}

static void grouped_sum(mt_context *ctx, const mt_grouped_sum_args &a, void *scratch) {
  if (length(a.x) == 0) return;
  if (given(a.grid)) {
    dim3 blocks = columns_of(a);
    int *peaks = static_cast<int *>(scratch);
    MT_BY_TYPE(a.x.dtype, MT_LAUNCH(sum_leaves_kernel<T>, blocks, SPREAD, 0, stream_of(ctx), a, peaks))
    mt_raise_peak(stream_of(ctx), data_of<float>(a.peak), peaks, (int64_t)blocks.x * blocks.y);
    return;
  }
  dim3 grid(blocks_for(a.x.shape[1], 32), (unsigned)a.out.shape[0]);
  MT_BY_TYPE(a.x.dtype, MT_LAUNCH((sum_kernel<T>), grid, dim3(32, ROW_THREADS), 0, stream_of(ctx), a))
}

static int64_t grouped_sum_bytes(const void *args) {
  const mt_grouped_sum_args &a = *static_cast<const mt_grouped_sum_args *>(args);
  dim3 blocks = columns_of(a);
  return given(a.grid) ? (int64_t)blocks.x * blocks.y * (int64_t)sizeof(int) : 0;
}

MT_OP(gather_rows, nullptr)
MT_OP(combine_rows, nullptr)
MT_OP(scale_rows, nullptr)
MT_OP(row_dots, nullptr)
MT_OP(grouped_sum, grouped_sum_bytes)
