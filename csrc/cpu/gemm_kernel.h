/* The GEMM kernels of one instruction set, in f32: packing (which converts bf16
 * and f16), the micro-kernel, the epilogue, thin products. The includer sets the
 * target, NAME(x) for the symbols, and MR rows by NV vectors of accumulators.
 * Not a header in the usual sense: each includer gets its own copy. */
#include <stddef.h>

#include "gemm.h"
#include "gemm_simd.h"

enum { NR = NV * VL };

/* panel[k][width] from `lines` rows of `depth` contiguous values, a line `step`
 * values apart, 4 x 4 values at a time. */
typedef float v4 __attribute__((vector_size(16)));
typedef float v4_any __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t i4 __attribute__((vector_size(16)));
typedef uint32_t u4 __attribute__((vector_size(16)));
typedef uint16_t h4_any __attribute__((vector_size(8), aligned(2), may_alias));

INLINE v4 load4(const char *p, int32_t dtype) {
  if (dtype == MT_F32) return *(const v4_any *)p;
  if (dtype == MT_BF16) return (v4)(__builtin_convertvector(*(const h4_any *)p, u4) << 16);
#if defined(__F16C__)
  return (v4)_mm_cvtph_ps(_mm_loadl_epi64((const __m128i *)p));
#else
  const uint16_t *h = (const uint16_t *)p;
  return (v4){f16_to_f32(h[0]), f16_to_f32(h[1]), f16_to_f32(h[2]), f16_to_f32(h[3])};
#endif
}

INLINE float load1(const char *p, int32_t dtype) {
  uint16_t h;
  float f;
  if (dtype == MT_F32) {
    memcpy(&f, p, 4);
    return f;
  }
  memcpy(&h, p, 2);
  if (dtype == MT_F16) return f16_to_f32(h);
  uint32_t u = (uint32_t)h << 16;
  memcpy(&f, &u, 4);
  return f;
}

INLINE v4 shuffle4(v4 a, v4 b, i4 s) { return __builtin_shuffle(a, b, s); }

INLINE void pack_lines(float *panel, int64_t width, const char *src, int64_t step, int64_t lines, int64_t depth, int32_t dtype) {
  const int64_t size = dtype == MT_F32 ? 4 : 2;
  int64_t l = 0;
  for (; l + 4 <= lines; l += 4) {
    const char *s = src + l * step * size;
    int64_t k = 0;
    for (; k + 4 <= depth; k += 4) {
      v4 a = load4(s + k * size, dtype), b = load4(s + (step + k) * size, dtype);
      v4 c = load4(s + (2 * step + k) * size, dtype), d = load4(s + (3 * step + k) * size, dtype);
      v4 ab = shuffle4(a, b, (i4){0, 4, 1, 5}), AB = shuffle4(a, b, (i4){2, 6, 3, 7});
      v4 cd = shuffle4(c, d, (i4){0, 4, 1, 5}), CD = shuffle4(c, d, (i4){2, 6, 3, 7});
      float *out = panel + k * width + l;
      *(v4_any *)out = shuffle4(ab, cd, (i4){0, 1, 4, 5});
      *(v4_any *)(out + width) = shuffle4(ab, cd, (i4){2, 3, 6, 7});
      *(v4_any *)(out + 2 * width) = shuffle4(AB, CD, (i4){0, 1, 4, 5});
      *(v4_any *)(out + 3 * width) = shuffle4(AB, CD, (i4){2, 3, 6, 7});
    }
    for (; k < depth; k++)
      for (int64_t q = 0; q < 4; q++) panel[k * width + l + q] = load1(s + (q * step + k) * size, dtype);
  }
  for (; l < width; l++)
    for (int64_t k = 0; k < depth; k++) panel[k * width + l] = l < lines ? load1(src + (l * step + k) * size, dtype) : 0;
}

/* The same from `depth` rows of `lines` contiguous values. */
INLINE void pack_rows(float *panel, int64_t width, const char *src, int64_t step, int64_t lines, int64_t depth, int32_t dtype) {
  const int64_t size = dtype == MT_F32 ? 4 : 2;
  for (int64_t k = 0; k < depth; k++, panel += width, src += step * size) {
    if (lines == width && width % VL == 0) {
      for (int64_t l = 0; l < width; l += VL) vf_store(panel + l, vf_get(src + l * size, dtype));
      continue;
    }
    for (int64_t l = 0; l < width; l++) panel[l] = l < lines ? load1(src + l * size, dtype) : 0;
  }
}

/* x has `lines` along `line` and `depth` along `deep`; one of the two strides is 1. */
INLINE void pack(float *panel, int64_t width, const char *src, int64_t line, int64_t deep, int64_t lines, int64_t depth, int32_t dtype) {
  if (deep == 1) pack_lines(panel, width, src, line, lines, depth, dtype);
  else pack_rows(panel, width, src, deep, lines, depth, dtype);
}

/* Constants for the dtype and the width, so that the loops above specialise. */
#define BY_DTYPE(x, CALL)                   \
  switch ((x)->dtype) {                     \
    case MT_F32: CALL(MT_F32); break;       \
    case MT_BF16: CALL(MT_BF16); break;     \
    default: CALL(MT_F16);                  \
  }

static void pack_a(void *panel, const gemm_operand *a, int64_t i, int64_t rows, int64_t k, int64_t depth) {
#define CALL(dtype) pack(panel, MR, gemm_at(a, i, k), a->row, a->col, rows, depth, dtype)
  BY_DTYPE(a, CALL)
#undef CALL
}

static void pack_b(void *panel, const gemm_operand *b, int64_t k, int64_t depth, int64_t j, int64_t columns) {
#define CALL(dtype) pack(panel, NR, gemm_at(b, k, j), b->col, b->row, columns, depth, dtype)
  BY_DTYPE(b, CALL)
#undef CALL
}

static void micro(int64_t depth, const void *pa, const void *pb, float *c, int64_t ldc, int32_t add) {
  const float *a = pa, *b = pb;
  vf sum[MR][NV];
#pragma GCC unroll 16
  for (int i = 0; i < MR; i++) {
#pragma GCC unroll 4
    for (int j = 0; j < NV; j++) {
      sum[i][j] = (vf){};
      __builtin_prefetch(c + i * ldc + j * VL);
    }
  }
  for (int64_t k = 0; k < depth; k++, a += MR, b += NR) {
    vf y[NV];
    __builtin_prefetch(a + 16 * MR);
#pragma GCC unroll 4
    for (int j = 0; j < NV; j++) y[j] = vf_load(b + j * VL);
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++) {
      vf x = vf_set(a[i]);
#pragma GCC unroll 4
      for (int j = 0; j < NV; j++) sum[i][j] += x * y[j];
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < MR; i++) {
#pragma GCC unroll 4
    for (int j = 0; j < NV; j++) {
      float *p = c + i * ldc + j * VL;
      vf_store(p, add ? vf_load(p) + sum[i][j] : sum[i][j]);
    }
  }
}

/* x·sigmoid(2u), which is 0.5x(1+tanh u), u = √(2/π)(x + 0.044715x³). */
INLINE vf gelu_tanh(vf x) {
  vf e = (x + 0.044715f * (x * x * x)) * -1.5957691216057308f; /* -2u */
  e = vf_exp(vf_select(e > 80.0f, vf_set(80.0f), e));
  return x / (1.0f + e);
}

/* 0.5x(1+erf(x/√2)) through erfc (Abramowitz and Stegun 7.1.26, error below
 * 1.5e-7), which loses nothing where x is very negative. */
INLINE vf gelu_erf(vf x) {
  vf z = vf_select(x < 0.0f, -x, x) * 0.70710678118654752f;
  vf t = 1.0f / (1.0f + 0.3275911f * z);
  vf p = t * 1.061405429f - 1.453152027f;
  p = p * t + 1.421413741f;
  p = p * t - 0.284496736f;
  p = p * t + 0.254829592f;
  vf half = 0.5f * (p * t * vf_exp(-(z * z))); /* erfc(z)/2 */
  return x * vf_select(x < 0.0f, half, 1.0f - half);
}

INLINE void finish_vector(const gemm_job *job, int64_t i, int64_t j, vf x, int64_t n) {
  const int64_t size = job->dtype == MT_F32 ? 4 : 2;
  if (job->bias) x += n == VL ? vf_get(job->bias + j * size, job->dtype) : vf_get_n(job->bias + j * size, job->dtype, n);
  if (job->epilogue != MT_NO_EPILOGUE) {
    char *aux = job->aux + (i * job->ldaux + j) * size;
    if (n == VL) vf_put(aux, job->dtype, x);
    else vf_put_n(aux, job->dtype, x, n);
    x = job->epilogue == MT_GELU_TANH_EPILOGUE ? gelu_tanh(x) : gelu_erf(x);
  }
  char *c = job->c + (i * job->ldc + j) * (job->c_dtype == MT_F32 ? 4 : 2);
  if (n == VL) vf_put(c, job->c_dtype, x);
  else vf_put_n(c, job->c_dtype, x, n);
}

static void finish(const gemm_job *job, const gemm_tile *t, const float *sums, int64_t ld) {
  for (int64_t i = t->i0; i < t->i1; i++, sums += ld) {
    int64_t j = t->j0;
    for (; j + VL <= t->j1; j += VL) finish_vector(job, i, j, vf_load(sums + (j - t->j0)), VL);
    if (j < t->j1) finish_vector(job, i, j, vf_get_n(sums + (j - t->j0), MT_F32, t->j1 - j), t->j1 - j);
  }
}

/* A few rows of A (f32, [rows][depth] in the workspace) against rows of B that
 * are contiguous in k: dot products, B read once. */
INLINE void thin_dots(const gemm_job *job, const gemm_tile *t, const float *a, float *sums, int64_t rows, int32_t dtype) {
  const int64_t size = dtype == MT_F32 ? 4 : 2, k = job->k, columns = t->j1 - t->j0, whole = k - k % VL;
  for (int64_t j = 0; j < columns; j++) {
    const char *b = gemm_at(&job->b, 0, t->j0 + j);
    vf sum[MT_GEMM_THIN] = {};
    for (int64_t p = 0; p < whole; p += VL) {
      vf y = vf_get(b + p * size, dtype);
      for (int64_t i = 0; i < rows; i++) sum[i] += vf_load(a + i * k + p) * y;
    }
    vf y = vf_get_n(b + whole * size, dtype, k - whole);
    for (int64_t i = 0; i < rows; i++)
      sums[i * columns + j] = vf_sum(sum[i] + vf_get_n(a + i * k + whole, MT_F32, k - whole) * y);
  }
}

static void thin(const gemm_job *job, const gemm_tile *t, float *workspace) {
  const int64_t rows = t->i1 - t->i0, k = job->k, columns = t->j1 - t->j0;
  float *a = workspace, *sums = a + rows * k;
  for (int64_t i = 0; i < rows; i++)
    for (int64_t p = 0; p < k; p++) a[i * k + p] = load1(gemm_at(&job->a, t->i0 + i, p), job->dtype);
#define ROWS(n, dtype) case n: thin_dots(job, t, a, sums, n, dtype); break;
#define CALL(dtype) switch (rows) { ROWS(1, dtype) ROWS(2, dtype) ROWS(3, dtype) ROWS(4, dtype) }
  BY_DTYPE(&job->b, CALL)
#undef CALL
  if (!job->accumulate) return finish(job, t, sums, columns);
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < columns; j++) ((float *)job->c)[(t->i0 + i) * job->ldc + t->j0 + j] += sums[i * columns + j];
}

static const gemm_kernel kernel = {
    .name = ISA, .mr = MR, .nr = NR, .k_unit = 1, .k_block = K_BLOCK, .element = 4,
    .pack_a = pack_a, .pack_b = pack_b, .micro = micro,
};

const gemm_kernels NAME = {.f32 = &kernel, .finish = finish, .thin = thin};
