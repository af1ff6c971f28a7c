/* Cross entropy over rows of logits, which may be a rank's part of the
 * vocabulary. Statistics take one pass over memory: block by block the maximum,
 * then, from cache, the exponentials; the sum so far is rescaled when the maximum
 * rises. */
#ifndef MT_ISA
enum { BLOCK = 1024 }; /* columns; a multiple of the lanes */

#define MT_KERNELS "cross_entropy.c"
#include "functions.h"
#include "isa.h"

static int64_t stats_tiles(const void *args, int32_t phase) {
  const mt_cross_entropy_stats_args *a = args;
  return phase == 0 ? mt_row_tiles(a->logits.shape[0], a->logits.shape[1]) : 0;
}

static int64_t loss_tiles(const void *args, int32_t phase) {
  const mt_cross_entropy_loss_args *a = args;
  return phase == 0 ? mt_flat_tiles(mt_len(&a->loss)) : 0;
}

static int64_t grad_tiles(const void *args, int32_t phase) {
  const mt_cross_entropy_grad_args *a = args;
  return phase == 0 ? mt_row_tiles(a->logits.shape[0], a->logits.shape[1]) : 0;
}

MT_OP(cross_entropy_stats, stats_tiles, NULL)
MT_OP(cross_entropy_loss, loss_tiles, NULL)
/* The exponent of AVX-512's v_exp is applied with one rounding, those of the other sets in two steps of which one rounds. */
MT_OP_OF_ANY_WIDTH(cross_entropy_grad, grad_tiles, NULL)
#else

/* The largest of n values, -inf of none. */
V float K(largest)(const float *x, int64_t n) {
  vf best = v_set(-INFINITY);
  int64_t whole = n - n % LANES;
  for (int64_t i = 0; i < whole; i += LANES) best = v_max(v_load(x, MT_F32, i), best);
  float top = v_largest(best);
  for (int64_t i = whole; i < n; i++) top = x[i] > top ? x[i] : top;
  return top;
}

/* Σ exp(x - max), while the next block is on its way from memory. */
V float K(sum_exp)(const float *x, int64_t n, float max) {
  vf sum = {0};
  int64_t whole = n - n % LANES;
  for (int64_t i = 0; i < whole; i += LANES) {
    __builtin_prefetch(x + i + BLOCK);
    sum += v_exp(v_load(x, MT_F32, i) - max);
  }
  float total = v_sum(sum);
  if (whole < n) {
    vf e = v_exp(v_load_n(x, MT_F32, whole, n - whole) - max);
    for (int64_t j = 0; j < n - whole; j++) total += e[j];
  }
  return total;
}

V void K(stats_row)(const mt_cross_entropy_stats_args *a, int64_t row) {
  const float *x = mt_row(&a->logits, row);
  int64_t label = ((const int32_t *)a->labels.data)[row] - a->start;
  float max = -INFINITY;
  double sum = 0;
  for (int64_t i = 0; i < a->columns; i += BLOCK) {
    int64_t n = mt_min(BLOCK, a->columns - i);
    float top = K(largest)(x + i, n);
    if (top > max) {
      sum *= mt_exp((double)max - top);
      max = top;
    }
    sum += K(sum_exp)(x + i, n, max);
  }
  ((float *)a->max.data)[row] = max;
  ((float *)a->sum.data)[row] = (float)sum;
  ((float *)a->target.data)[row] = label >= 0 && label < a->columns ? x[label] : 0;
}

static int32_t K(cross_entropy_stats)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_cross_entropy_stats_args *a = args;
  mt_range r = mt_row_range(a->logits.shape[0], a->logits.shape[1], tile);
  for (int64_t row = r.from; row < r.to; row++) K(stats_row)(a, row);
  return 0;
}

static int32_t K(cross_entropy_loss)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_cross_entropy_loss_args *a = args;
  mt_range r = mt_flat_range(mt_len(&a->loss), tile);
  const float *max = a->max.data, *sum = a->sum.data, *target = a->target.data;
  for (int64_t i = r.from; i < r.to; i++) ((float *)a->loss.data)[i] = (float)(mt_log(sum[i]) + max[i] - target[i]);
  return 0;
}

V void K(grad_row)(const mt_cross_entropy_grad_args *a, int T, int64_t row) {
  const float *x = mt_row(&a->logits, row);
  void *d = mt_row(&a->d, row);
  float max = ((const float *)a->max.data)[row], sum = ((const float *)a->sum.data)[row];
  float weight = ((const float *)a->weight.data)[row] * (mt_given(&a->scale) ? *(const float *)a->scale.data : 1);
  int64_t columns = a->columns, label = ((const int32_t *)a->labels.data)[row] - a->start;
  int here = label >= 0 && label < columns;
  float target = here ? x[label] : 0, factor = weight / sum; /* read before d, which may be x, is written */
  V_EACH(columns, i, m, v_store_n(d, T, i, m, v_exp(v_load_n(x, MT_F32, i, m) - max) * factor););
  int64_t padding = a->logits.shape[1] - columns;
  if (padding > 0) memset((char *)d + columns * mt_element(T), 0, padding * mt_element(T));
  if (here) v_store_n(d, T, label, 1, v_set(((float)mt_exp(target - max) / sum - 1) * weight));
}

static int32_t K(cross_entropy_grad)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_cross_entropy_grad_args *a = args;
  mt_range r = mt_row_range(a->logits.shape[0], a->logits.shape[1], tile);
  V_BY_DTYPE(a->d.dtype, for (int64_t row = r.from; row < r.to; row++) K(grad_row)(a, T, row));
  return 0;
}
#endif
