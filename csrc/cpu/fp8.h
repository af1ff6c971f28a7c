/* Numbers of 8 and 4 bits with a scale for each block or tensor (op_fp8.go, op_fp4.go). Read under MT_ISA, after
 * simd.h. */
#ifndef MT_FP8_H
#define MT_FP8_H
enum { STRIPE = 1024 };            /* columns whose scales are known at a time */
enum { E2M1 = MT_E5_M2 + 1 };      /* the format of 4 bits */
#define LARGEST_F32 3.402823466e38f
#define small_float K(small_float)
#define small_limit K(small_limit)
#define block_most K(block_most)
#define block_largest K(block_largest)
#define v_clamp K(v_clamp)

/* Whether values of which this is the largest magnitude are rounded. */
static inline int32_t mt_rounds(float most) { return most > 0 && most <= LARGEST_F32; }
#endif

V float small_limit(int format) { return format == E2M1 ? 6.f : format == MT_E5_M2 ? 57344.f : 448.f; }

V vf v_clamp(vf y, float limit) { return v_max(v_set(-limit), v_min(v_set(limit), y)); }

/* y in the format, half to even: the mantissa is cut to 3, 2 or 1 bits, below the least normal number to
 * multiples of the least one. |y| is at most the format's largest number. */
V vf small_float(vf y, int format) {
  int drop = format == E2M1 ? 22 : format == MT_E5_M2 ? 21 : 20;
  vu u = (vu)y, r = (u + (uint32_t)((1 << (drop - 1)) - 1) + (u >> drop & 1)) & (uint32_t)-(1 << drop);
  float least = format == E2M1 ? 1.f : format == MT_E5_M2 ? 0x1p-14f : 0x1p-6f;
  float magic = format == E2M1 ? 0x1.8p22f : format == MT_E5_M2 ? 0x1.8p7f : 0x1.8p14f;
  return v_select(v_lt(v_abs(y), v_set(least)), (y + magic) - magic, (vf)r);
}

/* The largest magnitudes in rows [from, to) of the n columns from c on, up to STRIPE; not a number stays. */
V void block_most(float *most, const mt_tensor *x, int T, int64_t from, int64_t to, int64_t c, int64_t n) {
  memset(most, 0, n * sizeof *most);
  for (int64_t r = from; r < to; r++) {
    const void *row = mt_row(x, r);
    V_EACH(n, i, m,
      vf v = v_abs(v_load_n(row, T, c + i, m));
      vf seen = v_load_n(most, MT_F32, i, m);
      v_store_n(most, MT_F32, i, m, v_select(v_le(v, seen), seen, v)););
  }
}

/* The largest of a block's columns. */
V float block_largest(const float *most, int64_t from, int64_t to) {
  float largest = 0;
  for (int64_t i = from; i < to; i++) largest = most[i] <= largest ? largest : most[i];
  return largest;
}
