/* Values of any dtype to f32, one and four at a time, and transposes made of
 * 4 x 4 blocks. Read under MT_ISA, after simd.h. */
#ifndef MT_GEMM_TRANSPOSE_H
#define MT_GEMM_TRANSPOSE_H
enum { MT_LINES_AHEAD = 8 };
typedef float mt_f4 __attribute__((vector_size(16)));
typedef int32_t mt_i4 __attribute__((vector_size(16)));
typedef uint32_t mt_u4 __attribute__((vector_size(16)));
typedef uint16_t mt_h4 __attribute__((vector_size(8)));

#ifdef __clang__
#define MT_MIX4(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define MT_MIX4(a, b, ...) __builtin_shuffle(a, b, (mt_i4){__VA_ARGS__})
#endif
#endif

V float K(one)(const void *p, int T, int64_t i) {
  if (T == MT_F32) return ((const float *)p)[i];
  uint16_t h = ((const uint16_t *)p)[i];
  if (T == MT_F16) return v_load_n(&h, MT_F16, 0, 1)[0];
  uint32_t u = (uint32_t)h << 16;
  float f;
  memcpy(&f, &u, sizeof f);
  return f;
}

V mt_f4 K(four)(const void *p, int T, int64_t i) {
  mt_f4 f;
  mt_h4 h;
  if (T == MT_F32) {
    memcpy(&f, (const float *)p + i, sizeof f);
    return f;
  }
  memcpy(&h, (const uint16_t *)p + i, sizeof h);
  if (T == MT_BF16) return (mt_f4)(__builtin_convertvector(h, mt_u4) << 16);
#if MT_ISA == MT_AVX2 || MT_ISA == MT_AVX512
  return (mt_f4)_mm_cvtph_ps(_mm_loadl_epi64((const __m128i *)((const uint16_t *)p + i)));
#else
  vf x = v_load_n(p, T, i, 4);
  memcpy(&f, &x, sizeof f);
  return f;
#endif
}

/* to[k·ld + l] = from[l·step + k] for l < lines and k < depth; 0 for the lines up
 * to width. */
V void K(transpose_as)(float *to, int64_t ld, int64_t width, const void *from, int T, int64_t step, int64_t lines, int64_t depth) {
  const int64_t l4 = lines & ~(int64_t)3, k4 = depth & ~(int64_t)3;
  for (int64_t l = 0; l < l4; l += 4)
    for (int64_t k = 0, s = l * step; k < k4; k += 4) {
      if (k * mt_element(T) % 64 == 0) /* so many lines at once are more than a processor follows by itself */
        for (int64_t q = MT_LINES_AHEAD; q < MT_LINES_AHEAD + 4; q++) __builtin_prefetch((const char *)from + (s + q * step + k) * mt_element(T));
      mt_f4 a = K(four)(from, T, s + k), b = K(four)(from, T, s + step + k), c = K(four)(from, T, s + 2 * step + k), d = K(four)(from, T, s + 3 * step + k);
      mt_f4 ab = MT_MIX4(a, b, 0, 4, 1, 5), ab2 = MT_MIX4(a, b, 2, 6, 3, 7), cd = MT_MIX4(c, d, 0, 4, 1, 5), cd2 = MT_MIX4(c, d, 2, 6, 3, 7);
      mt_f4 out[4] = {MT_MIX4(ab, cd, 0, 1, 4, 5), MT_MIX4(ab, cd, 2, 3, 6, 7), MT_MIX4(ab2, cd2, 0, 1, 4, 5), MT_MIX4(ab2, cd2, 2, 3, 6, 7)};
      for (int q = 0; q < 4; q++) memcpy(to + (k + q) * ld + l, &out[q], sizeof out[q]);
    }
  for (int64_t k = 0; k < depth; k++)
    for (int64_t l = k < k4 ? l4 : 0; l < width; l++) to[k * ld + l] = l < lines ? K(one)(from, T, l * step + k) : 0;
}

static void K(transpose)(float *to, int64_t ld, int64_t width, const void *from, int32_t dtype, int64_t step, int64_t lines, int64_t depth) {
  V_BY_DTYPE(dtype, K(transpose_as)(to, ld, width, from, T, step, lines, depth));
}
