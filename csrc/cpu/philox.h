/* Random words as device/philox.go makes them. Read under MT_ISA, after simd.h. */
#ifndef MT_PHILOX_H
#define MT_PHILOX_H

#define v_mul_wide K(v_mul_wide)
#define v_philox K(v_philox)
#define v_words K(v_words)

static inline uint64_t mt_mix(uint64_t x) { /* the finaliser of splitmix64 */
  x += 0x9E3779B97F4A7C15;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
  x = (x ^ x >> 27) * 0x94D049BB133111EB;
  return x ^ x >> 31;
}

/* The key of a stream at a step, an i64 in memory. */
static inline uint64_t mt_step_key(uint64_t stream, const mt_tensor *step) {
  return mt_mix(stream ^ mt_mix((uint64_t) * (const int64_t *)step->data));
}

/* A word below it drops its element. */
static inline uint32_t mt_drop_threshold(float rate) {
  double t = (double)rate * 4294967296.0;
  return t < 4294967295.0 ? (uint32_t)t : 0xffffffff;
}
#endif

V void v_mul_wide(vu a, uint32_t b, vu *hi, vu *lo) {
#if MT_ISA == MT_AVX512
  __m512i m = _mm512_set1_epi32(b);
  __m512i even = _mm512_mul_epu32((__m512i)a, m), odd = _mm512_mul_epu32(_mm512_srli_epi64((__m512i)a, 32), m);
  *hi = (vu)_mm512_mask_shuffle_epi32(odd, 0x5555, even, _MM_PERM_CDAB);
  *lo = (vu)_mm512_mask_shuffle_epi32(even, 0xaaaa, odd, _MM_PERM_CDAB);
#elif MT_ISA == MT_AVX2
  __m256i m = _mm256_set1_epi32(b);
  __m256i even = _mm256_mul_epu32((__m256i)a, m), odd = _mm256_mul_epu32(_mm256_srli_epi64((__m256i)a, 32), m);
  *hi = (vu)_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
  *lo = (vu)_mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
#else
  for (int i = 0; i < LANES; i++) {
    uint64_t p = (uint64_t)a[i] * b;
    (*hi)[i] = p >> 32;
    (*lo)[i] = p;
  }
#endif
}

/* Philox4x32-10 of LANES counters, word w of each in c[w]: counters in, random
 * words out. */
V void v_philox(uint64_t key, vu c[4]) {
  uint32_t k0 = key, k1 = key >> 32;
  for (int round = 0; round < 10; round++) {
    vu h0, l0, h1, l1;
    v_mul_wide(c[0], 0xD2511F53, &h0, &l0);
    v_mul_wide(c[2], 0xCD9E8D57, &h1, &l1);
    c[0] = h1 ^ c[1] ^ k0;
    c[1] = l1;
    c[2] = h0 ^ c[3] ^ k1;
    c[3] = l0;
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
}

/* The 4·LANES words of the counters (c0, c1, c2, c3), (c0+1, c1, c2, c3), ... in
 * the order of their elements. */
V void v_words(uint64_t key, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, vu out[4]) {
  const vu zero = {0};
  vu c[4] = {v_iota() + c0, zero + c1, zero + c2, zero + c3}, even[2], odd[2];
  v_philox(key, c);
  v_zip(c[0], c[2], &even[0], &even[1]);
  v_zip(c[1], c[3], &odd[0], &odd[1]);
  v_zip(even[0], odd[0], &out[0], &out[1]);
  v_zip(even[1], odd[1], &out[2], &out[3]);
}
