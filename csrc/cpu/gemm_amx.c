/* GEMM for bf16 on AMX: C in 2 x 2 tile registers of 16 x 16 sums, 32 k a step. */
#include "amx_tiles.h"
#include "gemm.h"

#ifdef MT_HAS_AMX
#include <string.h>

enum { SIDE = 32, STEP = 32, STEP_BYTES = 2048 }; /* both panels: 2 tiles of 1 KB a step */

/* One tile of 16 lines by 32 k. Lines lie k-contiguous (`deep` 1) or side by side;
 * `paired` is B's form. */
static inline void pack_tile(char *out, const char *s, int64_t line, int64_t deep, int paired) {
  __m512i r[16];
  if (deep == 1) amx_load_lines(r, s, line * 2);
  else amx_load_pairs(r, s, deep * 2);
  if ((deep == 1) == (paired != 0)) amx_transpose(r);
  amx_store(out, 64, r);
}

/* The same at an edge: what is not there is zero. */
static void pack_edge(char *out, const char *s, int64_t line, int64_t deep, int64_t lines, int64_t depth, int paired) {
  uint16_t part[16 * 32] = {0};
  for (int64_t l = 0; l < lines; l++)
    for (int64_t k = 0; k < depth; k++) memcpy(&part[deep == 1 ? l * 32 + k : k * 16 + l], s + (l * line + k * deep) * 2, 2);
  pack_tile(out, (const char *)part, deep == 1 ? 32 : 1, deep == 1 ? 1 : 16, paired);
}

static inline void pack(char *panel, const char *s, int64_t line, int64_t deep, int64_t lines, int64_t depth, int paired) {
  for (int64_t k = 0; k < depth; k += STEP, panel += STEP_BYTES, s += STEP * deep * 2) {
    for (int64_t l = 0; l < SIDE; l += 16) {
      char *out = panel + l * 64;
      int64_t here = lines - l < 16 ? lines - l : 16, deepness = depth - k < STEP ? depth - k : STEP;
      if (here == 16 && deepness == STEP) pack_tile(out, s + l * line * 2, line, deep, paired);
      else pack_edge(out, s + l * line * 2, line, deep, here, deepness, paired);
    }
  }
}

static void pack_a(void *panel, const gemm_operand *a, int64_t i, int64_t rows, int64_t k, int64_t depth) {
  pack(panel, gemm_at(a, i, k), a->row, a->col, rows, depth, 0);
}

static void pack_b(void *panel, const gemm_operand *b, int64_t k, int64_t depth, int64_t j, int64_t columns) {
  pack(panel, gemm_at(b, k, j), b->col, b->row, columns, depth, 1);
}

static void micro(int64_t depth, const void *pa, const void *pb, float *c, int64_t ldc, int32_t add) {
  const char *a = pa, *b = pb;
  float *low = c + 16 * ldc;
  if (add) {
    _tile_loadd(0, c, ldc * 4);
    _tile_loadd(1, c + 16, ldc * 4);
    _tile_loadd(2, low, ldc * 4);
    _tile_loadd(3, low + 16, ldc * 4);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t k = 0; k < depth; k += STEP, a += STEP_BYTES, b += STEP_BYTES) {
    _tile_loadd(4, a, 64);
    _tile_loadd(6, b, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + 1024, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a + 1024, 64);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, c, ldc * 4);
  _tile_stored(1, c + 16, ldc * 4);
  _tile_stored(2, low, ldc * 4);
  _tile_stored(3, low + 16, ldc * 4);
}

static const gemm_kernel kernel = {
    .mr = SIDE, .nr = SIDE, .k_unit = STEP, .k_block = 768, .element = 2,
    .begin = amx_begin, .end = amx_end, .pack_a = pack_a, .pack_b = pack_b, .micro = micro,
};

const gemm_kernel *mt_gemm_amx(void) { return &kernel; }

#else
const gemm_kernel *mt_gemm_amx(void) { return 0; }
#endif
