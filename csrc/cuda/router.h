/* A token's row of logits, in f64 in shared memory, by one warp: near scores compare
 * as in the oracle, and rows are short. Loops of lanes are over the row's numbers. */
#ifndef MT_ROUTER_H
#define MT_ROUTER_H

#include <cstdio>

#include "op.h"
#include "reduce.h"

enum { WARP = 32, MOST_EXPERTS = 1024 /* whose row fits into 48 KiB */ };

__device__ inline double sigmoid(double x) { return 1 / (1 + exp(-x)); }
__device__ inline double softplus(double x) { return fmax(x, 0.0) + log1p(exp(-fabs(x))); }

/* Score functions that read one logit: the others are softmax, over some or all of them. */
__device__ inline bool scores_alone(int score) { return score == MT_SIGMOID_SCORE || score == MT_SQRT_SOFTPLUS_SCORE; }
__device__ inline double score_of(int score, double x) { return score == MT_SIGMOID_SCORE ? sigmoid(x) : sqrt(softplus(x)); }
__device__ inline double score_slope(int score, double x) {
  return score == MT_SIGMOID_SCORE ? sigmoid(x) * sigmoid(-x) : sigmoid(x) / (2 * sqrt(softplus(x)));
}

const double TINY = 1e-20; /* keeps sums of scores from being divided by zero (Megatron's) */

__device__ inline double warp_max(double x) {
#pragma unroll
  for (int by = 16; by > 0; by /= 2) x = fmax(x, __shfl_xor_sync(ALL_LANES, x, by));
  return x;
}

__device__ inline double warp_dot(const double *x, const double *y, int n) {
  double sum = 0;
  for (int i = threadIdx.x; i < n; i += WARP) sum += x[i] * y[i];
  return warp_sum(sum);
}

/* p = softmax of n numbers; may be in place. The log of the summed exponentials. */
__device__ inline double warp_softmax(double *p, const double *x, int n) {
  double top = -INFINITY, total = 0;
  for (int i = threadIdx.x; i < n; i += WARP) top = fmax(top, x[i]);
  top = warp_max(top);
  for (int i = threadIdx.x; i < n; i += WARP) total += p[i] = exp(x[i] - top);
  total = warp_sum(total);
  for (int i = threadIdx.x; i < n; i += WARP) p[i] /= total;
  __syncwarp();
  return top + log(total);
}

/* p = scores of n logits; their sum. */
__device__ inline double warp_scores(double *p, const double *x, int n, int score) {
  double total = 0;
  for (int i = threadIdx.x; i < n; i += WARP) total += p[i] = score_of(score, x[i]);
  total = warp_sum(total) + TINY;
  __syncwarp();
  return total;
}

/* An expert's part of a token, p of logits x: they add up to 1. What scores were divided by. */
__device__ inline double warp_shares(double *p, const double *x, int n, int score) {
  if (!scores_alone(score)) {
    warp_softmax(p, x, n);
    return 1;
  }
  double total = warp_scores(p, x, n, score);
  for (int i = threadIdx.x; i < n; i += WARP) p[i] /= total;
  __syncwarp();
  return total;
}

/* The number of the highest of n keys that are not taken, ties by number; it is then taken. */
__device__ inline int warp_take(const double *keys, int *taken, int n) {
  double key = 0;
  int best = n;
  auto join = [&](double other, int number) {
    if (number >= n || (best < n && (key > other || (!(other > key) && best < number)))) return;
    key = other, best = number;
  };
  for (int i = threadIdx.x; i < n; i += WARP)
    if (!taken[i]) join(keys[i], i);
#pragma unroll
  for (int by = 16; by > 0; by /= 2) {
    double other = __shfl_xor_sync(ALL_LANES, key, by);
    int number = __shfl_xor_sync(ALL_LANES, best, by);
    join(other, number);
  }
  best = __shfl_sync(ALL_LANES, best, 0); /* of NaN lanes may think differently */
  if (threadIdx.x == 0) taken[best] = 1;
  __syncwarp();
  return best;
}

__device__ inline void warp_clear(int *taken, int n) {
  for (int i = threadIdx.x; i < n; i += WARP) taken[i] = 0;
  __syncwarp();
}

template <typename T> __device__ inline void warp_load(double *x, const T *from, int n) {
  for (int i = threadIdx.x; i < n; i += WARP) x[i] = to_float(from[i]);
  __syncwarp();
}

/* Whether a row of so many experts fits; else says so. */
inline bool fits(mt_context *ctx, const mt_tensor &logits, const char *op) {
  if (last(logits) <= MOST_EXPERTS) return true;
  snprintf(ctx->error, sizeof ctx->error, "%s: %lld experts are too many, because the router supports at most %d on a GPU", op, (long long)last(logits), MOST_EXPERTS);
  return false;
}

#endif
