/* Logits' exponentials, scaled until tokens have equal sums, and experts too. */
#ifndef MT_ISA
#include "router.h"
#include "tile.h"

static int64_t one_tile(const void *args, int32_t phase) { return phase == 0 && mt_len(&((const mt_router_sinkhorn_args *)args)->logits) > 0; }

/* The exponentials [t,E], a factor for each row, and for each column a factor and a sum. */
static int64_t scratch_bytes(const void *args) {
  const mt_tensor *x = &((const mt_router_sinkhorn_args *)args)->logits;
  return (mt_len(x) + x->shape[0] + 2 * x->shape[1]) * (int64_t)sizeof(double);
}

/* Sets the rows' factors, then the columns'; the mean change of these. */
static double rescale(const double *cost, double *rows, double *columns, double *sums, int64_t t, int64_t n) {
  const double small = 1e-8;
  double change = 0;
  for (int64_t e = 0; e < n; e++) sums[e] = 0;
  for (int64_t r = 0; r < t; r++) {
    rows[r] = 1 / (double)t / (mt_dot(columns, cost + r * n, n) + small);
    for (int64_t e = 0; e < n; e++) sums[e] += rows[r] * cost[r * n + e];
  }
  for (int64_t e = 0; e < n; e++) {
    double now = 1 / (double)n / (sums[e] + small);
    change += fabs(now - columns[e]) / (double)n;
    columns[e] = now;
  }
  return change;
}

#define MT_KERNELS "router_sinkhorn.c"
#include "isa.h"

MT_OP(router_sinkhorn, one_tile, scratch_bytes)
#else
#include "rows.h"

static int32_t K(router_sinkhorn)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_router_sinkhorn_args *a = args;
  int64_t t = a->logits.shape[0], n = a->logits.shape[1];
  double *cost = scratch, *rows = cost + t * n, *columns = rows + t, *sums = columns + n;
  for (int64_t r = 0; r < t; r++) v_widen_row(cost + r * n, &a->logits, r);
  for (int64_t i = 0; i < t * n; i++) cost[i] = mt_exp(cost[i]);
  for (int64_t e = 0; e < n; e++) columns[e] = 1;
  while (rescale(cost, rows, columns, sums, t, n) > 1e-4) {}
  for (int64_t r = 0; r < t; r++) {
    for (int64_t e = 0; e < n; e++) cost[r * n + e] *= rows[r] * columns[e];
    v_narrow_row(&a->keys, r, cost + r * n, 0);
  }
  return 0;
}
#endif
