/* Sums over rows: bias gradients, and the second step of every such sum. */
#include "sum.h"

/* A block adds 32 columns of one of the sums (blockIdx.y); PART_ROWS threads a column take the parts in turn. */
enum { PART_ROWS = 32 };

__global__ void add_parts_kernel(float *first, float *second, const float *parts, int64_t count, int64_t n) {
  MT_SHARED(float[PART_ROWS][32], sums);
  float *out = blockIdx.y ? second : first;
  parts += blockIdx.y * count * n;
  int64_t c = blockIdx.x * 32 + threadIdx.x;
  float sum = 0;
  if (c < n)
#pragma unroll 8
    for (int64_t p = threadIdx.y; p < count; p += PART_ROWS) sum += parts[p * n + c];
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || c >= n) return;
  for (int r = 1; r < PART_ROWS; r++) sum += sums[r][threadIdx.x];
  out[c] += sum;
}

void mt_add_parts(cudaStream_t stream, float *out, const float *parts, int64_t count, int64_t n, float *second) {
  MT_LAUNCH(add_parts_kernel, dim3(blocks_for(n, 32), second ? 2 : 1), dim3(32, PART_ROWS), 0, stream, out, second, parts, count, n);
}

/* A block sums 32·N columns of the rows of its part, which its ROW_THREADS rows of
 * threads take in turn. */
enum { ROW_THREADS = 8 };

template <typename T, int N> __global__ void column_sum_kernel(float *parts, const __grid_constant__ mt_tensor x, int64_t rows_a_part) {
  MT_SHARED(float[ROW_THREADS][32 * N], sums);
  int64_t n = x.shape[1], c = (blockIdx.x * 32 + threadIdx.x) * N;
  int64_t from = blockIdx.y * rows_a_part, to = from + rows_a_part < x.shape[0] ? from + rows_a_part : x.shape[0];
  float sum[N] = {};
  if (c < n) {
#pragma unroll 4
    for (int64_t r = from + threadIdx.y; r < to; r += ROW_THREADS) {
      float v[N];
      load(v, row_of<T>(x, r) + c);
      for (int j = 0; j < N; j++) sum[j] += v[j];
    }
  }
  for (int j = 0; j < N; j++) sums[threadIdx.y][j * 32 + threadIdx.x] = sum[j];
  __syncthreads();
  if (threadIdx.y > 0 || c >= n) return;
  for (int j = 0; j < N; j++) {
    for (int r = 1; r < ROW_THREADS; r++) sum[j] += sums[r][j * 32 + threadIdx.x];
    parts[blockIdx.y * n + c + j] = sum[j];
  }
}

/* At most 128 parts of 64 rows or more. */
static int64_t rows_a_part(int64_t rows) { return at_least(64, ceil_div(rows, 128)); }

static void column_sum(mt_context *ctx, const mt_column_sum_args &a, void *scratch) {
  if (a.chunk) { /* leaf by leaf */
    for (int64_t leaf = 0; leaf < a.out.shape[0]; leaf++) column_sum(ctx, {one_row(a.out, leaf), leaf_rows(a.x, leaf, a.chunk, a.batch), 0, 0}, scratch);
    return;
  }
  int64_t rows = a.x.shape[0], n = a.x.shape[1];
  if (rows * n == 0) return;
  float *parts = static_cast<float *>(scratch);
  int64_t each = rows_a_part(rows), count = ceil_div(rows, each);
  MT_BY_TYPE(a.x.dtype, {
    const int v = wide<T>::value;
    dim3 block(32, ROW_THREADS);
    if (packs(a.x, v)) MT_LAUNCH((column_sum_kernel<T, v>), dim3(blocks_for(n, 32 * v), count), block, 0, stream_of(ctx), parts, a.x, each);
    else MT_LAUNCH((column_sum_kernel<T, 1>), dim3(blocks_for(n, 32), count), block, 0, stream_of(ctx), parts, a.x, each);
  })
  mt_add_parts(stream_of(ctx), data_of<float>(a.out), parts, count, n);
}

static int64_t column_sum_bytes(const void *args) {
  const mt_tensor &x = static_cast<const mt_column_sum_args *>(args)->x;
  return ceil_div(x.shape[0], rows_a_part(x.shape[0])) * x.shape[1] * (int64_t)sizeof(float);
}

MT_OP(column_sum, column_sum_bytes)
