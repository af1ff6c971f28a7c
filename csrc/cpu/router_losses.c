/* What a router's own losses are made of, and their gradients. */
#ifndef MT_ISA
#include <string.h>

#include "router.h"
#include "tile.h"

enum { COST = 16, PART_COST = 4 }; /* of an element: parts of sums are larger, there are fewer to add */

/* An expert's part of a token, p of logits x: they add up to 1. */
static double shares(double *p, const double *x, int64_t experts, int32_t score) {
  double total = MT_TINY;
  if (!mt_scores_alone(score)) {
    mt_softmax(p, x, experts);
    return 1;
  }
  for (int64_t e = 0; e < experts; e++) total += p[e] = mt_score(score, x[e]);
  for (int64_t e = 0; e < experts; e++) p[e] /= total;
  return total;
}

/* Makes of logits x the gradient of Σ g·p. */
static void unshare(double *x, double *p, const double *g, int64_t experts, int32_t score) {
  double total = shares(p, x, experts, score), inner = mt_dot(p, g, experts);
  for (int64_t e = 0; e < experts; e++) x[e] = mt_scores_alone(score) ? (g[e] - inner) / total * mt_score_slope(score, x[e]) : p[e] * (g[e] - inner);
}

static int64_t parts_of(const mt_router_balance_args *a) { return mt_max(1, mt_part_count(a->logits.shape[0], PART_COST * a->logits.shape[1])); }

/* Sums come in parts, which a second phase adds; a gradient is made in one. */
static int64_t balance_tiles(const void *args, int32_t phase) {
  const mt_router_balance_args *a = args;
  if (mt_given(&a->dlogits)) return phase == 0 ? mt_row_tiles(a->logits.shape[0], COST * a->logits.shape[1]) : 0;
  return phase == 0 ? parts_of(a) : phase == 1;
}

/* Of a part: probabilities and counts [2, samples, E]. */
static int64_t part_length(const mt_router_balance_args *a) { return 2 * a->samples * a->logits.shape[1]; }

static int64_t balance_scratch(const void *args) {
  const mt_router_balance_args *a = args;
  return mt_given(&a->dlogits) ? 0 : parts_of(a) * part_length(a) * (int64_t)sizeof(double);
}

static void add_parts(const mt_router_balance_args *a, const double *parts) {
  int64_t n = part_length(a);
  for (int64_t i = 0; i < n; i++) {
    double sum = 0;
    for (int64_t part = 0; part < parts_of(a); part++) sum += parts[part * n + i];
    if (i >= n / 2) ((float *)a->counts.data)[i - n / 2] = (float)sum;
    else if (a->bits > 0) ((double *)a->probs.data)[i] = sum;
    else ((float *)a->probs.data)[i] = (float)sum;
  }
}

static int64_t z_tiles(const void *args, int32_t phase) {
  const mt_router_z_args *a = args;
  return phase == 0 ? mt_row_tiles(a->logits.shape[0], COST * a->logits.shape[1]) : 0;
}

static double log_sum_exp(const double *x, int64_t n) {
  double top = x[0], total = 0;
  for (int64_t i = 1; i < n; i++) top = fmax(top, x[i]);
  for (int64_t i = 0; i < n; i++) total += mt_exp(x[i] - top);
  return top + mt_log(total);
}

#define MT_KERNELS "router_losses.c"
#include "isa.h"

MT_OP(router_balance, balance_tiles, balance_scratch)
MT_OP(router_z, z_tiles, NULL)
#else
#include "exact.h"
#include "rows.h"

static void K(sum_part)(const mt_router_balance_args *a, double *sums, mt_range rows, double *x) {
  int64_t experts = mt_last(&a->logits);
  double *p = x + experts, magic = a->bits > 0 ? v_magic(ldexp(1, (int)-a->bits))[0] : 0;
  int32_t *top = (int32_t *)(p + experts);
  memset(sums, 0, part_length(a) * sizeof *sums);
  for (int64_t i = rows.from; i < rows.to; i++) {
    double *probs = sums + i % a->samples * experts, *counts = probs + a->samples * experts;
    v_widen_row(x, &a->logits, i);
    shares(p, x, experts, a->score);
    mt_best(top, a->k, p, experts);
    for (int64_t e = 0; e < experts; e++) probs[e] += a->bits > 0 ? (p[e] + magic) - magic : p[e];
    for (int64_t j = 0; j < a->k; j++) counts[top[j]]++;
  }
}

static void K(balance_gradient)(const mt_router_balance_args *a, mt_range rows, double *x) {
  int64_t experts = mt_last(&a->logits);
  double factor = a->coefficient * *(const float *)a->scale.data, *p = x + experts, *g = p + experts;
  for (int64_t i = rows.from; i < rows.to; i++) {
    const float *counts = mt_row(&a->counts, i % a->samples);
    for (int64_t e = 0; e < experts; e++) g[e] = counts[e] * factor;
    v_widen_row(x, &a->logits, i);
    unshare(x, p, g, experts, a->score);
    v_narrow_row(&a->dlogits, i, x, 1);
  }
}

static int32_t K(router_balance)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_router_balance_args *a = args;
  int64_t rows = a->logits.shape[0], experts = a->logits.shape[1];
  if (mt_given(&a->dlogits)) K(balance_gradient)(a, mt_row_range(rows, COST * experts, tile), ctx->workspace);
  else if (phase == 1) add_parts(a, scratch);
  else K(sum_part)(a, (double *)scratch + tile * part_length(a), mt_part_range(rows, PART_COST * experts, tile), ctx->workspace);
  return 0;
}

static int32_t K(router_z)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_router_z_args *a = args;
  int64_t experts = mt_last(&a->logits);
  mt_range rows = mt_row_range(a->logits.shape[0], COST * experts, tile);
  double *x = ctx->workspace;
  for (int64_t i = rows.from; i < rows.to; i++) {
    v_widen_row(x, &a->logits, i);
    double z = log_sum_exp(x, experts);
    if (!mt_given(&a->dlogits)) {
      ((float *)a->squares.data)[i] = (float)(z * z);
      continue;
    }
    double factor = 2 * z * a->coefficient * *(const float *)a->scale.data;
    for (int64_t e = 0; e < experts; e++) x[e] = mt_exp(x[e] - z) * factor;
    v_narrow_row(&a->dlogits, i, x, 1);
  }
  return 0;
}
#endif
