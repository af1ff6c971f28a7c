/* Numbers of 8 bits with one scale for a tensor, and the magnitude that it follows from (op_fp8.go). */
#ifndef MT_ISA
#define MT_KERNELS "fp8_tensor.c"
#include "isa.h"

static int64_t rows_of(const mt_tensor *t) { return mt_row_tiles(mt_rows(t), mt_last(t)); }

static int64_t max_abs_tiles(const void *args, int32_t phase) {
  const mt_max_abs_args *a = args;
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

/* Magnitudes are compared by their bits; the last phase puts those of all tiles together. */
static int32_t K(max_abs)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_max_abs_args *a = args;
  int64_t n = mt_last(&a->x);
  int32_t *tiles = scratch, *most = a->most.data;
  if (phase == 1) {
    for (int64_t t = 0; t < mt_row_tiles(mt_rows(&a->x), n); t++) *most = tiles[t] > *most ? tiles[t] : *most;
    if (*most > 0x7f800000) *most = 0x7f800000; /* infinite for a nan */
    return 0;
  }
  mt_range r = mt_row_range(mt_rows(&a->x), n, tile);
  vi peak = {0};
  for (int64_t row = r.from; row < r.to; row++) {
    const void *x = mt_row(&a->x, row);
    V_BY_DTYPE(a->x.dtype, V_EACH(n, i, m, peak = v_larger(peak, v_magnitude(v_load_n(x, T, i, m)));););
  }
  tiles[tile] = v_largest_bits(peak);
  return 0;
}

V void K(tensor_rows)(const mt_round_tensor_fp8_args *a, int T, int OUT, mt_range r) {
  float most = *(const float *)a->most.data, limit = small_limit(a->format), scale = limit / most;
  if (scale > LARGEST_F32) scale = LARGEST_F32;
  float inverse = 1 / scale;
  int32_t rounds = mt_rounds(most);
  for (int64_t row = r.from; row < r.to; row++) {
    const void *x = mt_row(&a->x, row);
    void *out = mt_row(&a->out, row);
    V_EACH(mt_last(&a->x), i, m,
      vf v = v_load_n(x, T, i, m);
      if (rounds) v = small_float(v_clamp(v * scale, limit), a->format) * inverse;
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
