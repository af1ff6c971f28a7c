/* LayerNorm and RMSNorm. A row is read twice, the second time from cache; forward
 * sums are f64. Backward adds the residual's gradient on its way, and sums
 * the weights' gradients a tile of rows at a time in scratch before a second phase
 * combines the tiles in their order. */
#ifndef MT_ISA
#define MT_KERNELS "norm.c"
#include "cpu.h"
#include "tile.h"

/* The weights' gradients are sums of each leaf, or of all rows, by itself. */
static int64_t backward_leaves(const mt_norm_backward_args *a) { return a->chunk ? a->x.shape[0] / a->chunk : 1; }
static int64_t backward_rows(const mt_norm_backward_args *a) { return a->chunk ? a->chunk : mt_rows(&a->x); }

#include "isa.h"

static int64_t forward_tiles(const void *args, int32_t phase) {
  const mt_norm_forward_args *a = args;
  return phase == 0 ? mt_row_tiles(mt_rows(&a->x), mt_last(&a->x)) : 0;
}

static int64_t backward_tiles(const void *args, int32_t phase) {
  const mt_norm_backward_args *a = args;
  return backward_leaves(a) * mt_part_tiles(backward_rows(a), mt_last(&a->x), phase);
}

static int64_t backward_scratch(const void *args) {
  const mt_norm_backward_args *a = args;
  int64_t h = mt_last(&a->x);
  return backward_leaves(a) * mt_part_count(backward_rows(a), h) * 2 * h * (int64_t)sizeof(float);
}

const uint32_t mt_cpu_known_norm_kind = MT_BIT(MT_LAYER_NORM_KIND) | MT_BIT(MT_RMS_NORM_KIND);

MT_OP(norm_forward, forward_tiles, NULL)
MT_OP(norm_backward, backward_tiles, backward_scratch)
#else
#include "parts.h"

/* Mean (0 for RMSNorm) and 1/√(variance+eps) of a row, from f64 sums of x and
 * x², whose difference is good unless the mean is a million deviations. */
V float K(row_stats)(const void *x, int T, int64_t h, int rms, float eps, float *mean) {
  vd s0 = {0}, s1 = {0}, q0 = {0}, q1 = {0};
  V_EACH(h, i, m,
    vf v = v_load_n(x, T, i, m);
    vd lo = v_lo(v);
    vd hi = v_hi(v);
    s0 += lo;
    s1 += hi;
    q0 = v_add_product(q0, lo, lo);
    q1 = v_add_product(q1, hi, hi););
  double mu = rms ? 0 : v_sum_d(s0 + s1) / h, variance = v_sum_d(q0 + q1) / h - mu * mu;
  *mean = (float)mu;
  return (float)(1 / sqrt((variance < 0 ? 0 : variance) + eps));
}

V void K(forward_row)(const mt_norm_forward_args *a, int T, int64_t row) {
  int64_t h = mt_last(&a->x);
  const void *x = mt_row(&a->x, row), *gamma = a->gamma.data, *beta = a->beta.data;
  void *y = mt_row(&a->y, row);
  float mean, one = a->one_plus ? 1 : 0, rstd = K(row_stats)(x, T, h, a->kind == MT_RMS_NORM_KIND, a->eps, &mean);
  ((float *)a->rstd.data)[row] = rstd;
  if (mt_given(&a->mean)) ((float *)a->mean.data)[row] = mean;
  if (mt_given(&a->beta))
    V_EACH(h, i, m, v_store_n(y, T, i, m, v_mad((v_load_n(x, T, i, m) - mean) * rstd, v_load_n(gamma, T, i, m) + one, v_load_n(beta, T, i, m))););
  else
    V_EACH(h, i, m, v_store_n(y, T, i, m, (v_load_n(x, T, i, m) - mean) * rstd * (v_load_n(gamma, T, i, m) + one)););
}

static int32_t K(norm_forward)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_norm_forward_args *a = args;
  mt_range r = mt_row_range(mt_rows(&a->x), mt_last(&a->x), tile);
  V_BY_DTYPE(a->x.dtype, for (int64_t row = r.from; row < r.to; row++) K(forward_row)(a, T, row));
  return 0;
}

/* With x̂ = (x-mean)·rstd and g = dy·gamma: dx = rstd·(g - mean g - x̂·mean(g·x̂)),
 * without the first mean for RMSNorm. dgamma += dy·x̂, dbeta += dy. */
V void K(backward_row)(const mt_norm_backward_args *a, int T, int64_t row, float *dgamma, float *dbeta) {
  int64_t h = mt_last(&a->x);
  const void *x = mt_row(&a->x, row), *dy = mt_row(&a->dy, row), *gamma = a->gamma.data;
  const void *residual = mt_given(&a->residual) ? mt_row(&a->residual, row) : NULL;
  void *dx = mt_row(&a->dx, row);
  int rms = a->kind == MT_RMS_NORM_KIND;
  float rstd = ((const float *)a->rstd.data)[row * a->rstd.stride[0]], mean = rms ? 0 : ((const float *)a->mean.data)[row * a->mean.stride[0]], one = a->one_plus ? 1 : 0;
  vf sumG = {0}, sumP = {0}; /* h/LANES values a lane */
  /* beyond the end dy is 0, and so are g and g·x̂ */
  V_EACH(h, i, m,
    vf d = v_load_n(dy, T, i, m);
    vf n = (v_load_n(x, T, i, m) - mean) * rstd;
    vf g = d * (v_load_n(gamma, T, i, m) + one);
    sumG += g;
    sumP = v_mad(g, n, sumP);
    v_store_n(dgamma, MT_F32, i, m, v_mad(d, n, v_load_n(dgamma, MT_F32, i, m)));
    if (!rms) v_store_n(dbeta, MT_F32, i, m, v_load_n(dbeta, MT_F32, i, m) + d););
  float meanG = rms ? 0 : v_sum(sumG) / h, meanP = v_sum(sumP) / h;
  V_EACH(h, i, m,
    vf n = (v_load_n(x, T, i, m) - mean) * rstd;
    vf g = v_load_n(dy, T, i, m) * (v_load_n(gamma, T, i, m) + one);
    vf d = v_mad(n, v_set(-meanP), g - meanG) * rstd;
    if (residual) d += v_load_n(residual, T, i, m);
    v_store_n(dx, T, i, m, d););
}

/* The call for the rows of a leaf alone. */
static mt_norm_backward_args K(leaf_of)(const mt_norm_backward_args *a, int64_t leaf) {
  mt_norm_backward_args of = *a;
  if (a->chunk == 0) return of;
  mt_tensor *all[] = {&of.dx, &of.dy, &of.x, &of.residual, &of.mean, &of.rstd};
  for (int i = 0; i < 6; i++) *all[i] = mt_leaf(*all[i], leaf, a->chunk, a->batch);
  return of;
}

static int32_t K(norm_backward)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_norm_backward_args *a = args;
  int64_t rows = backward_rows(a), h = mt_last(&a->x), parts = mt_part_count(rows, h);
  if (phase == 0) {
    float *sums = (float *)scratch + tile * 2 * h;
    mt_norm_backward_args of = K(leaf_of)(a, tile / parts);
    mt_range r = mt_part_range(rows, h, tile % parts);
    memset(sums, 0, 2 * h * sizeof *sums);
    V_BY_DTYPE(of.x.dtype, for (int64_t row = r.from; row < r.to; row++) K(backward_row)(&of, T, row, sums, sums + h));
    return 0;
  }
  int64_t blocks = mt_part_blocks(parts, h), leaf = tile / blocks;
  const float *sums = (const float *)scratch + leaf * parts * 2 * h;
  mt_range columns = mt_part_columns(parts, h, tile % blocks);
  v_add_parts((float *)a->dgamma.data + leaf * a->dgamma.stride[0], sums, parts, 2 * h, columns);
  if (mt_given(&a->dbeta)) v_add_parts((float *)a->dbeta.data + leaf * a->dbeta.stride[0], sums + h, parts, 2 * h, columns);
  return 0;
}
#endif
