/* Numbers of 8 bits with a scale for each block (op_fp8.go). */
#ifndef MT_ISA
enum { STRIPE = 1024, E5M2 = 1 }; /* columns whose scales are known at a time */

#define MT_KERNELS "fp8.c"
#include "isa.h"

static int64_t round_fp8_tiles(const void *args, int32_t phase) {
  const mt_round_fp8_args *a = args;
  return phase > 0 || mt_len(&a->x) == 0 ? 0 : mt_ceil(a->x.shape[0], a->rows);
}

MT_OP(round_fp8, round_fp8_tiles, NULL)
#else

/* y in the format, half to even: the mantissa is cut to 3 or 2 bits, below the least normal number to
 * multiples of the least one. */
V vf K(to_fp8)(vf y, int format) {
  int drop = format == E5M2 ? 21 : 20;
  vu u = (vu)y, r = (u + (uint32_t)((1 << (drop - 1)) - 1) + (u >> drop & 1)) & (uint32_t)-(1 << drop);
  float least = format == E5M2 ? 0x1p-14f : 0x1p-6f, magic = format == E5M2 ? 0x1.8p7f : 0x1.8p14f;
  return v_select(v_lt(v_abs(y), v_set(least)), (y + magic) - magic, (vf)r);
}

/* The scale of a block whose largest magnitude is most; 0: it stays as it is. */
V float K(fp8_scale)(float most, float limit) {
  if (!(most > 0) || most > 3.402823466e38f) return 0;
  float scale = limit / most;
  if (scale > 3.402823466e38f) scale = 3.402823466e38f;
  uint32_t bits;
  memcpy(&bits, &scale, 4);
  bits &= 0xff800000;
  memcpy(&scale, &bits, 4);
  return scale;
}

/* Rows [from, to) of columns [c, c+n), n up to STRIPE, which begin and end with blocks. */
V void K(fp8_stripe)(const mt_round_fp8_args *a, int T, int64_t from, int64_t to, int64_t c, int64_t n) {
  float most[STRIPE], limit = a->format == E5M2 ? 57344.f : 448.f;
  memset(most, 0, sizeof most);
  for (int64_t r = from; r < to; r++) {
    const void *x = mt_row(&a->x, r);
    V_EACH(n, i, m,
      vf v = v_abs(v_load_n(x, T, c + i, m));
      vf seen = v_load_n(most, MT_F32, i, m);
      v_store_n(most, MT_F32, i, m, v_select(v_le(v, seen), seen, v));); /* not a number stays */
  }
  for (int64_t b = 0; b < n; b += a->columns) { /* of each block one scale, for each of its columns */
    int64_t end = mt_min(n, b + a->columns);
    float largest = 0;
    for (int64_t i = b; i < end; i++) largest = most[i] <= largest ? largest : most[i];
    float scale = K(fp8_scale)(largest, limit);
    for (int64_t i = b; i < end; i++) most[i] = scale;
  }
  for (int64_t r = from; r < to; r++) {
    const void *x = mt_row(&a->x, r);
    void *out = mt_row(&a->out, r);
    V_EACH(n, i, m,
      vf v = v_load_n(x, T, c + i, m);
      vf scale = v_load_n(most, MT_F32, i, m);
      vm kept = v_eq(scale, v_set(0));
      vf some = v_select(kept, v_set(1), scale); /* a power of two: no product and no quotient rounds */
      v_store_n(out, T, c + i, m, v_select(kept, v, K(to_fp8)(v * some, a->format) / some)););
  }
}

static int32_t K(round_fp8)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_round_fp8_args *a = args;
  int64_t n = a->x.shape[1], from = tile * a->rows, to = mt_min(a->x.shape[0], from + a->rows), step = STRIPE / a->columns * a->columns;
  for (int64_t c = 0; c < n; c += step)
    V_BY_DTYPE(a->x.dtype, K(fp8_stripe)(a, T, from, to, c, mt_min(step, n - c)))
  return 0;
}
#endif
