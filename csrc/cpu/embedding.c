/* Rows of a table by id, and their gradients. Backward cuts the table by columns:
 * each tile walks all tokens, so that every sum runs in token order. A table of f64 takes
 * what is rounded to its grid (exact.h). */
#ifndef MT_ISA
#include "cpu.h"
#include "tile.h"

enum { COLUMNS = 128 }; /* of a backward tile */

static int64_t backward_tiles(const void *args, int32_t phase) {
  const mt_embedding_backward_args *a = args;
  int64_t n = mt_len(&a->dout);
  if (phase > 1 || n == 0) return 0;
  if (phase == 1) return a->dtable.dtype == MT_F64; /* the tiles' peaks */
  return n <= MT_SMALL ? 1 : mt_ceil(a->dout.shape[1], COLUMNS);
}

#define MT_KERNELS "embedding.c"
#include "isa.h"

static int64_t forward_tiles(const void *args, int32_t phase) {
  const mt_embedding_forward_args *a = args;
  return phase == 0 ? mt_row_tiles(a->out.shape[0], a->out.shape[1]) : 0;
}

static int64_t backward_scratch(const void *args) {
  const mt_embedding_backward_args *a = args;
  return a->dtable.dtype == MT_F64 ? mt_ceil(a->dout.shape[1], COLUMNS) * (int64_t)sizeof(int32_t) : 0;
}

MT_OP(embedding_forward, forward_tiles, NULL)
MT_OP(embedding_backward, backward_tiles, backward_scratch)
#else
#include "exact.h"

V void K(take)(const mt_embedding_forward_args *a, int T, int64_t token) {
  int64_t h = a->out.shape[1], id = ((const int32_t *)a->ids.data)[token] - a->start;
  int here = id >= 0 && id < a->table.shape[0];
  void *out = mt_row(&a->out, token);
  if (!here && a->accumulate) return;
  if (!here) {
    memset(out, 0, h * mt_element(T));
    return;
  }
  const void *row = mt_row(&a->table, id);
  if (a->accumulate)
    V_EACH(h, i, m, v_store_n(out, T, i, m, v_load_n(out, T, i, m) + v_load_n(row, T, i, m)););
  else
    memcpy(out, row, h * mt_element(T));
}

static int32_t K(embedding_forward)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_embedding_forward_args *a = args;
  mt_range r = mt_row_range(a->out.shape[0], a->out.shape[1], tile);
  V_BY_DTYPE(a->out.dtype, for (int64_t t = r.from; t < r.to; t++) K(take)(a, T, t));
  return 0;
}

/* The address of a token's row in the table, or NULL. */
V void *K(table_row)(const mt_embedding_backward_args *a, int64_t token) {
  int64_t id = ((const int32_t *)a->ids.data)[token] - a->start;
  return id >= 0 && id < a->dtable.shape[0] ? mt_row(&a->dtable, id) : NULL;
}

V void K(give)(const mt_embedding_backward_args *a, int T, mt_range columns) {
  enum { AHEAD = 6 };
  int64_t tokens = a->dout.shape[0], n = columns.to - columns.from;
  for (int64_t t = 0; t < tokens; t++) {
    float *later = t + AHEAD < tokens ? K(table_row)(a, t + AHEAD) : NULL;
    if (later) /* rows of a large table lie anywhere */
      for (int64_t i = columns.from; i < columns.to; i += 16) __builtin_prefetch(later + i, 1);
    float *row = K(table_row)(a, t);
    if (!row) continue;
    row += columns.from;
    const void *d = mt_row(&a->dout, t);
    V_EACH(n, i, m, v_store_n(row, MT_F32, i, m, v_load_n(row, MT_F32, i, m) + v_load_n(d, T, columns.from + i, m)););
  }
}

/* Rows on the grid of a table of f64; returns the largest magnitude, by its bits. */
V int32_t K(give_exactly)(const mt_embedding_backward_args *a, int T, mt_range columns) {
  int64_t n = columns.to - columns.from;
  vd magic = v_magic(*(const double *)a->grid.data);
  vi peak = {0};
  for (int64_t t = 0; t < a->dout.shape[0]; t++) {
    double *row = K(table_row)(a, t);
    if (!row) continue;
    const void *d = mt_row(&a->dout, t);
    V_EACH(n, i, m,
      vf x = v_load_n(d, T, columns.from + i, m);
      peak = v_larger(peak, v_magnitude(x));
      v_add_on_grid(row + columns.from + i, m, v_lo(x), v_hi(x), magic););
  }
  return v_largest_bits(peak);
}

static int32_t K(embedding_backward)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_embedding_backward_args *a = args;
  int64_t h = a->dout.shape[1];
  mt_range columns = mt_len(&a->dout) <= MT_SMALL ? (mt_range){0, h} : (mt_range){tile * COLUMNS, mt_min(h, (tile + 1) * COLUMNS)};
  int32_t *peaks = scratch, *peak = a->peak.data;
  if (phase == 1) {
    for (int64_t t = 0; t < backward_tiles(a, 0); t++) *peak = peaks[t] > *peak ? peaks[t] : *peak;
  } else if (a->dtable.dtype == MT_F64) {
    V_BY_DTYPE(a->dout.dtype, peaks[tile] = K(give_exactly)(a, T, columns));
  } else {
    V_BY_DTYPE(a->dout.dtype, K(give)(a, T, columns));
  }
  return 0;
}
#endif
