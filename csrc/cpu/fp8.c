/* Numbers of 8 bits with a scale for each block (op_fp8.go). */
#ifndef MT_ISA
#define MT_KERNELS "fp8.c"
#include "isa.h"

static int64_t round_fp8_tiles(const void *args, int32_t phase) {
  const mt_round_fp8_args *a = args;
  return phase > 0 || mt_len(&a->x) == 0 ? 0 : mt_ceil(a->x.shape[0], a->rows);
}

const uint32_t mt_cpu_known_scale_rule = MT_BIT(MT_SCALE_BELOW) | MT_BIT(MT_SCALE_E8_M0);

MT_OP(round_fp8, round_fp8_tiles, NULL)
#else
#include "fp8.h"

/* The scale of a block whose largest magnitude is most; 0: it stays as it is. */
V float K(fp8_scale)(float most, float limit, int32_t rule) {
  if (!mt_rounds(most)) return 0;
  int32_t e8m0 = rule == MT_SCALE_E8_M0;
  float x = e8m0 ? most * (1 / limit) : limit / most, scale;
  if (x > LARGEST_F32) x = LARGEST_F32;
  uint32_t bits;
  memcpy(&bits, &x, 4);
  if (e8m0) { /* 127 less the exponent, rounded up, and a number's own 127; 2^-127 is not a normal number */
    uint32_t up = bits > 0x400000 ? (bits + 0x7fffff) >> 23 : 0;
    bits = (254 - up) << 23;
  } else {
    bits &= 0xff800000;
  }
  memcpy(&scale, &bits, 4);
  return scale;
}

/* Rows [from, to) of columns [c, c+n), n up to STRIPE, which begin and end with blocks. */
V void K(fp8_stripe)(const mt_round_fp8_args *a, int T, int64_t from, int64_t to, int64_t c, int64_t n) {
  float most[STRIPE];
  block_most(most, &a->x, T, from, to, c, n);
  for (int64_t b = 0; b < n; b += a->columns) { /* of each block one scale, for each of its columns */
    int64_t end = mt_min(n, b + a->columns);
    float scale = K(fp8_scale)(block_largest(most, b, end), small_limit(a->format), a->rule);
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
      v_store_n(out, T, c + i, m, v_select(kept, v, small_float(v * some, a->format) / some)););
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
