/* GEMM for bf16 on AMX: C in 2 x 2 tile registers of 16 x 16 sums, 32 k a step.
 * A tile of A is 16 rows of 32 k; a tile of B is 16 pairs of k by 16 columns, the
 * two of a pair side by side. */
#include "gemm.h"

#if defined(__x86_64__) && defined(__linux__) && (defined(__clang__) || __GNUC__ >= 11)
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,amx-tile,amx-bf16")
#include <cpuid.h>
#include <immintrin.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SIDE = 32, STEP = 32, STEP_BYTES = 2048 }; /* both panels: 2 tiles of 1 KB a step */

typedef struct {
  uint8_t palette, start, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
} tile_config;

/* Eight full tiles. A constant in memory: GCC's intrinsic tells the optimiser of
 * the first eight bytes only. */
static const tile_config eight __attribute__((aligned(64))) = {
    .palette = 1, .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};

static void begin(void) { _tile_loadconfig(&eight); }

static void end(void) { _tile_release(); } /* so that a thread switch does not save 8 KB */

/* 16 x 16 values of 32 bits, r[i] lane j <-> r[j] lane i. */
static inline __attribute__((always_inline)) void transpose(__m512i r[16]) {
  __m512i t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xDD);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xDD);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xDD);
    r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
    r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xDD);
  }
}

/* r[p] = rows 2p and 2p+1 of 16 columns, interleaved. step in bytes. */
static inline __attribute__((always_inline)) void load_pairs(__m512i r[16], const char *s, int64_t step) {
  const __m512i mix = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
#pragma GCC unroll 16
  for (int p = 0; p < 16; p++) {
    __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256((const void *)(s + 2 * p * step))),
                                      _mm256_loadu_si256((const void *)(s + (2 * p + 1) * step)), 1);
    r[p] = _mm512_permutexvar_epi16(mix, both);
  }
}

static inline __attribute__((always_inline)) void load_lines(__m512i r[16], const char *s, int64_t step) {
#pragma GCC unroll 16
  for (int i = 0; i < 16; i++) r[i] = _mm512_loadu_si512(s + i * step);
}

static inline __attribute__((always_inline)) void store_tile(char *out, const __m512i r[16]) {
#pragma GCC unroll 16
  for (int i = 0; i < 16; i++) _mm512_store_si512(out + i * 64, r[i]);
}

/* One tile of 16 lines by 32 k. Lines lie k-contiguous (`deep` 1) or side by side;
 * `paired` is B's form. */
static inline void pack_tile(char *out, const char *s, int64_t line, int64_t deep, int paired) {
  __m512i r[16];
  if (deep == 1) load_lines(r, s, line * 2);
  else load_pairs(r, s, deep * 2);
  if ((deep == 1) == (paired != 0)) transpose(r);
  store_tile(out, r);
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
    .name = "amx_bf16", .mr = SIDE, .nr = SIDE, .k_unit = STEP, .k_block = 768, .element = 2,
    .begin = begin, .end = end, .pack_a = pack_a, .pack_b = pack_b, .micro = micro,
};

/* The processor must have the tiles, and Linux be asked for their state. */
const gemm_kernel *mt_gemm_amx(void) {
  enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
  unsigned a, b, c, d;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d >> 22 & 1) || !(d >> 24 & 1)) return NULL;
  return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0 ? &kernel : NULL;
}

#else
const gemm_kernel *mt_gemm_amx(void) { return 0; }
#endif
