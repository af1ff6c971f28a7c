/* bf16 and f16 as nvcc's headers have them: storage, and conversions that round
 * to nearest even. */
#ifndef MT_EMU_TYPES_H
#define MT_EMU_TYPES_H

#include <cstdint>
#include <cstring>

struct __nv_bfloat16 { uint16_t bits; };
struct __half { uint16_t bits; };

inline uint32_t mt_bits(float x) { uint32_t u; memcpy(&u, &x, 4); return u; }
inline float mt_float(uint32_t u) { float x; memcpy(&x, &u, 4); return x; }

inline float __bfloat162float(__nv_bfloat16 h) { return mt_float((uint32_t)h.bits << 16); }
inline __nv_bfloat16 __float2bfloat16_rn(float x) {
  uint32_t u = mt_bits(x);
  if ((u & 0x7fffffff) > 0x7f800000) return {0x7fff};
  return {(uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16)};
}

inline float __half2float(__half h) {
  uint32_t sign = (uint32_t)(h.bits & 0x8000) << 16, rest = h.bits & 0x7fff;
  if (rest >= 0x7c00) return mt_float(sign | 0x7f800000 | (rest & 0x3ff) << 13);
  if (rest >= 0x400) return mt_float(sign | (rest + (112 << 10)) << 13);
  float small = (float)rest * 0x1p-24f;
  return sign ? -small : small;
}
inline __half __float2half_rn(float x) {
  uint32_t u = mt_bits(x), sign = u >> 16 & 0x8000, rest = u & 0x7fffffff;
  if (rest > 0x7f800000) return {0x7fff};
  if (rest >= 0x477ff000) return {(uint16_t)(sign | 0x7c00)}; /* 65520 and more round to inf */
  if (rest < 0x38800000) {                                    /* subnormal: adding 1/2 rounds at 2^-24 */
    uint32_t r = mt_bits(mt_float(rest) + 0.5f) - 0x3f000000;
    return {(uint16_t)(sign | r)};
  }
  return {(uint16_t)(sign | (rest - (112u << 23) + 0xfff + (rest >> 13 & 1)) >> 13)};
}

template <typename T> using mt_type = T;

#endif
