/* Numbers of 8 bits with one scale for a tensor or a group of its rows, and the magnitude that it follows from
 * (op_fp8.go). */
#ifndef MT_ISA
#define MT_KERNELS "fp8_tensor.c"
#include "isa.h"

static int64_t rows_of(const mt_tensor *t) { return mt_row_tiles(mt_rows(t), mt_last(t)); }

/* With offsets a tile is a group; else the last phase puts the magnitudes of all tiles together. */
static int64_t max_abs_tiles(const void *args, int32_t phase) {
  const mt_max_abs_args *a = args;
  if (mt_given(&a->offsets)) return phase > 0 ? 0 : a->most.shape[0];
  return phase == 0 ? rows_of(&a->x) : phase == 1 && mt_len(&a->x) > 0;
}
static int64_t max_abs_scratch(const void *args) { return rows_of(&((const mt_max_abs_args *)args)->x) * (int64_t)sizeof(int32_t); }

static int64_t round_tensor_fp8_tiles(const void *args, int32_t phase) {
  return phase > 0 ? 0 : rows_of(&((const mt_round_tensor_fp8_args *)args)->x);
}

MT_OP(max_abs, max_abs_tiles, max_abs_scratch)
MT_OP(round_tensor_fp8, round_tensor_fp8_tiles, NULL)
#else
#include "exact.h"
#include "fp8.h"

/* The bits of the largest magnitude of rows, which as integers are in order. */
V int32_t K(rows_most)(const mt_tensor *t, mt_range r) {
  vi peak = {0};
  for (int64_t row = r.from; row < r.to; row++) {
    const void *x = mt_row(t, row);
    V_BY_DTYPE(t->dtype, V_EACH(mt_last(t), i, m, peak = v_larger(peak, v_magnitude(v_load_n(x, T, i, m)));););
  }
  return v_largest_bits(peak);
}

static void K(raise_most)(int32_t *most, int32_t bits) {
  *most = bits > *most ? bits : *most;
  if (*most > 0x7f800000) *most = 0x7f800000; /* infinite for a nan */
}

static int32_t K(max_abs)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_max_abs_args *a = args;
  const int32_t *offsets = a->offsets.data;
  int32_t *tiles = scratch, *most = a->most.data;
  if (mt_given(&a->offsets)) {
    K(raise_most)(most + tile, K(rows_most)(&a->x, (mt_range){offsets[tile], offsets[tile + 1]}));
  } else if (phase == 0) {
    tiles[tile] = K(rows_most)(&a->x, mt_row_range(mt_rows(&a->x), mt_last(&a->x), tile));
  } else {
    for (int64_t t = 0; t < mt_row_tiles(mt_rows(&a->x), mt_last(&a->x)); t++) K(raise_most)(most, tiles[t]);
  }
  return 0;
}

/* How the numbers of group g are rounded: not at all, all of them, or those that are finite. */
typedef struct { float scale, inverse; int32_t none; } K(rounding);

V K(rounding) K(rounding_of)(const mt_round_tensor_fp8_args *a, int64_t g) {
  float scale;
  int32_t none = 0;
  if (mt_given(&a->scale)) {
    scale = ((const float *)a->scale.data)[g];
  } else {
    float most = ((const float *)a->most.data)[g];
    scale = small_limit(a->format) / most;
    if (scale > LARGEST_F32) scale = LARGEST_F32;
    none = !mt_rounds(most);
  }
  return (K(rounding)){scale, 1 / scale, none};
}

V void K(tensor_rows)(const mt_round_tensor_fp8_args *a, int T, int OUT, mt_range r) {
  const int32_t *offsets = a->offsets.data;
  float limit = small_limit(a->format);
  int64_t g = 0, groups = mt_given(&a->offsets) ? a->offsets.shape[0] - 1 : 1;
  K(rounding) by = K(rounding_of)(a, g);
  for (int64_t row = r.from; row < r.to; row++) {
    if (g + 1 < groups && row >= offsets[g + 1]) {
      while (g + 1 < groups && row >= offsets[g + 1]) g++;
      by = K(rounding_of)(a, g);
    }
    const void *x = mt_row(&a->x, row);
    void *out = mt_row(&a->out, row);
    V_EACH(mt_last(&a->x), i, m,
      vf v = v_load_n(x, T, i, m);
      if (!by.none) v = v_select(v_le(v_abs(v), v_set(LARGEST_F32)), small_float(v_clamp(v * by.scale, limit), a->format) * by.inverse, v);
      v_store_n(out, OUT, i, m, v););
  }
}

static int32_t K(round_tensor_fp8)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_round_tensor_fp8_args *a = args;
  mt_range r = mt_row_range(mt_rows(&a->x), mt_last(&a->x), tile);
  if (a->out.dtype == a->x.dtype) V_BY_DTYPE(a->x.dtype, K(tensor_rows)(a, T, T, r))
  else V_BY_DTYPE(a->x.dtype, K(tensor_rows)(a, T, MT_F32, r))
  return 0;
}
#endif
