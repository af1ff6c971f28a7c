/* GEMM for bf16 by the dot products of AVX512_BF16: two k a step, sums in f32. A panel has
 * pairs of k outermost, a pair of a line in 32 bits. */
#include "gemm.h"
#include "isa_level.h"

#ifdef MT_X86_SETS
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx2,fma,f16c")
#include <immintrin.h>
#include <string.h>

enum { ROWS = 8, VECTORS = 3, COLUMNS = 16 * VECTORS };

static inline uint32_t pair(const char *s, int64_t line, int64_t deep, int64_t l, int64_t k, int64_t lines, int64_t depth) {
  uint16_t low = 0, high = 0;
  if (l < lines && k < depth) memcpy(&low, s + (l * line + k * deep) * 2, 2);
  if (l < lines && k + 1 < depth) memcpy(&high, s + (l * line + (k + 1) * deep) * 2, 2);
  return low | (uint32_t)high << 16;
}

/* Four pairs of four lines that are contiguous in k. */
static inline void pack_square(uint32_t *to, int64_t width, const char *s, int64_t line) {
  __m128i x[4];
  for (int l = 0; l < 4; l++) x[l] = _mm_loadu_si128((const void *)(s + l * line * 2));
  __m128i a = _mm_unpacklo_epi32(x[0], x[1]), b = _mm_unpackhi_epi32(x[0], x[1]), c = _mm_unpacklo_epi32(x[2], x[3]), d = _mm_unpackhi_epi32(x[2], x[3]);
  _mm_storeu_si128((void *)to, _mm_unpacklo_epi64(a, c));
  _mm_storeu_si128((void *)(to + width), _mm_unpackhi_epi64(a, c));
  _mm_storeu_si128((void *)(to + 2 * width), _mm_unpacklo_epi64(b, d));
  _mm_storeu_si128((void *)(to + 3 * width), _mm_unpackhi_epi64(b, d));
}

/* A pair of rows whose lines are contiguous. */
static inline void pack_pair(uint32_t *to, const char *even, const char *odd, int64_t width) {
  for (int64_t l = 0; l < width; l += 8) {
    __m256i low = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)(even + l * 2))), high = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)(odd + l * 2)));
    _mm256_storeu_si256((void *)(to + l), _mm256_or_si256(low, _mm256_slli_epi32(high, 16)));
  }
}

static void pack(uint32_t *panel, int64_t width, const char *s, int64_t line, int64_t deep, int64_t lines, int64_t depth) {
  int64_t squares = deep == 1 ? lines & ~(int64_t)3 : 0, whole = deep == 1 ? depth & ~(int64_t)7 : 0; /* in squares */
  for (int64_t l = 0; l < squares; l += 4)
    for (int64_t k = 0; k < whole; k += 8) pack_square(panel + k / 2 * width + l, width, s + (l * line + k) * 2, line);
  for (int64_t k = 0; k < depth; k += 2) {
    uint32_t *to = panel + k / 2 * width;
    if (line == 1 && lines == width && k + 1 < depth) pack_pair(to, s + k * deep * 2, s + (k + 1) * deep * 2, width);
    else
      for (int64_t l = k < whole ? squares : 0; l < width; l++) to[l] = pair(s, line, deep, l, k, lines, depth);
  }
}

static void pack_a(void *panel, const gemm_operand *a, int64_t i, int64_t rows, int64_t k, int64_t depth) {
  pack(panel, ROWS, gemm_at(a, i, k), a->row, a->col, rows, depth);
}

static void pack_b(void *panel, const gemm_operand *b, int64_t j, int64_t columns, int64_t k, int64_t depth) {
  pack(panel, COLUMNS, gemm_at(b, k, j), b->col, b->row, columns, depth);
}

static void micro(int64_t depth, const void *pa, const void *pb, float *c, int32_t add, const void *next) {
  const int32_t *a = pa;
  const char *b = pb;
  __m512 sum[ROWS][VECTORS];
  (void)next; /* a panel is used long enough for the processor to prefetch by itself */
#pragma GCC unroll 8
  for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 3
    for (int j = 0; j < VECTORS; j++) sum[i][j] = _mm512_setzero_ps();
  if (add) /* they come while the others are made */
    for (int64_t at = 0; at < ROWS * COLUMNS; at += 16) _mm_prefetch((const char *)(c + at), _MM_HINT_T0);
  for (int64_t k = 0; k < depth; k += 2, a += ROWS, b += COLUMNS * 4) {
    __m512bh y[VECTORS];
    _mm_prefetch((const char *)(a + 16 * ROWS), _MM_HINT_T0);
#pragma GCC unroll 3
    for (int j = 0; j < VECTORS; j++) y[j] = (__m512bh)_mm512_loadu_si512(b + j * 64);
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++) {
      __m512bh x = (__m512bh)_mm512_set1_epi32(a[i]);
#pragma GCC unroll 3
      for (int j = 0; j < VECTORS; j++) sum[i][j] = _mm512_dpbf16_ps(sum[i][j], x, y[j]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 3
    for (int j = 0; j < VECTORS; j++) {
      float *p = c + i * COLUMNS + j * 16;
      _mm512_storeu_ps(p, add ? _mm512_add_ps(_mm512_loadu_ps(p), sum[i][j]) : sum[i][j]);
    }
}

/* Dot products of rows of A with columns of B that are contiguous in k, both as they lie:
 * every element has the same sum whatever block it is in. */
enum { DOT_ROWS = 6, DOT_COLUMNS = 4 };

static inline __attribute__((always_inline)) void dots_step(__m512 sum[][DOT_COLUMNS], const __m512bh *x, const __m512bh *y, int rows, int columns) {
#pragma GCC unroll 6
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
    for (int c = 0; c < columns; c++) sum[r][c] = _mm512_dpbf16_ps(sum[r][c], x[r], y[c]);
}

static inline __attribute__((always_inline)) void dots(const gemm_job *job, int64_t i, int64_t j, float *sums, int64_t ld, int rows, int columns, gemm_fetch fetch) {
  const char *a = gemm_at(&job->a, i, 0), *b = gemm_at(&job->b, 0, j);
  const int64_t a_step = job->a.row * 2, b_step = job->b.col * 2, whole = job->k & ~(int64_t)31;
  __m512 sum[DOT_ROWS][DOT_COLUMNS];
  __m512bh x[DOT_ROWS], y[DOT_COLUMNS];
#pragma GCC unroll 6
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
    for (int c = 0; c < columns; c++) sum[r][c] = _mm512_setzero_ps();
  /* Pairs of bf16, 32 along k at a time. */
  for (int64_t k = 0; k < whole; k += 32) {
    if (fetch.columns) {
#pragma GCC unroll 4
      for (int c = 0; c < columns; c++)
        if (fetch.columns >> c & 1) _mm_prefetch(b + c * b_step + k * 2 + fetch.ahead, _MM_HINT_T0);
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) x[r] = (__m512bh)_mm512_loadu_si512(a + r * a_step + k * 2);
#pragma GCC unroll 4
    for (int c = 0; c < columns; c++) y[c] = (__m512bh)_mm512_loadu_si512(b + c * b_step + k * 2);
    dots_step(sum, x, y, rows, columns);
  }
  /* What is left of k, with zeros behind it. */
  if (whole < job->k) {
    __mmask32 m = (__mmask32)((1ull << (job->k - whole)) - 1);
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) x[r] = (__m512bh)_mm512_maskz_loadu_epi16(m, a + r * a_step + whole * 2);
#pragma GCC unroll 4
    for (int c = 0; c < columns; c++) y[c] = (__m512bh)_mm512_maskz_loadu_epi16(m, b + c * b_step + whole * 2);
    dots_step(sum, x, y, rows, columns);
  }
#pragma GCC unroll 6
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
    for (int c = 0; c < columns; c++) sums[r * ld + c] = _mm512_reduce_add_ps(sum[r][c]);
}

static inline __attribute__((always_inline)) void dots_of_rows(const gemm_job *job, int64_t i, int64_t j, int64_t columns, float *sums, int64_t ld, int rows, int side, gemm_fetch fetch) {
  int64_t c = 0;
  for (; c + side <= columns; c += side) dots(job, i, j + c, sums + c, ld, rows, side, fetch);
  for (; c < columns; c++) dots(job, i, j + c, sums + c, ld, rows, 1, (gemm_fetch){0});
}

/* As gemm_kernels.c's, of A as it lies. */
static void by_row(const gemm_job *job, const gemm_tile *t, float *sums) {
  const int64_t rows = t->i1 - t->i0, columns = t->j1 - t->j0, once = rows <= GEMM_FEW, step = once ? DOT_COLUMNS : columns;
  const int64_t next = DOT_COLUMNS * job->b.col * 2;
  if (rows == 1) dots_of_rows(job, t->i0, t->j0, columns, sums, columns, 1, 1, (gemm_fetch){GEMM_AHEAD, 1});
  for (int64_t j = 0; j < columns && rows > 1; j += step) {
    int64_t n = columns - j < step ? columns - j : step, i = 0;
#define MT_ROWS(count)                                                                                      \
  {                                                                                                         \
    gemm_fetch fetch = gemm_next(next, once ? DOT_COLUMNS : 0, i, count, rows);                             \
    dots_of_rows(job, t->i0 + i, t->j0 + j, n, sums + i * columns + j, columns, count, DOT_COLUMNS, fetch); \
    i += count;                                                                                             \
  }
    while (i + DOT_ROWS <= rows) MT_ROWS(DOT_ROWS)
    if (i + 4 <= rows) MT_ROWS(4)
    if (i + 2 <= rows) MT_ROWS(2)
    if (i < rows) MT_ROWS(1)
#undef MT_ROWS
  }
  mt_gemm_kernels()->finish(job, t, sums, columns);
}

static const gemm_kernel kernel = {.mr = ROWS, .nr = COLUMNS, .k_unit = 2, .k_block = 512, .element = 2, .pack_a = pack_a, .pack_b = pack_b, .micro = micro};

#pragma GCC pop_options

const gemm_kernel *mt_gemm_bf16(void) { return mt_isa_dots() ? &kernel : NULL; }
gemm_by_row *mt_gemm_bf16_by_row(void) { return mt_isa_dots() ? by_row : NULL; }
#else
const gemm_kernel *mt_gemm_bf16(void) { return 0; }
gemm_by_row *mt_gemm_bf16_by_row(void) { return 0; }
#endif
