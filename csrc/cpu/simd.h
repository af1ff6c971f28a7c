/* Vectors of floats for the kernels, read once for each instruction set by
 * isa.h: LANES is 16 (AVX-512), 8 (AVX2 and MT_COMMON) or 4 (any other machine).
 * Functions of simd.h are always inlined, but for V_CALLED. Each function of
 * MT_COMMON gives the bits of AVX2's, except of a nan's sign and payload.
 *
 * T below is a value dtype (MT_F32, MT_BF16, MT_F16), a constant wherever speed
 * matters; p a pointer to its elements, i an index in elements. */

#ifndef MT_SIMD_NAMES /* one set of names for all readings */
#define MT_SIMD_NAMES
#include <math.h>
#include <string.h>
#define vf K(vf)
#define vi K(vi)
#define vu K(vu)
#define vh K(vh)
#define vd K(vd)
#define vw K(vw)
#define vm K(vm)
#define v_set K(v_set)
#define v_load K(v_load)
#define v_load_n K(v_load_n)
#define v_from_bf16 K(v_from_bf16)
#define v_from_f16 K(v_from_f16)
#define v_store K(v_store)
#define v_store_n K(v_store_n)
#define v_to_bf16 K(v_to_bf16)
#define v_to_f16 K(v_to_f16)
#define v_max K(v_max)
#define v_min K(v_min)
#define v_abs K(v_abs)
#define v_sqrt K(v_sqrt)
#define v_fma K(v_fma)
#define v_mad K(v_mad)
#define v_step K(v_step)
#define v_flushed K(v_flushed)
#define v_flush_begin K(v_flush_begin)
#define v_flush_end K(v_flush_end)
#define v_add_product K(v_add_product)
#define v_recip K(v_recip)
#define v_lt K(v_lt)
#define v_le K(v_le)
#define v_eq K(v_eq)
#define v_below K(v_below)
#define v_count K(v_count)
#define v_select K(v_select)
#define v_lo K(v_lo)
#define v_hi K(v_hi)
#define v_widened K(v_widened)
#define v_narrow K(v_narrow)
#define v_sum K(v_sum)
#define v_sum_d K(v_sum_d)
#define v_largest K(v_largest)
#define v_rounded K(v_rounded)
#define v_exp K(v_exp)
#define v_sigmoid K(v_sigmoid)
#define v_sigmoid_pair K(v_sigmoid_pair)
#define v_zip K(v_zip)
#define v_unzip K(v_unzip)
#define v_iota K(v_iota)

#define V static inline __attribute__((always_inline, unused))

/* x*y + z rounded once, where there is no instruction for it. The product is exact in f64; its
 * sum is rounded to odd, from which rounding to f32 gives what one rounding would (Boldo and
 * Melquiond, doi 10.1109/TC.2007.70819). */
V float mt_fma_by_parts(float x, float y, float z) {
  double p = (double)x * y, s = p + z, t = s - p;
  double rest = (p - (s - t)) + (z - t); /* of the sum, exactly; nan where the sum is not finite */
  int64_t bits;
  memcpy(&bits, &s, sizeof bits);
  int64_t toward = (rest > 0) == (s > 0) ? 1 : -1; /* a larger magnitude, or a smaller one */
  if (rest > 0 || rest < 0) bits += toward & ((bits & 1) - 1);
  memcpy(&s, &bits, sizeof s);
  return (float)s;
}

#ifdef __clang__
#define V_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define V_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (vu){__VA_ARGS__})
#endif

/* Runs a body for every LANES elements of n: i is the first, m their number,
 * LANES as a constant but for the last. */
#define V_EACH(n, i, m, ...)                                  \
  do {                                                        \
    int64_t i = 0;                                            \
    for (; i + LANES <= (n); i += LANES) {                    \
      enum { m = LANES };                                     \
      __VA_ARGS__                                             \
    }                                                         \
    if (i < (n)) {                                            \
      const int64_t m = (n) - i;                              \
      __VA_ARGS__                                             \
    }                                                         \
  } while (0)

/* Runs a statement with T constant; ops are called with no other dtype. */
#define V_VALUES (MT_BIT(MT_F32) | MT_BIT(MT_BF16) | MT_BIT(MT_F16))
#define V_BY_DTYPE(dtype, ...)                                \
  switch (dtype) {                                            \
  case MT_F32: { enum { T = MT_F32 }; __VA_ARGS__; break; }   \
  case MT_BF16: { enum { T = MT_BF16 }; __VA_ARGS__; break; } \
  case MT_F16: { enum { T = MT_F16 }; __VA_ARGS__; break; }   \
  }
#endif

#undef LANES
#undef V_CALLED
#if MT_ISA == MT_AVX512
#define LANES 16
#elif MT_ISA == MT_AVX2 || MT_ISA == MT_COMMON
#define LANES 8
#else
#define LANES 4
#endif

/* A function that is inlined, except where it takes too many instructions: those of MT_COMMON are a
 * vector in memory, and fused by parts. */
#if MT_ISA == MT_COMMON && !defined(__aarch64__)
#define V_CALLED __attribute__((noinline, unused)) static
#else
#define V_CALLED V
#endif

typedef float vf __attribute__((vector_size(LANES * 4)));
typedef int32_t vi __attribute__((vector_size(LANES * 4)));
typedef uint32_t vu __attribute__((vector_size(LANES * 4)));
typedef uint16_t vh __attribute__((vector_size(LANES * 2)));
typedef double vd __attribute__((vector_size(LANES * 4))); /* LANES/2 of them */
typedef uint64_t vw __attribute__((vector_size(LANES * 4)));
#if MT_ISA == MT_AVX512
typedef __mmask16 vm;
#else
typedef vi vm; /* all bits of a lane, or none */
#endif

V vf v_set(float x) { return x - (vf){0}; }

V vu v_iota(void) {
  vu r;
  for (int i = 0; i < LANES; i++) r[i] = i;
  return r;
}

/* ---- memory ---- */

V vf v_from_bf16(vh h) {
#if MT_ISA == MT_AVX512
  return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)h), 16);
#elif MT_ISA == MT_AVX2
  return (vf)_mm256_slli_epi32(_mm256_cvtepu16_epi32((__m128i)h), 16);
#else
  return (vf)(__builtin_convertvector(h, vu) << 16);
#endif
}

/* Round to nearest even; a nan stays one. */
V vh v_to_bf16(vf x) {
  vu u = (vu)x, r = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
#if MT_ISA == MT_AVX512
  r = (vu)_mm512_mask_mov_epi32((__m512i)r, _mm512_cmp_ps_mask((__m512)x, (__m512)x, _CMP_UNORD_Q), (__m512i)((u >> 16) | 0x40));
  return (vh)_mm512_cvtepi32_epi16((__m512i)r);
#else
  vu nan = (vu)(x != x);
  r = (nan & ((u >> 16) | 0x40)) | (~nan & r);
  return __builtin_convertvector(r, vh);
#endif
}

V vf v_from_f16(vh h) {
#if MT_ISA == MT_AVX512
  return (vf)_mm512_cvtph_ps((__m256i)h);
#elif MT_ISA == MT_AVX2
  return (vf)_mm256_cvtph_ps((__m128i)h);
#else
  vu u = __builtin_convertvector(h, vu), magnitude = u & 0x7fff;
  vu r = (vu)((vf)(magnitude << 13) * 0x1p112f); /* exponents 15 and 127: exact, subnormals too */
  r |= (vu)(magnitude >= 0x7c00) & 0x7f800000;   /* inf and nan */
  return (vf)(r | (u & 0x8000) << 16);
#endif
}

V vh v_to_f16(vf x) {
#if MT_ISA == MT_AVX512
  return (vh)_mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif MT_ISA == MT_AVX2
  return (vh)_mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
  vu u = (vu)x, a = u & 0x7fffffff;
  vu normal = (a - (112u << 23) + 0xfff + ((a >> 13) & 1)) >> 13;
  vu small = (vu)((vf)a + 0.5f) - 0x3f000000; /* below 2^-14: the sum rounds to multiples of 2^-24 */
  vu isSmall = (vu)(a < 0x38800000), isLarge = (vu)(a >= 0x47800000), isNan = (vu)(a > 0x7f800000);
  vu r = (isSmall & small) | (~isSmall & normal);
  r = (isLarge & 0x7c00) | (~isLarge & r);
  r |= isNan & (0x200 | (a >> 13 & 0x3ff));
  return __builtin_convertvector(r | (u >> 16 & 0x8000), vh);
#endif
}

/* LANES elements from i on, as f32. */
V vf v_load(const void *p, int T, int64_t i) {
  vf f;
  vh h;
  if (T == MT_F32) {
    memcpy(&f, (const float *)p + i, sizeof f);
    return f;
  }
  memcpy(&h, (const uint16_t *)p + i, sizeof h);
  return T == MT_BF16 ? v_from_bf16(h) : v_from_f16(h);
}

/* The same of m elements, 1 to LANES; 0 in the other lanes. Nothing beyond is read. */
V vf v_load_n(const void *p, int T, int64_t i, int64_t m) {
  if (m >= LANES) return v_load(p, T, i);
#if MT_ISA == MT_AVX512
  __mmask16 k = (__mmask16)((1u << m) - 1);
  if (T == MT_F32) return (vf)_mm512_maskz_loadu_ps(k, (const float *)p + i);
  vh h = (vh)_mm256_maskz_loadu_epi16(k, (const uint16_t *)p + i);
#else
  if (T == MT_F32) {
    vf f = {0};
    memcpy(&f, (const float *)p + i, m * sizeof(float));
    return f;
  }
  vh h = {0};
  memcpy(&h, (const uint16_t *)p + i, m * sizeof(uint16_t));
#endif
  return T == MT_BF16 ? v_from_bf16(h) : v_from_f16(h);
}

V void v_store(void *p, int T, int64_t i, vf x) {
  if (T == MT_F32) {
    memcpy((float *)p + i, &x, sizeof x);
    return;
  }
  vh h = T == MT_BF16 ? v_to_bf16(x) : v_to_f16(x);
  memcpy((uint16_t *)p + i, &h, sizeof h);
}

V void v_store_n(void *p, int T, int64_t i, int64_t m, vf x) {
  if (m >= LANES) {
    v_store(p, T, i, x);
    return;
  }
#if MT_ISA == MT_AVX512
  __mmask16 k = (__mmask16)((1u << m) - 1);
  if (T == MT_F32)
    _mm512_mask_storeu_ps((float *)p + i, k, (__m512)x);
  else
    _mm256_mask_storeu_epi16((uint16_t *)p + i, k, (__m256i)(T == MT_BF16 ? v_to_bf16(x) : v_to_f16(x)));
#else
  if (T == MT_F32) {
    memcpy((float *)p + i, &x, m * sizeof(float));
    return;
  }
  vh h = T == MT_BF16 ? v_to_bf16(x) : v_to_f16(x);
  memcpy((uint16_t *)p + i, &h, m * sizeof(uint16_t));
#endif
}

/* As stored and read again. */
V vf v_rounded(vf x, int T) { return T == MT_F32 ? x : T == MT_BF16 ? v_from_bf16(v_to_bf16(x)) : v_from_f16(v_to_f16(x)); }

/* ---- lanes ---- */

/* max and min: b where either is nan. */
V vf v_max(vf a, vf b) {
#if MT_ISA == MT_AVX512
  return (vf)_mm512_max_ps((__m512)a, (__m512)b);
#elif MT_ISA == MT_AVX2
  return (vf)_mm256_max_ps((__m256)a, (__m256)b);
#else
  vi k = a > b;
  return (vf)((k & (vi)a) | (~k & (vi)b));
#endif
}

V vf v_min(vf a, vf b) {
#if MT_ISA == MT_AVX512
  return (vf)_mm512_min_ps((__m512)a, (__m512)b);
#elif MT_ISA == MT_AVX2
  return (vf)_mm256_min_ps((__m256)a, (__m256)b);
#else
  vi k = a < b;
  return (vf)((k & (vi)a) | (~k & (vi)b));
#endif
}

V vf v_abs(vf x) { return (vf)((vi)x & 0x7fffffff); }

V vf v_sqrt(vf x) {
#if MT_ISA == MT_AVX512
  return (vf)_mm512_sqrt_ps((__m512)x);
#elif MT_ISA == MT_AVX2
  return (vf)_mm256_sqrt_ps((__m256)x);
#else
  for (int i = 0; i < LANES; i++) x[i] = sqrtf(x[i]);
  return x;
#endif
}

/* x*y + z, rounded once. */
V_CALLED vf v_fma(vf x, vf y, vf z) {
#if MT_ISA == MT_AVX512
  return (vf)_mm512_fmadd_ps((__m512)x, (__m512)y, (__m512)z);
#elif MT_ISA == MT_AVX2
  return (vf)_mm256_fmadd_ps((__m256)x, (__m256)y, (__m256)z);
#elif defined(__aarch64__)
  float32x4_t a[LANES / 4], b[LANES / 4], sum[LANES / 4];
  memcpy(a, &x, sizeof x), memcpy(b, &y, sizeof y), memcpy(sum, &z, sizeof z);
  for (int i = 0; i < LANES / 4; i++) sum[i] = vfmaq_f32(sum[i], a[i], b[i]);
  memcpy(&z, sum, sizeof z);
  return z;
#else
  for (int i = 0; i < LANES; i++) x[i] = mt_fma_by_parts(x[i], y[i], z[i]);
  return x;
#endif
}

/* x*y + z: rounded once where an instruction does that, and where all processors are to give the same. */
V vf v_mad(vf x, vf y, vf z) {
#if MT_ISA == MT_PORTABLE && !defined(__aarch64__)
  return x * y + z;
#else
  return v_fma(x, y, z);
#endif
}

/* Between begin and end operations read and give zero for subnormal numbers, where v_flushed stands around each operand and
 * each result. Compilers move operations across begin and end: they belong around a call that is not inlined. */
#if MT_ISA == MT_AVX512 || MT_ISA == MT_AVX2
V vf v_flushed(vf x) { return x; }
V uint64_t v_flush_begin(void) {
  enum { DAZ = 0x40, FTZ = 0x8000 };
  uint32_t before = _mm_getcsr();
  _mm_setcsr(before | DAZ | FTZ);
  return before;
}
V void v_flush_end(uint64_t before) { _mm_setcsr((uint32_t)before); }
#elif defined(__aarch64__)
V vf v_flushed(vf x) { return x; }
V uint64_t v_flush_begin(void) {
  const uint64_t fz = 1 << 24;
  uint64_t before;
  __asm__ volatile("mrs %0, fpcr" : "=r"(before));
  __asm__ volatile("msr fpcr, %0" : : "r"(before | fz) : "memory");
  return before;
}
V void v_flush_end(uint64_t before) { __asm__ volatile("msr fpcr, %0" : : "r"(before) : "memory"); }
#else
V vf v_flushed(vf x) {
  vi zero = ((vi)x & 0x7f800000) == 0;
  return (vf)((vi)x & (~zero | INT32_MIN)); /* the sign stays */
}
V uint64_t v_flush_begin(void) { return 0; }
V void v_flush_end(uint64_t before) { (void)before; }
#endif

/* A step of a polynomial: p*x + c. */
V vf v_step(vf p, vf x, float c) { return v_mad(p, x, v_set(c)); }

/* sum + x*y of numbers that were floats: the product is exact, so that it may be fused or not. */
V vd v_add_product(vd sum, vd x, vd y) {
#if MT_ISA == MT_AVX512
  return (vd)_mm512_fmadd_pd((__m512d)x, (__m512d)y, (__m512d)sum);
#elif MT_ISA == MT_AVX2
  return (vd)_mm256_fmadd_pd((__m256d)x, (__m256d)y, (__m256d)sum);
#else
  return sum + x * y;
#endif
}

V vm v_lt(vf a, vf b) {
#if MT_ISA == MT_AVX512
  return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_LT_OQ);
#else
  return a < b;
#endif
}

V vm v_le(vf a, vf b) {
#if MT_ISA == MT_AVX512
  return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_LE_OQ);
#else
  return a <= b;
#endif
}

V vm v_eq(vf a, vf b) {
#if MT_ISA == MT_AVX512
  return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_EQ_OQ);
#else
  return a == b;
#endif
}

/* a < b of unsigned integers. */
V vm v_below(vu a, vu b) {
#if MT_ISA == MT_AVX512
  return _mm512_cmplt_epu32_mask((__m512i)a, (__m512i)b);
#else
  return (vm)(a < b);
#endif
}

/* Lanes that hold among the first m. */
V int64_t v_count(vm k, int64_t m) {
#if MT_ISA == MT_AVX512
  return __builtin_popcount(k & ((1u << m) - 1));
#else
  int64_t n = 0;
  for (int64_t j = 0; j < m; j++) n -= k[j];
  return n;
#endif
}

/* a where k holds, else b. */
V vf v_select(vm k, vf a, vf b) {
#if MT_ISA == MT_AVX512
  return (vf)_mm512_mask_mov_ps((__m512)b, k, (__m512)a);
#else
  return (vf)((k & (vi)a) | (~k & (vi)b));
#endif
}

/* Lower and upper half as doubles. */
V vd v_lo(vf x) {
#if MT_ISA == MT_AVX512
  return (vd)_mm512_cvtps_pd(_mm512_castps512_ps256((__m512)x));
#elif MT_ISA == MT_AVX2
  return (vd)_mm256_cvtps_pd(_mm256_castps256_ps128((__m256)x));
#elif LANES == 8
  return (vd){x[0], x[1], x[2], x[3]};
#else
  return (vd){x[0], x[1]};
#endif
}

V vd v_hi(vf x) {
#if MT_ISA == MT_AVX512
  return (vd)_mm512_cvtps_pd(_mm512_extractf32x8_ps((__m512)x, 1));
#elif MT_ISA == MT_AVX2
  return (vd)_mm256_cvtps_pd(_mm256_extractf128_ps((__m256)x, 1));
#elif LANES == 8
  return (vd){x[4], x[5], x[6], x[7]};
#else
  return (vd){x[2], x[3]};
#endif
}

/* The floats of two halves. */
/* LANES/2 floats from p on. */
V vd v_widened(const float *p) {
#if MT_ISA == MT_AVX512
  return (vd)_mm512_cvtps_pd(_mm256_loadu_ps(p));
#elif MT_ISA == MT_AVX2
  return (vd)_mm256_cvtps_pd(_mm_loadu_ps(p));
#else
  vd x;
  for (int i = 0; i < LANES / 2; i++) x[i] = p[i];
  return x;
#endif
}

V vf v_narrow(vd lo, vd hi) {
#if MT_ISA == MT_AVX512
  return (vf)_mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps((__m512d)lo)), _mm512_cvtpd_ps((__m512d)hi), 1);
#elif MT_ISA == MT_AVX2
  return (vf)_mm256_set_m128(_mm256_cvtpd_ps((__m256d)hi), _mm256_cvtpd_ps((__m256d)lo));
#elif LANES == 8
  return (vf){(float)lo[0], (float)lo[1], (float)lo[2], (float)lo[3], (float)hi[0], (float)hi[1], (float)hi[2], (float)hi[3]};
#else
  return (vf){(float)lo[0], (float)lo[1], (float)hi[0], (float)hi[1]};
#endif
}

/* Sums and the maximum over lanes, halves folded onto each other: one order. */
V float v_sum(vf x) {
#if MT_ISA == MT_AVX512
  return _mm512_reduce_add_ps((__m512)x);
#else
  for (int n = LANES / 2; n > 0; n /= 2)
    for (int i = 0; i < n; i++) x[i] += x[i + n];
  return x[0];
#endif
}

V double v_sum_d(vd x) {
#if MT_ISA == MT_AVX512
  return _mm512_reduce_add_pd((__m512d)x);
#else
  for (int n = LANES / 4; n > 0; n /= 2)
    for (int i = 0; i < n; i++) x[i] += x[i + n];
  return x[0];
#endif
}

V float v_largest(vf x) {
#if MT_ISA == MT_AVX512
  return _mm512_reduce_max_ps((__m512)x);
#else
  for (int n = LANES / 2; n > 0; n /= 2)
    for (int i = 0; i < n; i++) x[i] = x[i] > x[i + n] ? x[i] : x[i + n];
  return x[0];
#endif
}

/* a0 b0 a1 b1 ... : the first and the second half. */
V void v_zip(vu a, vu b, vu *first, vu *second) {
#if LANES == 16
  *first = V_SHUFFLE(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  *second = V_SHUFFLE(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
#elif LANES == 8
  *first = V_SHUFFLE(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
  *second = V_SHUFFLE(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
#else
  *first = V_SHUFFLE(a, b, 0, 4, 1, 5);
  *second = V_SHUFFLE(a, b, 2, 6, 3, 7);
#endif
}

/* The inverse: even elements of (first, second) to a, odd ones to b. */
V void v_unzip(vu first, vu second, vu *a, vu *b) {
#if LANES == 16
  *a = V_SHUFFLE(first, second, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  *b = V_SHUFFLE(first, second, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
#elif LANES == 8
  *a = V_SHUFFLE(first, second, 0, 2, 4, 6, 8, 10, 12, 14);
  *b = V_SHUFFLE(first, second, 1, 3, 5, 7, 9, 11, 13, 15);
#else
  *a = V_SHUFFLE(first, second, 0, 2, 4, 6);
  *b = V_SHUFFLE(first, second, 1, 3, 5, 7);
#endif
}

/* ---- functions ---- */

/* e^x to about 1 ulp; 0 below -104, inf above 88.73, nan of nan. The polynomial
 * is a minimax fit of (e^r - 1 - r)/r^2 on |r| < 0.35. */
V_CALLED vf v_exp(vf x) {
  x = v_min(v_set(89), v_max(v_set(-104), x));
  vf n = v_step(x, v_set(1.44269504f), 12582912.f) - 12582912.f; /* nearest integer */
  vf r = v_mad(n, v_set(-0.693145751953125f), x);                /* ln 2 in two pieces, the first of 16 bits */
  r = v_mad(n, v_set(-1.42860677e-6f), r);
  vf p = v_set(0.001381574315018952f);
  p = v_step(p, r, 0.008368668146431446f);
  p = v_step(p, r, 0.04166833683848381f);
  p = v_step(p, r, 0.1666652262210846f);
  p = v_step(p, r, 0.4999999403953552f);
  p = v_mad(p, r * r, r) + 1.f;
#if MT_ISA == MT_AVX512
  return (vf)_mm512_scalef_ps((__m512)p, (__m512)n);
#else
  vi e = (vi)(n + 12582912.f) - 0x4b400000, half = e >> 1; /* in two steps: 2^n may leave the range of normal numbers */
  return p * (vf)((half + 127) << 23) * (vf)((e - half + 127) << 23);
#endif
}

/* 1/x, rounded, of finite normal x with a normal result. */
V vf v_recip(vf x) {
#if MT_ISA == MT_AVX512
  /* A division keeps the machine busy longer. Two steps of Newton's method round correctly, unless all bits of the
   * mantissa are 1 (Markstein 1990): then the result is one unit too small. */
  const __m512i mantissa = _mm512_set1_epi32(0x7fffff), one = _mm512_set1_epi32(1);
  vf r = (vf)_mm512_rcp14_ps((__m512)x);
  r = v_mad(r, v_mad(-x, r, v_set(1)), r);
  r = v_mad(r, v_mad(-x, r, v_set(1)), r);
  const __mmask16 ones = _mm512_cmpeq_epi32_mask(_mm512_and_si512((__m512i)x, mantissa), mantissa);
  return (vf)_mm512_mask_add_epi32((__m512i)r, ones, (__m512i)r, one);
#else
  return 1.f / x;
#endif
}

/* sigmoid(x) and, without cancellation, 1 - sigmoid(x); bounds keep clear of subnormal
 * numbers, which are slow. */
V_CALLED vf v_sigmoid_pair(vf x, vf *rest) {
  vf e = v_exp(-v_min(v_set(87), v_max(v_set(-87), x))), s = v_recip(1.f + e);
  *rest = e * s;
  return s;
}

V vf v_sigmoid(vf x) {
  vf rest;
  return v_sigmoid_pair(x, &rest);
}
