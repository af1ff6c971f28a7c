/* Values of any dtype to f32, one and four at a time, and transposes made of
 * 4 x 4 blocks. Read under MT_ISA, after simd.h. */
#ifndef MT_GEMM_TRANSPOSE_H
#define MT_GEMM_TRANSPOSE_H
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

V float K(one)(const void *p, int T, int64_t i) { return v_load_n(p, T, i, 1)[0]; }

V mt_f4 K(four)(const void *p, int T, int64_t i) {
  mt_f4 f;
  mt_h4 h;
  if (T == MT_F32) {
    memcpy(&f, (const float *)p + i, sizeof f);
    return f;
  }
  memcpy(&h, (const uint16_t *)p + i, sizeof h);
  if (T == MT_BF16) return (mt_f4)(__builtin_convertvector(h, mt_u4) << 16);
#if MT_ISA != MT_PORTABLE
  return (mt_f4)_mm_cvtph_ps(_mm_loadl_epi64((const __m128i *)((const uint16_t *)p + i)));
#else
  return (mt_f4)v_load_n(p, T, i, 4);
#endif
}

/* to[k·ld + l] = from[l·step + k] for l < lines and k < depth; 0 for the lines up
 * to width. */
V void K(transpose)(float *to, int64_t ld, int64_t width, const void *from, int T, int64_t step, int64_t lines, int64_t depth) {
  int64_t l = 0;
  for (; l + 4 <= lines; l += 4) {
    int64_t k = 0, s = l * step;
    for (; k + 4 <= depth; k += 4) {
      mt_f4 a = K(four)(from, T, s + k), b = K(four)(from, T, s + step + k), c = K(four)(from, T, s + 2 * step + k), d = K(four)(from, T, s + 3 * step + k);
      mt_f4 ab = MT_MIX4(a, b, 0, 4, 1, 5), ab2 = MT_MIX4(a, b, 2, 6, 3, 7), cd = MT_MIX4(c, d, 0, 4, 1, 5), cd2 = MT_MIX4(c, d, 2, 6, 3, 7);
      mt_f4 out[4] = {MT_MIX4(ab, cd, 0, 1, 4, 5), MT_MIX4(ab, cd, 2, 3, 6, 7), MT_MIX4(ab2, cd2, 0, 1, 4, 5), MT_MIX4(ab2, cd2, 2, 3, 6, 7)};
      for (int q = 0; q < 4; q++) memcpy(to + (k + q) * ld + l, &out[q], sizeof out[q]);
    }
    for (; k < depth; k++)
      for (int64_t q = 0; q < 4; q++) to[k * ld + l + q] = K(one)(from, T, s + q * step + k);
  }
  for (; l < width; l++)
    for (int64_t k = 0; k < depth; k++) to[k * ld + l] = l < lines ? K(one)(from, T, l * step + k) : 0;
}
