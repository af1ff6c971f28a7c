/* A token's row of logits, in f64: near scores compare as in the oracle, and
 * rows are short. E: the number of experts. */
#ifndef MT_ROUTER_H
#define MT_ROUTER_H

#include <math.h>

#include "cpu.h"
#include "functions.h"

static inline double mt_sigmoid(double x) { return 1 / (1 + mt_exp(-x)); }
static inline double mt_softplus(double x) { return fmax(x, 0) + mt_log1p(mt_exp(-fabs(x))); }

/* Score functions that read one logit: the others are softmax, over some or all of them. */
static inline int mt_scores_alone(int32_t score) { return score == MT_SIGMOID_SCORE || score == MT_SQRT_SOFTPLUS_SCORE; }
static inline double mt_score(int32_t score, double x) { return score == MT_SIGMOID_SCORE ? mt_sigmoid(x) : sqrt(mt_softplus(x)); }
static inline double mt_score_slope(int32_t score, double x) {
  return score == MT_SIGMOID_SCORE ? mt_sigmoid(x) * mt_sigmoid(-x) : mt_sigmoid(x) / (2 * sqrt(mt_softplus(x)));
}

#define MT_TINY 1e-20 /* keeps sums of scores from being divided by zero (Megatron's) */

/* The numbers of the k highest of n keys, highest first; ties by number. */
static inline void mt_best(int32_t *out, int64_t k, const double *keys, int64_t n) {
  for (int64_t i = 0, kept = 0; i < n; i++) {
    if (kept == k && !(keys[i] > keys[out[k - 1]])) continue;
    int64_t at = kept < k ? kept++ : k - 1;
    for (; at > 0 && keys[i] > keys[out[at - 1]]; at--) out[at] = out[at - 1];
    out[at] = (int32_t)i;
  }
}

/* p = softmax of n values; may be in place. */
static inline void mt_softmax(double *p, const double *x, int64_t n) {
  double top = x[0], total = 0;
  for (int64_t i = 1; i < n; i++) top = fmax(top, x[i]);
  for (int64_t i = 0; i < n; i++) total += p[i] = mt_exp(x[i] - top);
  for (int64_t i = 0; i < n; i++) p[i] /= total;
}

static inline double mt_dot(const double *x, const double *y, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += x[i] * y[i];
  return sum;
}

#endif
