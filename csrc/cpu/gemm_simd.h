/* Vectors of VL floats in GCC's vector extensions, and what GEMM and attention
 * compute with them. Included by files compiled once per instruction set, each
 * after its `#pragma GCC target`; everything here is therefore static. */
#ifndef MT_GEMM_SIMD_H
#define MT_GEMM_SIMD_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "../device/device.h"

#if defined(__AVX512F__)
#define VL 16
#elif defined(__AVX2__)
#define VL 8
#else
#define VL 4
#endif

typedef float vf __attribute__((vector_size(4 * VL)));
typedef float vf_any __attribute__((vector_size(4 * VL), aligned(4), may_alias));
typedef int32_t vi __attribute__((vector_size(4 * VL)));
typedef uint32_t vu __attribute__((vector_size(4 * VL)));
typedef uint16_t vh __attribute__((vector_size(2 * VL)));
typedef uint16_t vh_any __attribute__((vector_size(2 * VL), aligned(2), may_alias));

#define INLINE static inline __attribute__((always_inline, unused))

INLINE vf vf_load(const float *p) { return *(const vf_any *)p; }
INLINE void vf_store(float *p, vf x) { *(vf_any *)p = x; }
INLINE vf vf_set(float x) { return x - (vf){}; }
INLINE vf vf_select(vi mask, vf a, vf b) { return (vf)(((vi)a & mask) | ((vi)b & ~mask)); }
#if defined(__AVX512F__)
INLINE vf vf_max(vf a, vf b) { return (vf)_mm512_max_ps((__m512)a, (__m512)b); }
#elif defined(__AVX2__)
INLINE vf vf_max(vf a, vf b) { return (vf)_mm256_max_ps((__m256)a, (__m256)b); }
#else
INLINE vf vf_max(vf a, vf b) { return vf_select(a > b, a, b); }
#endif

INLINE float vf_sum(vf x) {
  float part[VL];
  vf_store(part, x);
  for (int w = VL / 2; w; w /= 2)
    for (int i = 0; i < w; i++) part[i] += part[i + w];
  return part[0];
}

INLINE float vf_top(vf x) {
  float part[VL];
  vf_store(part, x);
  for (int w = VL / 2; w; w /= 2)
    for (int i = 0; i < w; i++) part[i] = part[i] > part[i + w] ? part[i] : part[i + w];
  return part[0];
}

/* exp(x) for x <= 88, to about an ulp: 2^n · a polynomial on [-ln2/2, ln2/2].
 * Below -87 it is 0. */
INLINE vf vf_exp(vf x) {
  const float round = 12582912.0f; /* 1.5·2^23: adding it leaves the nearest integer in the low bits */
  vi tiny = x < -87.0f;
  x = vf_select(tiny, (vf){}, x);
  vf shifted = x * 1.44269504088896341f + round, n = shifted - round;
  vf r = x - n * 0.693145751953125f;
  r = r - n * 1.42860682030941723e-6f;
  vf p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  vf scale = (vf)(((vi)shifted - 0x4B400000 + 127) << 23);
  return vf_select(tiny, (vf){}, p * scale);
}

INLINE vf vf_from_bf16(vh x) { return (vf)(__builtin_convertvector(x, vu) << 16); }

/* Round to nearest even; a nan stays one. */
INLINE vh vf_to_bf16(vf x) {
  vu u = (vu)x, up = u + 0x7FFF + ((u >> 16) & 1);
  vu nan = (vu)(x != x);
  u = (up & ~nan) | ((u | 0x400000) & nan);
  return __builtin_convertvector(u >> 16, vh);
}

static inline float f16_to_f32(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 1023, u;
  float f;
  if (e == 0) {
    f = (float)m * 0x1p-24f;
    memcpy(&u, &f, 4);
    u |= sign;
  } else {
    u = sign | (e == 31 ? 0x7F800000 : (e + 112) << 23) | m << 13;
  }
  memcpy(&f, &u, 4);
  return f;
}

static inline uint16_t f32_to_f16(float f) {
  uint32_t u, sign;
  memcpy(&u, &f, 4);
  sign = u >> 16 & 0x8000;
  u &= 0x7FFFFFFF;
  if (u > 0x7F800000) return (uint16_t)(sign | 0x7E00);
  if (u >= 0x477FF000) return (uint16_t)(sign | 0x7C00);
  if (u < 0x38800000) { /* subnormal: let the adder round */
    float small;
    memcpy(&small, &u, 4);
    small += 0.5f; /* ulp of 0.5 is 2^-24, that of the result */
    memcpy(&u, &small, 4);
    return (uint16_t)(sign | (u - 0x3F000000));
  }
  u += 0xC8000FFF + (u >> 13 & 1);
  return (uint16_t)(sign | u >> 13);
}

INLINE vf vf_from_f16(vh x) {
#if defined(__AVX512F__)
  return (vf)_mm512_cvtph_ps((__m256i)x);
#elif defined(__F16C__)
  return (vf)_mm256_cvtph_ps((__m128i)x);
#else
  vf out;
  for (int i = 0; i < VL; i++) out[i] = f16_to_f32(x[i]);
  return out;
#endif
}

INLINE vh vf_to_f16(vf x) {
#if defined(__AVX512F__)
  return (vh)_mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT);
#elif defined(__F16C__)
  return (vh)_mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT);
#else
  vh out;
  for (int i = 0; i < VL; i++) out[i] = f32_to_f16(x[i]);
  return out;
#endif
}

/* VL values of any value dtype. */
INLINE vf vf_get(const void *p, int32_t dtype) {
  if (dtype == MT_F32) return vf_load(p);
  return dtype == MT_BF16 ? vf_from_bf16(*(const vh_any *)p) : vf_from_f16(*(const vh_any *)p);
}

INLINE void vf_put(void *p, int32_t dtype, vf x) {
  if (dtype == MT_F32) vf_store(p, x);
  else *(vh_any *)p = dtype == MT_BF16 ? vf_to_bf16(x) : vf_to_f16(x);
}

/* The same for the first n < VL values; the others read as 0. */
INLINE vf vf_get_n(const void *p, int32_t dtype, int64_t n) {
  _Alignas(64) char part[4 * VL] = {0};
  memcpy(part, p, (size_t)n * (dtype == MT_F32 ? 4 : 2));
  return vf_get(part, dtype);
}

INLINE void vf_put_n(void *p, int32_t dtype, vf x, int64_t n) {
  _Alignas(64) char part[4 * VL];
  vf_put(part, dtype, x);
  memcpy(p, part, (size_t)n * (dtype == MT_F32 ? 4 : 2));
}

#endif
