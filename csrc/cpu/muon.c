/* The parts of Muon that are not products of matrices: an element at a time. */
#ifndef MT_ISA
/* The phases of normuon: means, what follows from them, and the products with it. */
enum { MEANS, FACTORS, PRODUCTS, COLUMNS_A_TILE = 256 };

#define MT_KERNELS "muon.c"
#include <math.h>

#include "isa.h"

static int64_t momentum_tiles(const void *args, int32_t phase) { return phase == 0 ? mt_flat_tiles(mt_len(&((const mt_momentum_args *)args)->m)) : 0; }
static int64_t normalize_tiles(const void *args, int32_t phase) { return phase == 0 ? mt_flat_tiles(mt_len(&((const mt_normalize_args *)args)->out)) : 0; }
static int64_t polynomial_tiles(const void *args, int32_t phase) { return phase == 0 ? mt_flat_tiles(mt_len(&((const mt_polynomial_args *)args)->out)) : 0; }
static int64_t follow_tiles(const void *args, int32_t phase) { return phase == 0 ? mt_flat_tiles(mt_len(&((const mt_follow_args *)args)->param)) : 0; }

static int64_t normuon_tiles(const void *args, int32_t phase) {
  const mt_normuon_args *a = args;
  int64_t m = a->x.shape[0], n = a->x.shape[1];
  if (m * n == 0) return 0;
  return phase == MEANS ? (m >= n ? mt_row_tiles(m, n) : mt_ceil(n, COLUMNS_A_TILE)) : phase == FACTORS ? 1 : phase == PRODUCTS ? mt_row_tiles(m, n) : 0;
}
static int64_t normuon_scratch(const void *args) { return mt_len(&((const mt_normuon_args *)args)->v) * (int64_t)sizeof(double); }
static int64_t adamuon_tiles(const void *args, int32_t phase) { return phase == 0 ? mt_flat_tiles(mt_len(&((const mt_adamuon_args *)args)->x)) : 0; }

MT_OP(normuon, normuon_tiles, normuon_scratch)
MT_OP(adamuon, adamuon_tiles, NULL)
MT_OP(momentum, momentum_tiles, NULL)
MT_OP(normalize, normalize_tiles, NULL)
MT_OP(polynomial, polynomial_tiles, NULL)
MT_OP(follow, follow_tiles, NULL)
#else

static int32_t K(momentum)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_momentum_args *a = args;
  const float *hyper = a->hyper.data, *grad = a->grad.data;
  if (hyper[MT_HYPER_SKIP] != 0) return 0;
  float *mean = a->m.data, *out = mt_given(&a->out) ? a->out.data : NULL;
  float mu = a->mu, rest = 1 - mu, scale = hyper[MT_HYPER_GRAD_SCALE];
  mt_range r = mt_flat_range(mt_len(&a->m), tile);
  V_EACH(r.to - r.from, j, m,
    int64_t i = r.from + j;
    vf g = v_load_n(grad, MT_F32, i, m) * scale * rest;
    vf s = v_load_n(mean, MT_F32, i, m) * mu + g;
    v_store_n(mean, MT_F32, i, m, s);
    if (out) v_store_n(out, MT_F32, i, m, s * mu + g););
  return 0;
}

static int32_t K(normalize)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_normalize_args *a = args;
  float norm = (float)fmax(sqrt(((const double *)a->stats.data)[MT_STAT_SQUARES]), a->eps);
  norm = norm * a->stretch + a->plus;
  mt_range r = mt_flat_range(mt_len(&a->out), tile);
  V_BY_DTYPE(a->out.dtype, V_EACH(r.to - r.from, i, m, v_store_n(a->out.data, T, r.from + i, m, v_load_n(a->x.data, MT_F32, r.from + i, m) / norm);););
  return 0;
}

/* A times the unit matrix is added where a vector has something of the diagonal. */
static int32_t K(polynomial)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_polynomial_args *a = args;
  int64_t n = mt_last(&a->x);
  mt_range r = mt_flat_range(mt_len(&a->out), tile);
  int squared = mt_given(&a->y);
  V_BY_DTYPE(a->x.dtype, {
    float diagonal[LANES];
    V_EACH(r.to - r.from, j, m,
      int64_t i = r.from + j, next = (i + n) / (n + 1) * (n + 1); /* on the diagonal, from i on */
      vf p = v_load_n(a->x.data, T, i, m) * a->b;
      if (squared) p += v_load_n(a->y.data, T, i, m) * a->c;
      if (next < i + m) {
        memcpy(diagonal, &p, sizeof p);
        for (; next < i + m; next += n + 1) diagonal[next - i] += a->a;
        memcpy(&p, diagonal, sizeof p);
      }
      v_store_n(a->out.data, T, i, m, p););
  })
  return 0;
}

V void K(follow_range)(const mt_follow_args *a, int T, void *model, mt_range r) {
  const float *hyper = a->hyper.data, *direction = a->direction.data;
  float *param = a->param.data, step = hyper[MT_HYPER_LR] * a->by, decay = hyper[MT_HYPER_LR] * (hyper[MT_HYPER_WEIGHT_DECAY] * a->decay);
  V_EACH(r.to - r.from, j, m,
    int64_t i = r.from + j;
    vf p = v_load_n(param, MT_F32, i, m);
    p -= step * v_load_n(direction, MT_F32, i, m) + decay * p;
    v_store_n(param, MT_F32, i, m, p);
    if (model) v_store_n(model, T, i, m, p););
}

static int32_t K(follow)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_follow_args *a = args;
  if (((const float *)a->hyper.data)[MT_HYPER_SKIP] != 0) return 0;
  mt_range r = mt_flat_range(mt_len(&a->param), tile);
  if (mt_given(&a->model))
    V_BY_DTYPE(a->model.dtype, K(follow_range)(a, T, a->model.data, r))
  else
    K(follow_range)(a, MT_F32, NULL, r);
  return 0;
}

/* Means of squares of a tile's rows, or down its columns; sums in their order. */
static void K(normuon_means)(const mt_normuon_args *a, double *means, int64_t tile) {
  int64_t m = a->x.shape[0], n = a->x.shape[1];
  const float *x = a->x.data;
  if (m >= n) {
    mt_range rows = mt_row_range(m, n, tile);
    for (int64_t r = rows.from; r < rows.to; r++) {
      double sum = 0;
      for (int64_t c = 0; c < n; c++) sum += (double)x[r * n + c] * x[r * n + c]; /* squares are exact */
      means[r] = sum / n;
    }
    return;
  }
  int64_t from = tile * COLUMNS_A_TILE, to = mt_min(n, from + COLUMNS_A_TILE);
  for (int64_t c = from; c < to; c++) means[c] = 0;
  for (int64_t r = 0; r < m; r++)
    for (int64_t c = from; c < to; c++) means[c] += (double)x[r * n + c] * x[r * n + c];
  for (int64_t c = from; c < to; c++) means[c] /= m;
}

/* The averages, and factors in place of the means. */
static void K(normuon_factors)(const mt_normuon_args *a, double *means) {
  int64_t k = mt_len(&a->v), count = mt_min(a->x.shape[0], a->x.shape[1]);
  float *v = a->v.data;
  double before = 0, after = 0;
  for (int64_t i = 0; i < k; i++) {
    v[i] += (1 - a->beta2) * ((float)means[i] - v[i]);
    double step = 1 / sqrt(fmax(v[i], a->eps)), squares = means[i] * step * step;
    before += means[i], after += squares;
    means[i] = step;
  }
  double length = sqrt(before * count) / fmax(sqrt(after * count), a->eps);
  for (int64_t i = 0; i < k; i++) means[i] *= length;
}

static int32_t K(normuon)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_normuon_args *a = args;
  double *means = scratch;
  if (((const float *)a->hyper.data)[MT_HYPER_SKIP] != 0) return 0;
  if (phase == MEANS) {
    K(normuon_means)(a, means, tile);
    return 0;
  }
  if (phase == FACTORS) {
    K(normuon_factors)(a, means);
    return 0;
  }
  int64_t m = a->x.shape[0], n = a->x.shape[1];
  float *x = a->x.data;
  mt_range rows = mt_row_range(m, n, tile);
  for (int64_t r = rows.from; r < rows.to; r++)
    for (int64_t c = 0; c < n; c++) x[r * n + c] *= (float)means[m >= n ? r : c];
  return 0;
}

static int32_t K(adamuon)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_adamuon_args *a = args;
  if (((const float *)a->hyper.data)[MT_HYPER_SKIP] != 0) return 0;
  mt_range r = mt_flat_range(mt_len(&a->x), tile);
  float rest = 1 - a->beta2;
  V_EACH(r.to - r.from, j, m,
    int64_t i = r.from + j;
    vf x = v_load_n(a->x.data, MT_F32, i, m);
    vf v = v_load_n(a->v.data, MT_F32, i, m);
    v = v_fma(x * x - v, v_set(rest), v);
    v_store_n(a->v.data, MT_F32, i, m, v);
    v_store_n(a->x.data, MT_F32, i, m, x / (v_sqrt(v) + a->eps)););
  return 0;
}
#endif
