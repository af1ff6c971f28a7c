/* What every device that samples computes alike, to the bit: the rank and the weight of a
 * logit (op_sample.go). The kernels say what `on` is: nothing, or __device__. */
#ifndef MT_SAMPLE_H
#define MT_SAMPLE_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifndef MT_SAMPLE_ON
#define MT_SAMPLE_ON
#endif

#define MT_SAMPLE_LEAST (-32.0) /* log of the weights below which there are none */

/* Rises with x; the two zeros are one. */
MT_SAMPLE_ON static inline uint32_t mt_rank(float x) {
  uint32_t bits;
  x += 0.0f;
  memcpy(&bits, &x, sizeof bits);
  return bits ^ (bits >> 31 ? 0xffffffffu : 0x80000000u);
}

/* round(2^44·e^d), d <= 0. e^d = 2^n·e^r with |r| <= ln 2/2, the latter by Taylor's series, whose
 * rest is below 1e-14; sums are rounded once (fma), so that no compiler has a choice. */
MT_SAMPLE_ON static inline uint64_t mt_weight(double d) {
  const double magic = 0x1.8p52, whole = 0x1p52; /* adding them rounds to an integer, the low bits */
  double at = d < MT_SAMPLE_LEAST ? MT_SAMPLE_LEAST : d;
  double t = fma(at, 0x1.71547652b82fep0, magic), n = t - magic;
  double r = fma(n, -0x1.abc9e3b39803fp-56, fma(n, -0x1.62e42fefa39efp-1, at));
  double p = 1.0 / 39916800;
  p = fma(p, r, 1.0 / 3628800);
  p = fma(p, r, 1.0 / 362880);
  p = fma(p, r, 1.0 / 40320);
  p = fma(p, r, 1.0 / 5040);
  p = fma(p, r, 1.0 / 720);
  p = fma(p, r, 1.0 / 120);
  p = fma(p, r, 1.0 / 24);
  p = fma(p, r, 1.0 / 6);
  p = fma(p, r, 0.5);
  p = fma(p, r, 1.0);
  p = fma(p, r, 1.0);
  uint64_t shifted, zero, power, sum, none;
  double scale;
  memcpy(&shifted, &t, 8);
  memcpy(&zero, &magic, 8);
  power = (shifted - zero + 44 + 1023) << 52;
  memcpy(&scale, &power, 8);
  p = p * scale + whole; /* the product is exact */
  memcpy(&sum, &p, 8);
  memcpy(&none, &whole, 8);
  return d < MT_SAMPLE_LEAST ? 0 : sum - none;
}

/* The product is exact in double, so that it is rounded by itself before the sum. */
MT_SAMPLE_ON static inline float mt_edited(float x, float r, float add) {
  float y = x > 0 ? x / r : (float)((double)x * r);
  return y + add;
}

/* floor(draw/2^32·sum) */
MT_SAMPLE_ON static inline uint64_t mt_share(uint32_t draw, uint64_t sum) { return draw * (sum >> 32) + (draw * (sum & 0xffffffffu) >> 32); }

#endif
