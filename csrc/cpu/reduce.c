/* Sums: over rows, and over everything in f64. A tile leaves its partial sums in
 * scratch; a second phase adds them in order. */
#ifndef MT_ISA
#define MT_KERNELS "reduce.c"
#include "segments.h"

/* The tiles of a segment's statistics are those that it would have by itself. */
static int64_t segment_tiles(const mt_grad_stats_args *a, int64_t s) {
  mt_range r = mt_segment(&a->segments, mt_len(&a->x), s);
  return mt_flat_tiles(r.to - r.from);
}
static int64_t stats_tiles(const void *args, int32_t phase) {
  const mt_grad_stats_args *a = args;
  int64_t tiles = 0;
  for (int64_t s = 0; s < mt_segments(&a->segments); s++) tiles += segment_tiles(a, s);
  return phase == 0 ? tiles : phase == 1 && tiles > 0;
}

/* Each leaf, or all rows, by itself. */
static int64_t column_leaves(const mt_column_sum_args *a) { return a->chunk ? a->x.shape[0] / a->chunk : 1; }
static int64_t column_rows(const mt_column_sum_args *a) { return a->chunk ? a->chunk : a->x.shape[0]; }

#include "isa.h"

static int64_t column_tiles(const void *args, int32_t phase) {
  const mt_column_sum_args *a = args;
  return column_leaves(a) * mt_part_tiles(column_rows(a), a->x.shape[1], phase);
}

static int64_t column_scratch(const void *args) {
  const mt_column_sum_args *a = args;
  return column_leaves(a) * mt_part_count(column_rows(a), a->x.shape[1]) * a->x.shape[1] * (int64_t)sizeof(float);
}

/* Phase 0: the tiles of n elements; phase 1: one, which adds them up. */
static int64_t flat_tiles(int64_t n, int32_t phase) { return phase == 0 ? mt_flat_tiles(n) : phase == 1 && n > 0; }

/* By the shapes alone, for it is asked where no memory is: each segment's tiles, its length
 * over MT_TILE, and one more for what is left. */
static int64_t stats_scratch(const void *args) {
  const mt_grad_stats_args *a = args;
  int64_t n = mt_len(&a->x), tiles = mt_given(&a->segments) ? n / MT_TILE + a->segments.shape[0] : mt_flat_tiles(n);
  return tiles * MT_STATS * (int64_t)sizeof(double);
}

static int64_t weighted_tiles(const void *args, int32_t phase) { return flat_tiles(mt_len(&((const mt_weighted_sum_args *)args)->x), phase); }
static int64_t weighted_scratch(const void *args) {
  return mt_flat_tiles(mt_len(&((const mt_weighted_sum_args *)args)->x)) * 2 * (int64_t)sizeof(double);
}

static int64_t one_tile(const void *args, int32_t phase) { return phase == 0; }

MT_OP_OF_ANY_WIDTH(column_sum, column_tiles, column_scratch)
MT_OP(grad_stats, stats_tiles, stats_scratch)
MT_OP(weighted_sum, weighted_tiles, weighted_scratch)
MT_OP(grad_scale, one_tile, NULL)
#else
#include "exact.h"
#include "parts.h"

/* sums += rows r of x, four at a time to spare the sums' traffic. */
V void K(sum_rows)(const mt_tensor *x, int T, mt_range r, float *sums) {
  int64_t n = x->shape[1], row = r.from;
  for (; row + 4 <= r.to; row += 4) {
    const void *x0 = mt_row(x, row), *x1 = mt_row(x, row + 1), *x2 = mt_row(x, row + 2), *x3 = mt_row(x, row + 3);
    V_EACH(n, i, m,
      vf s = (v_load_n(x0, T, i, m) + v_load_n(x1, T, i, m)) + (v_load_n(x2, T, i, m) + v_load_n(x3, T, i, m));
      v_store_n(sums, MT_F32, i, m, v_load_n(sums, MT_F32, i, m) + s););
  }
  for (; row < r.to; row++) {
    const void *x0 = mt_row(x, row);
    V_EACH(n, i, m, v_store_n(sums, MT_F32, i, m, v_load_n(sums, MT_F32, i, m) + v_load_n(x0, T, i, m)););
  }
}

static int32_t K(column_sum)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_column_sum_args *a = args;
  int64_t rows = column_rows(a), n = a->x.shape[1], parts = mt_part_count(rows, n);
  if (phase == 0) {
    float *sums = (float *)scratch + tile * n;
    mt_tensor x = a->chunk ? mt_leaf(a->x, tile / parts, a->chunk, a->batch) : a->x;
    memset(sums, 0, n * sizeof *sums);
    V_BY_DTYPE(x.dtype, K(sum_rows)(&x, T, mt_part_range(rows, n, tile % parts), sums));
  } else {
    int64_t blocks = mt_part_blocks(parts, n), leaf = tile / blocks;
    v_add_parts((float *)a->out.data + leaf * a->out.stride[0], (float *)scratch + leaf * parts * n, parts, n, mt_part_columns(parts, n, tile % blocks));
  }
  return 0;
}

/* out[k] += Σ over tiles of sums[tile·width + k]. */
V void K(add_up)(double *out, const double *sums, int64_t tiles, int width) {
  for (int k = 0; k < width; k++) {
    double total = 0;
    for (int64_t t = 0; t < tiles; t++) total += sums[t * width + k];
    out[k] += total;
  }
}

V int64_t K(non_finite)(const void *x, int T, mt_range r) {
  const vf limit = v_set(3.40282347e38f);
  int64_t finite = 0;
  V_EACH(r.to - r.from, i, m, finite += v_count(v_le(v_abs(v_load_n(x, T, r.from + i, m)), limit), m););
  return r.to - r.from - finite;
}

/* Squares of f32 are finite in f64, so values are checked only where their sum is not finite. */
V void K(stats)(const void *x, int T, mt_range r, double *out) {
  enum { AHEAD = 1024 }; /* elements */
  vd lo = {0}, hi = {0};
  const vf zero = {0};
  int64_t zeros = 0;
  V_EACH(r.to - r.from, i, m,
    vf v = v_load_n(x, T, r.from + i, m);
    __builtin_prefetch((const char *)x + (r.from + i + AHEAD) * mt_element(T));
    zeros += v_count(v_eq(v, zero), m);
    lo = v_add_product(lo, v_lo(v), v_lo(v));
    hi = v_add_product(hi, v_hi(v), v_hi(v)););
  out[MT_STAT_SQUARES] = v_sum_d(lo + hi);
  out[MT_STAT_NON_FINITE] = isfinite(out[MT_STAT_SQUARES]) ? 0 : (double)K(non_finite)(x, T, r);
  out[MT_STAT_ZEROS] = (double)zeros;
}

V void K(stats_f64)(const double *x, mt_range r, double *out) {
  out[0] = out[1] = out[2] = 0;
  for (int64_t i = r.from; i < r.to; i++) {
    out[MT_STAT_SQUARES] += x[i] * x[i];
    out[MT_STAT_NON_FINITE] += !isfinite(x[i]);
    out[MT_STAT_ZEROS] += x[i] == 0;
  }
}

/* The last segment first. */
static void K(add_segments)(const mt_grad_stats_args *a, const double *sums) {
  const double *at = sums + stats_tiles(a, 0) * MT_STATS;
  for (int64_t s = mt_segments(&a->segments) - 1; s >= 0; s--) {
    int64_t tiles = segment_tiles(a, s);
    at -= tiles * MT_STATS;
    K(add_up)(a->out.data, at, tiles, MT_STATS);
  }
}

/* Elements of x that a tile counts. */
static mt_range K(counted)(const mt_grad_stats_args *a, int64_t tile) {
  int64_t s = 0, n = mt_len(&a->x);
  for (int64_t tiles; tile >= (tiles = segment_tiles(a, s)); s++) tile -= tiles;
  mt_range all = mt_segment(&a->segments, n, s), r = mt_flat_range(all.to - all.from, tile);
  return (mt_range){all.from + r.from, all.from + r.to};
}

static int32_t K(grad_stats)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_grad_stats_args *a = args;
  double *sums = scratch;
  if (phase == 1)
    K(add_segments)(a, sums);
  else if (a->x.dtype == MT_F64)
    K(stats_f64)(a->x.data, K(counted)(a, tile), sums + tile * MT_STATS);
  else
    V_BY_DTYPE(a->x.dtype, K(stats)(a->x.data, T, K(counted)(a, tile), sums + tile * MT_STATS));
  return 0;
}

static int32_t K(weighted_sum)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_weighted_sum_args *a = args;
  int64_t n = mt_len(&a->x);
  double *sums = scratch;
  if (phase == 1) {
    K(add_up)(a->out.data, sums, mt_flat_tiles(n), 2);
    return 0;
  }
  mt_range r = mt_flat_range(n, tile);
  vd lo = {0}, hi = {0}, wlo = {0}, whi = {0}, magic = v_magic(a->bits > 0 ? ldexp(1, (int)-a->bits) : 0);
  V_EACH(r.to - r.from, i, m,
    vf x = v_load_n(a->x.data, MT_F32, r.from + i, m);
    vf w = v_load_n(a->w.data, MT_F32, r.from + i, m);
    vd low = v_lo(x) * v_lo(w), high = v_hi(x) * v_hi(w);
    if (a->bits > 0) low = (low + magic) - magic, high = (high + magic) - magic;
    lo += low;
    hi += high;
    wlo += v_lo(w);
    whi += v_hi(w););
  sums[tile * 2] = v_sum_d(lo + hi);
  sums[tile * 2 + 1] = v_sum_d(wlo + whi);
  return 0;
}

static int32_t K(grad_scale)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_grad_scale_args *a = args;
  const double *stats = a->stats.data, *others = mt_given(&a->others) ? a->others.data : stats;
  float *hyper = a->hyper.data;
  double scale = hyper[MT_HYPER_LOSS_SCALE], norm = sqrt(stats[MT_STAT_SQUARES]) / scale, factor = 1;
  if (a->max_norm > 0) factor = fmin(1, a->max_norm / (norm + 1e-6));
  hyper[MT_HYPER_GRAD_SCALE] = (float)(factor / scale);
  hyper[MT_HYPER_SKIP] = stats[MT_STAT_NON_FINITE] > 0 || others[MT_STAT_NON_FINITE] > 0;
  hyper[MT_HYPER_GRAD_NORM] = (float)norm;
  return 0;
}
#endif
