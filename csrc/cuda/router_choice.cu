/* What may change a router's choice: capacities, and keys by Sinkhorn. */
#include "reduce.h"
#include "spread.h"

namespace {

/* Whether a choice of the same expert goes before: larger weight first, NaN last, ties in
 * their order. */
__device__ inline bool before(float w, int64_t at, float other, int64_t there) {
  if (other > w || (w != w && other == other)) return true;
  if (other < w || (other != other && w == w)) return false;
  return there < at;
}

__global__ void drop_kernel(const __grid_constant__ mt_router_drop_args a, int64_t n) {
  int64_t i = (int64_t)blockIdx.x * SPREAD + threadIdx.x;
  if (i >= n) return;
  const int32_t *experts = data_of<int32_t>(a.experts);
  const float *weights = data_of<float>(a.weights);
  int32_t mine = experts[i];
  int64_t rank = 0, end = a.by_position ? i : n;
  for (int64_t j = 0; mine >= 0 && j < end; j++) rank += experts[j] == mine && (a.by_position || before(weights[i], i, weights[j], j));
  data_of<int32_t>(a.kept)[i] = rank < a.capacity ? mine : -1;
}

/* One block: rows' factors, then columns', until these stay. cost [t,E]; a factor for each
 * row, and for each column. */
template <typename T> __global__ void sinkhorn_kernel(const __grid_constant__ mt_router_sinkhorn_args a, double *cost) {
  const double small = 1e-8, tolerance = 1e-4;
  int64_t t = a.logits.shape[0], n = a.logits.shape[1];
  double *rows = cost + t * n, *columns = rows + t, change = INFINITY;
  for (int64_t i = threadIdx.x; i < t * n; i += SPREAD) cost[i] = exp((double)to_float(row_of<T>(a.logits, i / n)[i % n]));
  for (int64_t e = threadIdx.x; e < n; e += SPREAD) columns[e] = 1;
  __syncthreads();
  while (change > tolerance) {
    for (int64_t r = threadIdx.x; r < t; r += SPREAD) {
      double total = 0;
      for (int64_t e = 0; e < n; e++) total += columns[e] * cost[r * n + e];
      rows[r] = 1 / (double)t / (total + small);
    }
    __syncthreads();
    change = 0;
    for (int64_t e = threadIdx.x; e < n; e += SPREAD) {
      double total = 0;
      for (int64_t r = 0; r < t; r++) total += rows[r] * cost[r * n + e];
      double now = 1 / (double)n / (total + small);
      change += fabs(now - columns[e]) / (double)n;
      columns[e] = now;
    }
    change = block_sum(change);
  }
  for (int64_t i = threadIdx.x; i < t * n; i += SPREAD) row_of<float>(a.keys, i / n)[i % n] = (float)(cost[i] * rows[i / n] * columns[i % n]);
}

} // namespace

static void router_drop(mt_context *ctx, const mt_router_drop_args &a, void *) {
  int64_t n = length(a.experts);
  if (n > 0) MT_LAUNCH(drop_kernel, blocks_for(n, SPREAD), SPREAD, 0, stream_of(ctx), a, n);
}

static void router_sinkhorn(mt_context *ctx, const mt_router_sinkhorn_args &a, void *scratch) {
  if (length(a.logits) == 0) return;
  MT_BY_TYPE(a.logits.dtype, MT_LAUNCH((sinkhorn_kernel<T>), 1, SPREAD, 0, stream_of(ctx), a, static_cast<double *>(scratch)))
}

static int64_t sinkhorn_bytes(const void *args) {
  const mt_tensor &x = static_cast<const mt_router_sinkhorn_args *>(args)->logits;
  return (length(x) + x.shape[0] + x.shape[1]) * (int64_t)sizeof(double);
}

MT_OP(router_drop, nullptr)
MT_OP(router_sinkhorn, sinkhorn_bytes)
