/* GEMM for f16 on AMX, whose tiles multiply bf16: a value of f16 is the sum of two of
 * bf16, without rest, so four products of tiles make one, all exact in f32. */
#include "amx_tiles.h"
#include "gemm.h"

#ifdef MT_HAS_AMX
#include <string.h>

enum { SIDE = 32, STEP = 32, STEP_BYTES = 4096, LOW = 2048, AHEAD = 8 }; /* a step: two tiles of high parts, two of low ones */

/* 16 lines by 32 k of high and low parts, as they lie in the source. An infinite
 * value's low part is nan, so that its sums are nan and made again (gemm_own.c). */
static inline void split(uint16_t *high, uint16_t *low, const char *s, int64_t line, int64_t deep) {
  const int64_t rows = deep == 1 ? 16 : 32, parts = deep == 1 ? 2 : 1, step = 2 * (deep == 1 ? line : deep);
  for (int64_t r = 0; r < rows; r++)
    for (int64_t p = 0; p < parts; p++, high += 16, low += 16) {
      __m512 x = _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(s + r * step + p * 32)));
      __m256i top = (__m256i)_mm512_cvtneps_pbh(x);
      __m512 rest = _mm512_sub_ps(x, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(top), 16)));
      _mm256_storeu_si256((void *)high, top);
      _mm256_storeu_si256((void *)low, (__m256i)_mm512_cvtneps_pbh(rest));
    }
}

static inline void pack_tile(char *out, const char *s, int64_t line, int64_t deep, int paired) {
  uint16_t high[16 * 32] __attribute__((aligned(64))), low[16 * 32] __attribute__((aligned(64)));
  split(high, low, s, line, deep);
  amx_pack_tile(out, (const char *)high, 32, deep == 1 ? 1 : 16, paired);
  amx_pack_tile(out + LOW, (const char *)low, 32, deep == 1 ? 1 : 16, paired);
}

/* A tile at an edge: what is not there is zero. */
static void pack_edge(char *out, const char *s, int64_t line, int64_t deep, int64_t lines, int64_t depth, int paired) {
  uint16_t part[16 * 32] = {0};
  for (int64_t l = 0; l < lines; l++)
    for (int64_t k = 0; k < depth; k++) memcpy(&part[deep == 1 ? l * 32 + k : k * 16 + l], s + (l * line + k * deep) * 2, 2);
  pack_tile(out, (const char *)part, deep == 1 ? 32 : 1, deep == 1 ? 1 : 16, paired);
}

static inline void pack(char *panel, const char *s, int64_t line, int64_t deep, int64_t lines, int64_t depth, int paired) {
  for (int64_t k = 0; k < depth; k += STEP, panel += STEP_BYTES, s += STEP * deep * 2)
    for (int64_t l = 0; l < SIDE; l += 16) {
      int64_t here = lines - l < 16 ? lines - l : 16, deepness = depth - k < STEP ? depth - k : STEP;
      amx_fetch_ahead(s + l * line * 2, line, deep);
      if (here == 16 && deepness == STEP) pack_tile(panel + l * 64, s + l * line * 2, line, deep, paired);
      else pack_edge(panel + l * 64, s + l * line * 2, line, deep, here, deepness, paired);
    }
}

static void pack_a(void *panel, const gemm_operand *a, int64_t i, int64_t rows, int64_t k, int64_t depth) {
  pack(panel, gemm_at(a, i, k), a->row, a->col, rows, depth, 0);
}

static void pack_b(void *panel, const gemm_operand *b, int64_t j, int64_t columns, int64_t k, int64_t depth) {
  pack(panel, gemm_at(b, k, j), b->col, b->row, columns, depth, 1);
}

/* The four sums += tiles 4, 5 · tiles 6, 7 */
static inline void multiply(void) {
  _tile_dpbf16ps(0, 4, 6);
  _tile_dpbf16ps(1, 4, 7);
  _tile_dpbf16ps(2, 5, 6);
  _tile_dpbf16ps(3, 5, 7);
}

static inline void load_a(const char *a) {
  _tile_loadd(4, a, 64);
  _tile_loadd(5, a + 1024, 64);
}

static inline void load_b(const char *b) {
  _tile_loadd(6, b, 64);
  _tile_loadd(7, b + 1024, 64);
}

static void micro(int64_t depth, const void *pa, const void *pb, float *c, int32_t add, const void *ahead) {
  const char *a = pa, *b = pb, *next = ahead;
  /* C, or zeros: 2 x 2 tiles of 16 x 16. */
  if (add) {
    _tile_loadd(0, c, SIDE * 4);
    _tile_loadd(1, c + 16, SIDE * 4);
    _tile_loadd(2, c + 16 * SIDE, SIDE * 4);
    _tile_loadd(3, c + 16 * SIDE + 16, SIDE * 4);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  /* A value is a high and a low part in bf16: high·high, low·high, low·low, high·low. */
  for (int64_t k = 0; k < depth; k += STEP, a += STEP_BYTES, b += STEP_BYTES, next += AHEAD * 64) {
    load_a(a);
    load_b(b);
    for (int i = 0; i < AHEAD; i++) _mm_prefetch(next + i * 64, _MM_HINT_T1);
    multiply();
    load_a(a + LOW);
    multiply();
    load_b(b + LOW);
    multiply();
    load_a(a);
    multiply();
  }
  _tile_stored(0, c, SIDE * 4);
  _tile_stored(1, c + 16, SIDE * 4);
  _tile_stored(2, c + 16 * SIDE, SIDE * 4);
  _tile_stored(3, c + 16 * SIDE + 16, SIDE * 4);
}

static const gemm_kernel kernel = {
    .mr = SIDE, .nr = SIDE, .k_unit = STEP, .k_block = 384, .element = 4, .splits = 1,
    .begin = amx_begin, .end = amx_end, .pack_a = pack_a, .pack_b = pack_b, .micro = micro,
};

const gemm_kernel *mt_gemm_amx_f16(void) { return &kernel; }

#else
const gemm_kernel *mt_gemm_amx_f16(void) { return 0; }
#endif
