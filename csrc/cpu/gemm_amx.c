/* GEMM for bf16 on AMX: C in 2 x 2 tile registers of 16 x 16 sums, 32 k a step. */
#include "amx.h"
#include "amx_tiles.h"
#include "gemm.h"

#ifdef MT_HAS_AMX
#define MT_ISA MT_AVX512
#define K(name) name##_gemm_amx
#include "simd.h"

#include "gelu.h"

enum { SIDE = 32, STEP = AMX_STEP, STEP_BYTES = 2048, AHEAD = 4 }; /* both panels: 2 tiles of 1 KB a step; lines fetched in each */

/* A tile at an edge: what is not there is zero. */
static void pack_edge(char *out, const char *s, int64_t line, int64_t deep, int64_t lines, int64_t depth, int paired) {
  uint16_t part[16 * 32] = {0};
  for (int64_t l = 0; l < lines; l++)
    for (int64_t k = 0; k < depth; k++) memcpy(&part[deep == 1 ? l * 32 + k : k * 16 + l], s + (l * line + k * deep) * 2, 2);
  amx_pack_tile(out, (const char *)part, deep == 1 ? 32 : 1, deep == 1 ? 1 : 16, paired);
}

static inline void fetch_and_pack(char *out, const char *s, int64_t line, int64_t deep, int paired) {
  amx_fetch_ahead(s, line, deep);
  amx_pack_tile(out, s, line, deep, paired);
}

static inline void pack(char *panel, const char *s, int64_t line, int64_t deep, int64_t lines, int64_t depth, int paired) {
  for (int64_t k = 0; k < depth; k += STEP, panel += STEP_BYTES, s += STEP * deep * 2) {
    for (int64_t l = 0; l < SIDE; l += 16) {
      char *out = panel + l * 64;
      int64_t here = lines - l < 16 ? lines - l : 16, deepness = depth - k < STEP ? depth - k : STEP;
      if (here == 16 && deepness == STEP) fetch_and_pack(out, s + l * line * 2, line, deep, paired);
      else pack_edge(out, s + l * line * 2, line, deep, here, deepness, paired);
    }
  }
}

static void pack_a(void *panel, const gemm_operand *a, int64_t i, int64_t rows, int64_t k, int64_t depth) {
  pack(panel, gemm_at(a, i, k), a->row, a->col, rows, depth, 0);
}

static void pack_b(void *panel, const gemm_operand *b, int64_t j, int64_t columns, int64_t k, int64_t depth) {
  pack(panel, gemm_at(b, k, j), b->col, b->row, columns, depth, 1);
}

/* A step of a panel, to the L1 cache. */
static inline void fetch_step(const char *p) {
#pragma GCC unroll 32
  for (int i = 0; i < STEP_BYTES; i += 64) _mm_prefetch(p + i, _MM_HINT_T0);
}

/* Where two threads share a core it has no tile registers to spare: a product waits
 * for the load before it, and a load for its cache lines. So a register is loaded as
 * soon as its last product is under way, from the L1 cache. */
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
  /* Tiles 4 and 5 have A, 6 and 7 have B; each is loaded again behind the last product that takes it. */
  if (depth > 0) {
    _tile_loadd(4, a, 64);
    _tile_loadd(6, b, 64);
    _tile_loadd(5, a + 1024, 64);
    _tile_loadd(7, b + 1024, 64);
    for (int64_t k = STEP; k < depth; k += STEP, next += AHEAD * 64) {
      a += STEP_BYTES;
      b += STEP_BYTES;
      _tile_dpbf16ps(0, 4, 6);
      for (int i = 0; i < AHEAD; i++) _mm_prefetch(next + i * 64, _MM_HINT_T1);
      fetch_step(a + STEP_BYTES);
      _tile_dpbf16ps(2, 5, 6);
      _tile_loadd(6, b, 64);
      _tile_dpbf16ps(1, 4, 7);
      _tile_loadd(4, a, 64);
      fetch_step(b + STEP_BYTES);
      _tile_dpbf16ps(3, 5, 7);
      _tile_loadd(5, a + 1024, 64);
      _tile_loadd(7, b + 1024, 64);
    }
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, c, SIDE * 4);
  _tile_stored(1, c + 16, SIDE * 4);
  _tile_stored(2, c + 16 * SIDE, SIDE * 4);
  _tile_stored(3, c + 16 * SIDE + 16, SIDE * 4);
}

/* As gemm_kernels.c's, of 32 x 32: a row of bf16 is a cache line. */
V void K(finish_as)(const gemm_job *job, int64_t i, int64_t j, const float *sums, int wide, int epilogue) {
  vf b0 = {0}, b1 = {0};
  /* Bias, what is there, epilogue; then the type and the way of storing. */
  if (job->bias) {
    b0 = v_load(job->bias, MT_BF16, j);
    b1 = v_load(job->bias, MT_BF16, j + 16);
  }
  for (int64_t r = 0; r < SIDE; r++, sums += SIDE) {
    char *c = job->c + ((i + r) * job->ldc + j) * (wide ? 4 : 2);
    vf x0 = v_load(sums, MT_F32, 0) + b0, x1 = v_load(sums, MT_F32, 16) + b1;
    if (job->accumulate) {
      x0 += v_load(c, MT_F32, 0);
      x1 += v_load(c, MT_F32, 16);
    }
    if (epilogue != MT_NO_EPILOGUE) {
      void *aux = job->aux + ((i + r) * job->ldaux + j) * 2;
      __m512i both = (__m512i)_mm512_cvtne2ps_pbh((__m512)x1, (__m512)x0);
      if (job->stream_aux) _mm512_stream_si512(aux, both);
      else _mm512_storeu_si512(aux, both);
      x0 = epilogue == MT_GELU_TANH_EPILOGUE ? v_gelu_tanh_rough(x0) : v_gelu_erf(x0);
      x1 = epilogue == MT_GELU_TANH_EPILOGUE ? v_gelu_tanh_rough(x1) : v_gelu_erf(x1);
    }
    if (job->stream) {
      _mm512_stream_ps((float *)c, (__m512)x0);
      _mm512_stream_ps((float *)c + 16, (__m512)x1);
    } else if (wide) {
      v_store(c, MT_F32, 0, x0);
      v_store(c, MT_F32, 16, x1);
    } else {
      _mm512_storeu_si512(c, (__m512i)_mm512_cvtne2ps_pbh((__m512)x1, (__m512)x0));
    }
  }
}

static void finish(const gemm_job *job, int64_t i, int64_t j, const float *sums) {
  int wide = job->c_dtype == MT_F32;
  switch (job->epilogue) {
  case MT_NO_EPILOGUE:
    if (wide) K(finish_as)(job, i, j, sums, 1, MT_NO_EPILOGUE);
    else K(finish_as)(job, i, j, sums, 0, MT_NO_EPILOGUE);
    break;
  case MT_GELU_TANH_EPILOGUE: K(finish_as)(job, i, j, sums, wide, MT_GELU_TANH_EPILOGUE); break;
  case MT_GELU_ERF_EPILOGUE: K(finish_as)(job, i, j, sums, wide, MT_GELU_ERF_EPILOGUE);
  }
  if (job->stream || job->stream_aux) _mm_sfence(); /* other threads read C after this tile */
}

#define KERNEL                                                        \
  .mr = SIDE, .nr = SIDE, .k_unit = STEP, .k_block = 768, .element = 2, \
  .begin = amx_begin, .end = amx_end, .pack_a = pack_a, .pack_b = pack_b, .micro = micro

static const gemm_kernel kernel = {KERNEL, .finish = finish};
static const gemm_kernel ordered = {KERNEL}; /* its results are rounded as those of other sets */

const gemm_kernel *mt_gemm_amx(void) { return &kernel; }
const gemm_kernel *mt_gemm_amx_ordered(void) { return &ordered; }

void mt_amx_tiles(int64_t rounds) {
  amx_begin();
  for (int64_t i = 0; i < rounds; i++) {
    _tile_dpbf16ps(0, 6, 7);
    _tile_dpbf16ps(1, 6, 7);
    _tile_dpbf16ps(2, 6, 7);
    _tile_dpbf16ps(3, 6, 7);
  }
  amx_end();
}

double mt_amx_tiles_operations(void) { return 4 * 2.0 * 16 * 16 * STEP; }

#else
const gemm_kernel *mt_gemm_amx(void) { return 0; }
const gemm_kernel *mt_gemm_amx_ordered(void) { return 0; }
void mt_amx_tiles(int64_t rounds) {}
double mt_amx_tiles_operations(void) { return 0; }
#endif
