/* Exponentials and logarithms in f64 that have the same bits on every processor: they are made of
 * additions, multiplications and divisions alone, each rounded as IEEE 754 says. Those of libm
 * differ by release and by instruction set. Results are within 1.1 ulp. */
#ifndef MT_FUNCTIONS_H
#define MT_FUNCTIONS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "cpu.h"

#define MT_LN2_HIGH 0x1.62e42feep-1 /* 32 bits: a product with an exponent is exact */
#define MT_LN2_LOW 0x1.a39ef35793c76p-33

static inline double mt_power_of_2(int64_t n) { /* of a normal number */
  uint64_t bits = (uint64_t)(n + 1023) << 52;
  double x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* e^x = 2^n·e^r with |r| <= ln(2)/2: Taylor's series as far as r^13 is good to 2^-57. */
static inline double mt_exp(double x) {
  if (x != x) return x;
  if (x > 709.782712893384) return INFINITY;
  if (x < -745.2) return 0;
  double n = (x * 1.4426950408889634 + 0x1.8p52) - 0x1.8p52, r = (x - n * MT_LN2_HIGH) - n * MT_LN2_LOW, s = r * r;
  /* (e^r - 1 - r)/r², its even and its odd powers. */
  double even = 1. / 2 + s * (1. / 24 + s * (1. / 720 + s * (1. / 40320 + s * (1. / 3628800 + s * (1. / 479001600)))));
  double odd = 1. / 6 + s * (1. / 120 + s * (1. / 5040 + s * (1. / 362880 + s * (1. / 39916800 + s * (1. / 6227020800)))));
  double p = 1 + (r + s * (even + r * odd));
  int64_t e = (int64_t)n, most = e < -1000 ? -1000 : e > 1000 ? 1000 : e; /* the second factor is 1, or rounds what may be subnormal */
  return p * mt_power_of_2(most) * mt_power_of_2(e - most);
}

/* The logarithm of x = 2^e·(1+f), 1+f between √½ and √2: with s = f/(2+f) that of 1+f is
 * 2·artanh(s) = 2s + 2/3·s³ + 2/5·s⁵ ..., where f - s·f is 2s. */
static inline double mt_log(double x) {
  if (!(x > 0) || x == INFINITY) return x == 0 ? -INFINITY : x < 0 ? NAN : x;
  int64_t e = 0;
  if (x < 0x1p-1022) x *= 0x1p54, e = -54;
  const uint64_t root = 0x3fe6a09e667f3bcd; /* of a half */
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  bits += (1023ull << 52) - root;
  e += (int64_t)(bits >> 52) - 1023;
  bits = (bits & 0xfffffffffffff) + root;
  memcpy(&x, &bits, sizeof x);
  double f = x - 1, half = 0.5 * f * f, s = f / (2 + f), z = s * s;
  double rest = z * (2. / 3 + z * (2. / 5 + z * (2. / 7 + z * (2. / 9 + z * (2. / 11 + z * (2. / 13 + z * (2. / 15 + z * (2. / 17 + z * (2. / 19 + z * (2. / 21))))))))));
  return e * MT_LN2_HIGH - ((half - (s * (half + rest) + e * MT_LN2_LOW)) - f);
}

/* log(1+x): the logarithm of u = 1+x as it is rounded, and what rounding took, over u. */
static inline double mt_log1p(double x) {
  double u = 1 + x;
  if (!(u > 0) || u == INFINITY) return mt_log(u);
  return mt_log(u) + (x >= 1 ? 1 - (u - x) : x - (u - 1)) / u;
}

#endif
