/* The experts of every token and their weights, and the weights' gradients: a warp a token. */
#include "router.h"

namespace {

/* One row at work: E numbers each, k in w and dw. */
struct row {
  double *x, *keys, *p, *w, *dw;
  int *taken, *list;
  int experts, k;

  __device__ row(double *at, int experts, int k)
      : x(at), keys(at + experts), p(at + 2 * experts), w(at + 3 * experts), dw(w + k), taken(reinterpret_cast<int *>(dw + k)), list(taken + experts), experts(experts), k(k) {}
  static int bytes(int64_t experts, int64_t k) { return (int)((3 * experts + 2 * k) * sizeof(double) + (experts + k) * sizeof(int)); }
};

/* Makes −∞ of keys outside the groups with the highest sums of their best group_best. */
__device__ void keep_best_groups(const row &r, const mt_router_rule &rule) {
  if (rule.groups == 0) return;
  int size = r.experts / rule.groups, top = rule.group_best;
  for (int g = 0; g < rule.groups; g++) {
    double sum = 0;
    warp_clear(r.taken, size);
    for (int i = 0; i < top; i++) sum += r.keys[g * size + warp_take(r.keys + g * size, r.taken, size)];
    if (threadIdx.x == 0) r.p[g] = sum;
  }
  warp_clear(r.taken, rule.groups);
  for (int i = 0; i < rule.group_top_k; i++) warp_take(r.p, r.taken, rule.groups);
  for (int e = threadIdx.x; e < rule.groups * size; e += WARP)
    if (!r.taken[e / size]) r.keys[e] = -INFINITY;
  __syncwarp();
}

/* The weights of the chosen experts, before scaling; what their scores are divided by. */
__device__ double weigh(const row &r, int score) {
  double total = 0;
  if (score == MT_SOFTMAX_OF_ALL) warp_softmax(r.p, r.x, r.experts);
  for (int j = threadIdx.x; j < r.k; j += WARP) {
    int e = r.list[j];
    total += r.w[j] = score == MT_SOFTMAX_OF_ALL ? r.p[e] : scores_alone(score) ? score_of(score, r.x[e]) : r.x[e];
  }
  __syncwarp();
  if (score == MT_SOFTMAX_OF_CHOSEN) warp_softmax(r.w, r.w, r.k);
  if (!scores_alone(score)) return 1;
  total = warp_sum(total) + TINY;
  for (int j = threadIdx.x; r.k > 1 && j < r.k; j += WARP) r.w[j] /= total;
  __syncwarp();
  return total;
}

template <typename T> __global__ void forward_kernel(const __grid_constant__ mt_router_forward_args a) {
  MT_DYN_SHARED(double, shared);
  row r(shared, (int)last(a.logits), (int)last(a.weights));
  int64_t token = blockIdx.x;
  warp_load(r.x, row_of<T>(a.logits, token), r.experts);
  /* A softmax over all keeps the order of logits, but their sums order otherwise. */
  bool shares = a.rule.score == MT_SOFTMAX_OF_ALL && (a.rule.groups > 0 || given(a.bias));
  if (shares) warp_softmax(r.p, r.x, r.experts);
  for (int e = threadIdx.x; e < r.experts; e += WARP) {
    double key = given(a.keys) ? row_of<float>(a.keys, token)[e] : shares ? r.p[e] : scores_alone(a.rule.score) ? score_of(a.rule.score, r.x[e]) : r.x[e];
    r.keys[e] = given(a.bias) ? key + data_of<float>(a.bias)[e] : key;
  }
  __syncwarp();
  keep_best_groups(r, a.rule);
  warp_clear(r.taken, r.experts);
  for (int j = 0; j < r.k; j++) {
    int e = warp_take(r.keys, r.taken, r.experts);
    if (threadIdx.x == 0) r.list[j] = e;
  }
  __syncwarp();
  weigh(r, a.rule.score);
  for (int j = threadIdx.x; j < r.k; j += WARP) {
    data_of<float>(a.weights)[token * r.k + j] = (float)(r.w[j] * a.rule.scaling);
    data_of<int32_t>(a.experts)[token * r.k + j] = r.list[j];
  }
}

template <typename T> __global__ void backward_kernel(const __grid_constant__ mt_router_backward_args a) {
  MT_DYN_SHARED(double, shared);
  row r(shared, (int)last(a.logits), (int)last(a.experts));
  int64_t token = blockIdx.x;
  int score = a.rule.score;
  float *dx = row_of<float>(a.dlogits, token);
  warp_load(r.x, row_of<T>(a.logits, token), r.experts);
  for (int j = threadIdx.x; j < r.k; j += WARP) {
    r.list[j] = data_of<int32_t>(a.experts)[token * r.k + j];
    r.dw[j] = (double)data_of<float>(a.dweights)[token * r.k + j] * a.rule.scaling;
  }
  __syncwarp();
  double total = weigh(r, score), inner = warp_dot(r.w, r.dw, r.k);
  for (int e = threadIdx.x; e < r.experts; e += WARP) r.keys[e] = score == MT_SOFTMAX_OF_ALL ? -r.p[e] * inner : 0;
  __syncwarp();
  for (int j = threadIdx.x; j < r.k; j += WARP) {
    double d = r.dw[j];
    if (score == MT_SOFTMAX_OF_CHOSEN) d = r.w[j] * (d - inner);
    else if (score == MT_SOFTMAX_OF_ALL) d *= r.w[j];
    else d = (r.k > 1 ? (d - inner) / total : d) * score_slope(score, r.x[r.list[j]]);
    r.keys[r.list[j]] += d; /* choices of a token differ */
  }
  __syncwarp();
  for (int e = threadIdx.x; e < r.experts; e += WARP) dx[e] = (float)r.keys[e];
}

} // namespace

static void router_forward(mt_context *ctx, const mt_router_forward_args &a, void *) {
  if (length(a.logits) == 0 || !fits(ctx, a.logits, "router_forward")) return;
  int bytes = row::bytes(last(a.logits), last(a.weights));
  MT_BY_TYPE(a.logits.dtype, MT_LAUNCH((forward_kernel<T>), (unsigned)a.logits.shape[0], WARP, bytes, stream_of(ctx), a))
}

static void router_backward(mt_context *ctx, const mt_router_backward_args &a, void *) {
  if (length(a.logits) == 0 || !fits(ctx, a.logits, "router_backward")) return;
  int bytes = row::bytes(last(a.logits), last(a.experts));
  MT_BY_TYPE(a.logits.dtype, MT_LAUNCH((backward_kernel<T>), (unsigned)a.logits.shape[0], WARP, bytes, stream_of(ctx), a))
}

MT_KNOWN(router_score, MT_BIT(MT_SOFTMAX_OF_CHOSEN) | MT_BIT(MT_SOFTMAX_OF_ALL) | MT_BIT(MT_SIGMOID_SCORE) | MT_BIT(MT_SQRT_SOFTPLUS_SCORE))
MT_OP(router_forward, nullptr)
MT_OP(router_backward, nullptr)
