/* Rows of tokens on their way to experts and back, a row's weight, and sums over the rows
 * of an expert. */
#ifndef MT_ISA
#include "tile.h"

enum { COLUMNS = 256, ROWS = 256 }; /* of a tile of sums; rows that are summed before they are added to the others */

static int64_t gather_tiles(const void *args, int32_t phase) {
  const mt_tensor *out = &((const mt_gather_rows_args *)args)->out;
  return phase == 0 ? mt_row_tiles(out->shape[0], out->shape[1]) : 0;
}

/* A row of `out` costs what it reads. */
static int64_t combine_width(const mt_combine_rows_args *a) { return a->out.shape[1] * mt_max(1, mt_last(&a->slots)); }

static int64_t combine_tiles(const void *args, int32_t phase) {
  const mt_combine_rows_args *a = args;
  return phase == 0 ? mt_row_tiles(a->out.shape[0], combine_width(a)) : 0;
}

static int64_t scale_tiles(const void *args, int32_t phase) {
  const mt_tensor *x = &((const mt_scale_rows_args *)args)->x;
  return phase == 0 ? mt_row_tiles(x->shape[0], x->shape[1]) : 0;
}

static int64_t dot_tiles(const void *args, int32_t phase) {
  const mt_tensor *x = &((const mt_row_dots_args *)args)->x;
  return phase == 0 ? mt_row_tiles(x->shape[0], mt_max(1, x->shape[1])) : 0;
}

static int64_t sum_tiles(const void *args, int32_t phase) {
  const mt_grouped_sum_args *a = args;
  return phase == 0 ? a->out.shape[0] * mt_ceil(a->out.shape[1], COLUMNS) : 0;
}

#define MT_KERNELS "expert_rows.c"
#include "isa.h"

MT_OP(gather_rows, gather_tiles, NULL)
MT_OP(combine_rows, combine_tiles, NULL)
MT_OP(scale_rows, scale_tiles, NULL)
MT_OP(row_dots, dot_tiles, NULL)
MT_OP(grouped_sum, sum_tiles, NULL)
#else
#include "exact.h"

static int32_t K(gather_rows)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_gather_rows_args *a = args;
  int64_t bytes = a->out.shape[1] * mt_element(a->out.dtype);
  mt_range r = mt_row_range(a->out.shape[0], a->out.shape[1], tile);
  for (int64_t i = r.from; i < r.to; i++) {
    int64_t row = ((const int32_t *)a->rows.data)[i];
    if (row >= 0 && row < a->in.shape[0]) memcpy(mt_row(&a->out, i), mt_row(&a->in, row), bytes);
    else memset(mt_row(&a->out, i), 0, bytes);
  }
  return 0;
}

/* The rows that a token's slots name, in their order; their number. */
V int64_t K(named)(const mt_combine_rows_args *a, int64_t token, const void **rows) {
  int64_t k = mt_last(&a->slots), n = 0;
  const int32_t *slots = (const int32_t *)a->slots.data + token * k;
  for (int64_t j = 0; j < k; j++)
    if (slots[j] >= 0 && slots[j] < a->in.shape[0]) rows[n++] = mt_row(&a->in, slots[j]);
  return n;
}

V void K(combine)(const mt_combine_rows_args *a, int T, int64_t token, const void **rows) {
  int64_t n = K(named)(a, token, rows);
  void *out = mt_row(&a->out, token);
  V_EACH(a->out.shape[1], i, m,
    vf sum = {0};
    for (int64_t j = 0; j < n; j++) sum += v_load_n(rows[j], T, i, m);
    v_store_n(out, T, i, m, sum););
}

static int32_t K(combine_rows)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_combine_rows_args *a = args;
  mt_range r = mt_row_range(a->out.shape[0], combine_width(a), tile);
  V_BY_DTYPE(a->out.dtype, for (int64_t i = r.from; i < r.to; i++) K(combine)(a, T, i, ctx->workspace));
  return 0;
}

V void K(scale)(const mt_scale_rows_args *a, int T, int64_t row) {
  const void *x = mt_row(&a->x, row);
  void *y = mt_row(&a->y, row);
  float w = ((const float *)a->weight.data)[row];
  V_EACH(a->x.shape[1], i, m, v_store_n(y, T, i, m, v_load_n(x, T, i, m) * w););
}

static int32_t K(scale_rows)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_scale_rows_args *a = args;
  mt_range r = mt_row_range(a->x.shape[0], a->x.shape[1], tile);
  V_BY_DTYPE(a->x.dtype, for (int64_t i = r.from; i < r.to; i++) K(scale)(a, T, i));
  return 0;
}

V float K(dot)(const mt_row_dots_args *a, int T, int64_t row) {
  const void *x = mt_row(&a->x, row), *y = mt_row(&a->y, row);
  vf sum = {0};
  V_EACH(a->x.shape[1], i, m, sum = v_mad(v_load_n(x, T, i, m), v_load_n(y, T, i, m), sum););
  return v_sum(sum);
}

static int32_t K(row_dots)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_row_dots_args *a = args;
  mt_range r = mt_row_range(a->x.shape[0], mt_max(1, a->x.shape[1]), tile);
  V_BY_DTYPE(a->x.dtype, for (int64_t i = r.from; i < r.to; i++) ((float *)a->out.data)[i] = K(dot)(a, T, i));
  return 0;
}

/* out += columns of rows r of x. */
V void K(add_rows)(const mt_tensor *x, int T, mt_range r, mt_range columns, float *out) {
  float sums[COLUMNS] = {0};
  int64_t n = columns.to - columns.from;
  for (int64_t row = r.from; row < r.to; row++) {
    const void *from = mt_row(x, row);
    V_EACH(n, i, m, v_store_n(sums, MT_F32, i, m, v_load_n(sums, MT_F32, i, m) + v_load_n(from, T, columns.from + i, m)););
  }
  V_EACH(n, i, m, v_store_n(out, MT_F32, i, m, v_load_n(out, MT_F32, i, m) + v_load_n(sums, MT_F32, i, m)););
}

/* sums f64, on a grid, += the columns of each leaf of rows r; the bits of the largest magnitude of a leaf's sum. */
V int32_t K(add_leaves)(const mt_grouped_sum_args *a, int T, mt_range r, mt_range columns, double *sums) {
  const int64_t n = columns.to - columns.from;
  const int32_t *leaf = a->leaf.data;
  const vd magic = v_magic(*(const double *)a->grid.data);
  vi peak = {0};
  for (int64_t from = r.from, to; from < r.to; from = to) {
    float one[COLUMNS] = {0};
    for (to = from + 1; to < r.to && leaf[to] == leaf[from];) to++;
    for (int64_t row = from; row < to; row++) {
      const void *x = mt_row(&a->x, row);
      V_EACH(n, i, m, v_store_n(one, MT_F32, i, m, v_load_n(one, MT_F32, i, m) + v_load_n(x, T, columns.from + i, m)););
    }
    V_EACH(n, i, m,
      vf x = v_load_n(one, MT_F32, i, m);
      peak = v_larger(peak, v_magnitude(x));
      v_add_on_grid(sums + i, m, v_lo(x), v_hi(x), magic););
  }
  return v_largest_bits(peak);
}

static int32_t K(grouped_sum)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_grouped_sum_args *a = args;
  int64_t n = a->out.shape[1], across = mt_ceil(n, COLUMNS), g = tile / across;
  mt_range columns = {tile % across * COLUMNS, mt_min(n, (tile % across + 1) * COLUMNS)};
  const int32_t *offsets = a->offsets.data;
  if (mt_given(&a->grid)) {
    int32_t most = 0;
    double *sums = (double *)mt_row(&a->out, g) + columns.from;
    V_BY_DTYPE(a->x.dtype, most = K(add_leaves)(a, T, (mt_range){offsets[g], offsets[g + 1]}, columns, sums));
    mt_raise(a->peak.data, most);
    return 0;
  }
  float *out = (float *)mt_row(&a->out, g) + columns.from;
  V_BY_DTYPE(a->x.dtype,
    for (int64_t row = offsets[g]; row < offsets[g + 1]; row += ROWS)
      K(add_rows)(&a->x, T, (mt_range){row, mt_min(offsets[g + 1], row + ROWS)}, columns, out));
  return 0;
}
#endif
