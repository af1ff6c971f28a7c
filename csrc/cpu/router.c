/* The experts of every token and their weights, and the weights' gradients. */
#ifndef MT_ISA
#include <string.h>

#include "router.h"
#include "tile.h"

enum { COST = 16 }; /* what an exponential costs, in elements that are moved */

static int64_t forward_tiles(const void *args, int32_t phase) {
  const mt_tensor *x = &((const mt_router_forward_args *)args)->logits;
  return phase == 0 ? mt_row_tiles(x->shape[0], COST * x->shape[1]) : 0;
}

static int64_t backward_tiles(const void *args, int32_t phase) {
  const mt_tensor *x = &((const mt_router_backward_args *)args)->logits;
  return phase == 0 ? mt_row_tiles(x->shape[0], COST * x->shape[1]) : 0;
}

static mt_range rows_of(const mt_tensor *x, int64_t tile) { return mt_row_range(x->shape[0], COST * x->shape[1], tile); }

const uint32_t mt_cpu_known_router_score = MT_BIT(MT_SOFTMAX_OF_CHOSEN) | MT_BIT(MT_SOFTMAX_OF_ALL) | MT_BIT(MT_SIGMOID_SCORE) | MT_BIT(MT_SQRT_SOFTPLUS_SCORE);

/* One row at work: E numbers each, k in w and dw. */
typedef struct {
  const mt_router_rule *rule;
  int64_t experts, k;
  double *x, *keys, *p, *w, *dw;
  int32_t *list; /* space for numbers of groups and experts */
} row;

static row row_in(void *workspace, const mt_router_rule *rule, int64_t experts, int64_t k) {
  double *at = workspace;
  return (row){rule, experts, k, at, at + experts, at + 2 * experts, at + 3 * experts, at + 3 * experts + k, (int32_t *)(at + 3 * experts + 2 * k)};
}

/* Makes −∞ of keys outside the groups with the highest sums of their best group_best. */
static void keep_best_groups(row *r) {
  int64_t groups = r->rule->groups, kept = r->rule->group_top_k;
  if (groups == 0) return;
  int64_t size = r->experts / groups, top = r->rule->group_best;
  double *sums = r->p;
  for (int64_t g = 0; g < groups; g++) {
    double *group = r->keys + g * size;
    mt_best(r->list, top, group, size);
    sums[g] = 0;
    for (int64_t i = 0; i < top; i++) sums[g] += group[r->list[i]];
  }
  mt_best(r->list, kept, sums, groups);
  for (int64_t i = 0; i < kept; i++) sums[r->list[i]] = NAN; /* marks the winners */
  for (int64_t e = 0; e < groups * size; e++)
    if (!isnan(sums[e / size])) r->keys[e] = -INFINITY;
}

/* The weights of the chosen experts, before scaling; what their scores are divided by. */
static double weigh(row *r, const int32_t *chosen) {
  double total = MT_TINY;
  switch (r->rule->score) {
  case MT_SOFTMAX_OF_CHOSEN:
    for (int64_t j = 0; j < r->k; j++) r->w[j] = r->x[chosen[j]];
    mt_softmax(r->w, r->w, r->k);
    return 1;
  case MT_SOFTMAX_OF_ALL:
    mt_softmax(r->p, r->x, r->experts);
    for (int64_t j = 0; j < r->k; j++) r->w[j] = r->p[chosen[j]];
    return 1;
  }
  for (int64_t j = 0; j < r->k; j++) total += r->w[j] = mt_score(r->rule->score, r->x[chosen[j]]);
  for (int64_t j = 0; j < r->k; j++)
    if (r->k > 1) r->w[j] /= total;
  return total;
}

/* Makes of r->dw, the gradient of the weights, that of the logits, in keys. */
static void unweigh(row *r, const int32_t *chosen) {
  for (int64_t j = 0; j < r->k; j++) r->dw[j] *= r->rule->scaling;
  double total = weigh(r, chosen), inner = mt_dot(r->w, r->dw, r->k), *dx = r->keys;
  memset(dx, 0, r->experts * sizeof *dx);
  if (r->rule->score == MT_SOFTMAX_OF_ALL)
    for (int64_t e = 0; e < r->experts; e++) dx[e] = -r->p[e] * inner;
  for (int64_t j = 0; j < r->k; j++) {
    double d = r->dw[j];
    switch (r->rule->score) {
    case MT_SOFTMAX_OF_CHOSEN: d = r->w[j] * (d - inner); break;
    case MT_SOFTMAX_OF_ALL: d *= r->w[j]; break;
    default: d = (r->k > 1 ? (d - inner) / total : d) * mt_score_slope(r->rule->score, r->x[chosen[j]]);
    }
    dx[chosen[j]] += d;
  }
}

#define MT_KERNELS "router.c"
#include "isa.h"

MT_OP(router_forward, forward_tiles, NULL)
MT_OP(router_backward, backward_tiles, NULL)
#else
#include "rows.h"

V void K(keys_of)(const mt_router_forward_args *a, row *r, int64_t at) {
  if (mt_given(&a->keys)) v_widen_row(r->keys, &a->keys, at);
  else if (a->rule.score == MT_SOFTMAX_OF_ALL && (a->rule.groups > 0 || mt_given(&a->bias)))
    mt_softmax(r->keys, r->x, r->experts); /* keeps the order of logits, but their sums order otherwise */
  else
    for (int64_t e = 0; e < r->experts; e++) r->keys[e] = mt_scores_alone(a->rule.score) ? mt_score(a->rule.score, r->x[e]) : r->x[e];
  if (!mt_given(&a->bias)) return;
  for (int64_t e = 0; e < r->experts; e++) r->keys[e] += ((const float *)a->bias.data)[e];
}

static int32_t K(router_forward)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_router_forward_args *a = args;
  mt_range rows = rows_of(&a->logits, tile);
  row r = row_in(ctx->workspace, &a->rule, mt_last(&a->logits), mt_last(&a->weights));
  for (int64_t i = rows.from; i < rows.to; i++) {
    int32_t *chosen = (int32_t *)a->experts.data + i * r.k;
    v_widen_row(r.x, &a->logits, i);
    K(keys_of)(a, &r, i);
    keep_best_groups(&r);
    mt_best(chosen, r.k, r.keys, r.experts);
    weigh(&r, chosen);
    for (int64_t j = 0; j < r.k; j++) r.w[j] *= a->rule.scaling;
    v_narrow_row(&a->weights, i, r.w, 0);
  }
  return 0;
}

static int32_t K(router_backward)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_router_backward_args *a = args;
  mt_range rows = rows_of(&a->logits, tile);
  row r = row_in(ctx->workspace, &a->rule, mt_last(&a->logits), mt_last(&a->experts));
  for (int64_t i = rows.from; i < rows.to; i++) {
    v_widen_row(r.x, &a->logits, i);
    v_widen_row(r.dw, &a->dweights, i);
    unweigh(&r, (const int32_t *)a->experts.data + i * r.k);
    v_narrow_row(&a->dlogits, i, r.keys, 0);
  }
  return 0;
}
#endif
