/* Cross entropy over a chunk of logits, all columns or one rank's. The largest
 * logit and the sum come from one pass over memory. */
#include "reduce.h"
#include "spread.h"

enum { ROW_THREADS = 512 };

/* The sum of exp(x−max); of nothing at all: −inf and 0. */
struct stats {
  float max, sum;

  __device__ void add(float x) {
    if (x > max) {
      sum = sum * factor(max, x) + expf(x - x); /* 1, or NaN for inf */
      max = x;
    } else {
      sum += x == -INFINITY ? 0 : expf(x - max); /* NaN stays; inf−inf is NaN too */
    }
  }
  __device__ static float factor(float from, float to) { return from == to ? 1 : expf(from - to); }
  __device__ void join(float other_max, float other_sum) {
    float top = fmaxf(max, other_max);
    sum = sum * factor(max, top) + other_sum * factor(other_max, top);
    max = top;
  }
};

__device__ inline stats block_join(stats s) {
  MT_SHARED(float[2][ROW_THREADS / 32], parts);
  for (int by = 16; by > 0; by /= 2) {
    float max = __shfl_xor_sync(ALL_LANES, s.max, by), sum = __shfl_xor_sync(ALL_LANES, s.sum, by);
    s.join(max, sum);
  }
  if (threadIdx.x % 32 == 0) parts[0][threadIdx.x / 32] = s.max, parts[1][threadIdx.x / 32] = s.sum;
  __syncthreads();
  s = {-INFINITY, 0};
  for (int w = 0; w < ROW_THREADS / 32; w++) s.join(parts[0][w], parts[1][w]);
  return s;
}

template <int N> __global__ void cross_entropy_stats_kernel(const __grid_constant__ mt_cross_entropy_stats_args a) {
  int64_t row = blockIdx.x;
  const float *x = row_of<float>(a.logits, row);
  stats s = {-INFINITY, 0};
  int64_t c = (int64_t)threadIdx.x * N;
  for (; c + N <= a.columns; c += ROW_THREADS * N) {
    float v[N];
    load(v, x + c);
    for (int j = 0; j < N; j++) s.add(v[j]);
  }
  for (; c < a.columns; c++) s.add(x[c]); /* the rest is one thread's */
  s = block_join(s);
  if (threadIdx.x > 0) return;
  int64_t label = ((const int32_t *)a.labels.data)[row] - a.start;
  data_of<float>(a.max)[row] = s.max;
  data_of<float>(a.sum)[row] = s.sum;
  data_of<float>(a.target)[row] = label >= 0 && label < a.columns ? x[label] : 0;
}

/* Whether rows start where n elements can be moved at once; the columns need not be
 * a multiple. */
static bool rows_start(const mt_tensor &t, int n) { return starts(t, n) && (t.shape[0] <= 1 || t.stride[0] % n == 0); }

static void cross_entropy_stats(mt_context *ctx, const mt_cross_entropy_stats_args &a, void *) {
  unsigned rows = (unsigned)a.logits.shape[0];
  if (rows == 0) return;
  if (rows_start(a.logits, 4)) MT_LAUNCH(cross_entropy_stats_kernel<4>, rows, ROW_THREADS, 0, stream_of(ctx), a);
  else MT_LAUNCH(cross_entropy_stats_kernel<1>, rows, ROW_THREADS, 0, stream_of(ctx), a);
}

MT_OP(cross_entropy_stats, nullptr)

__global__ void cross_entropy_loss_kernel(const __grid_constant__ mt_cross_entropy_loss_args a) {
  int64_t row = (int64_t)blockIdx.x * SPREAD + threadIdx.x;
  if (row >= a.loss.shape[0]) return;
  data_of<float>(a.loss)[row] = logf(data_of<float>(a.sum)[row]) + data_of<float>(a.max)[row] - data_of<float>(a.target)[row];
}

static void cross_entropy_loss(mt_context *ctx, const mt_cross_entropy_loss_args &a, void *) {
  int64_t rows = a.loss.shape[0];
  if (rows > 0) MT_LAUNCH(cross_entropy_loss_kernel, blocks_for(rows, SPREAD), SPREAD, 0, stream_of(ctx), a);
}

MT_OP(cross_entropy_loss, nullptr)

/* d may be the logits. */
template <typename T, int N> __global__ void cross_entropy_grad_kernel(const __grid_constant__ mt_cross_entropy_grad_args a) {
  cell at = cell_of<N>(a.logits.shape[0], a.logits.shape[1]);
  if (!at.here) return;
  float max = data_of<float>(a.max)[at.row], sum = data_of<float>(a.sum)[at.row], weight = data_of<float>(a.weight)[at.row];
  if (given(a.scale)) weight *= *data_of<float>(a.scale);
  int64_t label = ((const int32_t *)a.labels.data)[at.row] - a.start;
  float x[N];
  load(x, row_of<float>(a.logits, at.row) + at.column);
  for (int j = 0; j < N; j++) {
    int64_t c = at.column + j;
    x[j] = c < a.columns ? (expf(x[j] - max) / sum - (c == label ? 1 : 0)) * weight : 0;
  }
  store(row_of<T>(a.d, at.row) + at.column, x);
}

static void cross_entropy_grad(mt_context *ctx, const mt_cross_entropy_grad_args &a, void *) {
  int64_t n = length(a.logits);
  if (n == 0) return;
  MT_BY_TYPE(a.d.dtype, {
    if (packs(a.d, 4) && packs(a.logits, 4)) MT_LAUNCH((cross_entropy_grad_kernel<T, 4>), spread_blocks(n, 4), SPREAD, 0, stream_of(ctx), a);
    else MT_LAUNCH((cross_entropy_grad_kernel<T, 1>), spread_blocks(n, 1), SPREAD, 0, stream_of(ctx), a);
  })
}

MT_OP(cross_entropy_grad, nullptr)
