/* Sums of f64 on a grid (op_exact.go): what is added is rounded to multiples of a power of two
 * by adding 1.5·2^52 of them and taking that away again. Read under MT_ISA, after simd.h. */
#ifndef MT_EXACT_H
#define MT_EXACT_H
#define v_magic K(v_magic)
#define v_add_on_grid K(v_add_on_grid)
#define v_magnitude K(v_magnitude)
#define v_larger K(v_larger)
#define v_largest_bits K(v_largest_bits)
#endif

/* What rounds to multiples of grid. */
V vd v_magic(double grid) { return grid * 6755399441055744. - (vd){0}; }

/* sum[0..m-1] += lo and hi, rounded. */
V void v_add_on_grid(double *sum, int64_t m, vd lo, vd hi, vd magic) {
  vd a = {0}, b = {0};
  lo = (lo + magic) - magic, hi = (hi + magic) - magic;
  if (m == LANES) {
    memcpy(&a, sum, sizeof a), memcpy(&b, sum + LANES / 2, sizeof b);
    a += lo, b += hi;
    memcpy(sum, &a, sizeof a), memcpy(sum + LANES / 2, &b, sizeof b);
    return;
  }
  for (int64_t j = 0; j < m; j++) sum[j] += j < LANES / 2 ? lo[j] : hi[j - LANES / 2];
}

/* Magnitudes as integers are in the order of the numbers, a nan the largest. */
V vi v_magnitude(vf x) { return (vi)x & 0x7fffffff; }

V vi v_larger(vi a, vi b) {
#if MT_ISA == MT_AVX512
  return (vi)_mm512_max_epi32((__m512i)a, (__m512i)b);
#elif MT_ISA == MT_AVX2
  return (vi)_mm256_max_epi32((__m256i)a, (__m256i)b);
#else
  vi k = a > b;
  return (k & a) | (~k & b);
#endif
}

V int32_t v_largest_bits(vi x) {
  int32_t most = 0;
  for (int j = 0; j < LANES; j++) most = x[j] > most ? x[j] : most;
  return most;
}
