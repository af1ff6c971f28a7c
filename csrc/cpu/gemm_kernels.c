/* The GEMM kernels of each instruction set, in f32: packing (which converts bf16
 * and f16), the micro-kernel, the epilogue, products by rows. */
#ifndef MT_ISA
#define MT_KERNELS "gemm_kernels.c"
#include "amx.h"
#include "gemm.h"
#include "isa.h"

const gemm_kernels *mt_gemm_kernels(void) { return MT_CALL(kernels_of); }

const gemm_kernels *mt_gemm_ordered_kernels(void) { return MT_CALL_AT(mt_isa_ordered, kernels_of); }

/* Every set's kernel adds up each element by itself: as AMX does where leaves of bf16 are complete steps of AMX, else a
 * chain of fused multiply-adds along k. */
const gemm_kernel *mt_gemm_ordered(int32_t dtype, int64_t leaf) {
  if (dtype != MT_BF16 || leaf == 0 || leaf % AMX_STEP != 0) return mt_gemm_ordered_kernels()->f32;
  return mt_amx_with(mt_isa_ordered) ? mt_gemm_amx_ordered() : mt_gemm_ordered_kernels()->paired;
}

#else
#include "exact.h"
#include "gelu.h"
#include "gemm_transpose.h"

/* Rows by vectors of accumulators: 24 of 32 registers, 12 or 8 of 16. */
#undef MR
#undef NV
#undef NR
#if MT_ISA == MT_AVX512
#define MR 8
#define NV 3
#elif MT_ISA == MT_AVX2
#define MR 4
#define NV 3
#else
#define MR 4
#define NV 2
#endif
#define NR (NV * LANES)

/* panel[k][width] from `depth` rows of `lines` contiguous values, a row `step`
 * values apart. */
V void K(pack_rows)(float *panel, int64_t width, const void *src, int64_t step, int64_t lines, int64_t depth, int T) {
  for (int64_t k = 0; k < depth; k++, panel += width) {
    if (lines == width && width % LANES == 0) {
      for (int64_t l = 0; l < width; l += LANES) v_store(panel, MT_F32, l, v_load(src, T, k * step + l));
      continue;
    }
    if (lines == width && width % 4 == 0) { /* A's panels are narrower than a vector may be */
      for (int64_t l = 0; l < width; l += 4) {
        mt_f4 x = K(four)(src, T, k * step + l);
        memcpy(panel + l, &x, sizeof x);
      }
      continue;
    }
    for (int64_t l = 0; l < width; l++) panel[l] = l < lines ? K(one)(src, T, k * step + l) : 0;
  }
}

/* x has `lines` along `line` and `depth` along `deep`; one of the two strides is 1. */
static void K(pack)(float *panel, int64_t width, const void *src, int64_t line, int64_t deep, int64_t lines, int64_t depth, int32_t dtype) {
  if (deep == 1) K(transpose)(panel, width, width, src, dtype, line, lines, depth);
  else V_BY_DTYPE(dtype, K(pack_rows)(panel, width, src, deep, lines, depth, T));
}

static void K(pack_a)(void *panel, const gemm_operand *a, int64_t i, int64_t rows, int64_t k, int64_t depth) {
  K(pack)(panel, MR, gemm_at(a, i, k), a->row, a->col, rows, depth, a->dtype);
}

static void K(pack_b)(void *panel, const gemm_operand *b, int64_t j, int64_t columns, int64_t k, int64_t depth) {
  K(pack)(panel, NR, gemm_at(b, k, j), b->col, b->row, columns, depth, b->dtype);
}

static void K(micro)(int64_t depth, const void *pa, const void *pb, float *c, int32_t add, const void *next) {
  const float *a = pa, *b = pb;
  const char *ahead = next;
  vf sum[MR][NV];
#pragma GCC unroll 16
  for (int i = 0; i < MR; i++)
#pragma GCC unroll 4
    for (int j = 0; j < NV; j++) sum[i][j] = (vf){0};
  if (add) /* they come while the others are made */
    for (int64_t at = 0; at < MR * NR * 4; at += 64) __builtin_prefetch((const char *)c + at, 1);
  for (int64_t k = 0; k < depth; k++, a += MR, b += NR) {
    vf y[NV];
    __builtin_prefetch(a + 16 * MR);
    if (k % 4 == 0) __builtin_prefetch(ahead + k * 16, 0, 2); /* the next panel of B, from the outer cache */
#pragma GCC unroll 4
    for (int j = 0; j < NV; j++) y[j] = v_load(b, MT_F32, j * LANES);
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++) {
      vf x = v_set(a[i]);
#pragma GCC unroll 4
      for (int j = 0; j < NV; j++) sum[i][j] = v_mad(x, y[j], sum[i][j]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < MR; i++) {
#pragma GCC unroll 4
    for (int j = 0; j < NV; j++) {
      float *p = c + i * NR + j * LANES;
      v_store(p, MT_F32, 0, add ? v_load(p, MT_F32, 0) + sum[i][j] : sum[i][j]);
    }
  }
}

#include "paired.h"

/* c += the products of each step, in the order of AMX. Not inlined, so that all of
 * it is between the changes of the mode of its caller. */
static __attribute__((noinline)) void K(pairs)(int64_t depth, const float *a, const float *b, float *c, const char *next) {
  vf even[MR][NV], odd[MR][NV];
  for (int64_t k = 0; k < depth; k += AMX_STEP, a += AMX_STEP * MR, b += AMX_STEP * NR, next += AMX_STEP * 16) {
    for (int i = 0; i < AMX_STEP / 4; i++) __builtin_prefetch(next + i * 64, 0, 2); /* the next panel of B, from the outer cache */
    K(chain)(a, 1, MR, b, NR, even);
    K(chain)(a + MR, 1, MR, b + NR, NR, odd);
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++)
#pragma GCC unroll 4
      for (int j = 0; j < NV; j++) {
        float *p = c + i * NR + j * LANES;
        v_store(p, MT_F32, 0, K(add_chains)(v_load(p, MT_F32, 0), even[i][j], odd[i][j]));
      }
  }
}

/* As AMX: numbers below 2^-126 are zeros. */
static void K(micro_paired)(int64_t depth, const void *a, const void *b, float *c, int32_t add, const void *next) {
  if (!add) memset(c, 0, MR * NR * sizeof *c);
  uint64_t before = v_flush_begin();
  K(pairs)(depth, a, b, c, next);
  v_flush_end(before);
}

/* A vector is a cache line only there. */
V void K(put)(void *c, int CT, int64_t j, int64_t m, vf x, int stream) {
#if MT_ISA == MT_AVX512
  if (CT == MT_F32 && stream && m == LANES) {
    _mm512_stream_ps((float *)c + j, (__m512)x);
    return;
  }
#endif
  v_store_n(c, CT, j, m, x);
}

V void K(finish_as)(const gemm_job *job, const gemm_tile *t, const float *sums, int64_t ld, int T, int CT) {
  const int stream = CT == MT_F32 && job->stream && t->j0 % 16 == 0;
  for (int64_t i = t->i0; i < t->i1; i++, sums += ld) {
    void *c = job->c + (i * job->ldc + t->j0) * mt_element(CT);
    void *aux = job->aux + (i * job->ldaux + t->j0) * mt_element(T);
    V_EACH(t->j1 - t->j0, j, m,
      vf x = v_load_n(sums, MT_F32, j, m);
      if (job->accumulate) x += v_load_n(c, CT, j, m);
      if (job->bias) x += v_load_n(job->bias, T, t->j0 + j, m);
      if (job->epilogue != MT_NO_EPILOGUE) {
        v_store_n(aux, T, j, m, x);
        if (job->epilogue == MT_GELU_TANH_EPILOGUE) x = v_gelu_tanh_to(x, T);
        else if (job->epilogue == MT_GELU_ERF_EPILOGUE) x = v_gelu_erf(x);
      }
      K(put)(c, CT, j, m, x, stream););
  }
#if MT_ISA == MT_AVX512
  if (stream) _mm_sfence(); /* other threads read C after this tile */
#endif
}

/* A micro tile whose transpose belongs to C: nothing but C += follows it. */
V void K(finish_turned)(const gemm_job *job, const gemm_tile *t, const float *sums, int64_t ld, int CT) {
  const int64_t rows = t->i1 - t->i0, columns = t->j1 - t->j0;
  float turned[NR * MR];
  K(transpose)(turned, MR, MR, sums, MT_F32, ld, rows, columns);
  for (int64_t j = 0; j < columns; j++) {
    void *c = job->c + ((t->j0 + j) * job->ldc + t->i0) * mt_element(CT);
    V_EACH(rows, i, m,
      vf x = v_load_n(turned + j * MR, MT_F32, i, m);
      if (job->accumulate) x += v_load_n(c, CT, i, m);
      v_store_n(c, CT, i, m, x););
  }
}

static void K(finish)(const gemm_job *job, const gemm_tile *t, const float *sums, int64_t ld) {
  if (job->turned) {
    V_BY_DTYPE(job->c_dtype, K(finish_turned)(job, t, sums, ld, T));
    return;
  }
  if (job->c_dtype == job->dtype) V_BY_DTYPE(job->dtype, K(finish_as)(job, t, sums, ld, T, T))
  else V_BY_DTYPE(job->dtype, K(finish_as)(job, t, sums, ld, T, MT_F32))
}

/* Rows by columns of dot products: their sums, and what they are made of, in registers. A row by
 * itself takes a column at a time where a vector is a cache line: B is then read as it lies. */
#undef DOTS
#undef DOT_COLUMNS
#define DOTS (MT_ISA == MT_AVX512 ? 6 : 3)
#define DOT_COLUMNS (MT_ISA == MT_AVX512 ? 4 : 3)
#undef LONE_COLUMNS
#define LONE_COLUMNS (MT_ISA == MT_AVX512 ? 1 : DOT_COLUMNS)

V void K(dots_step)(const gemm_job *job, const float *a, const void *b, int64_t p, int64_t m, vf (*sum)[DOT_COLUMNS], int rows, int columns, int T) {
  vf x[DOTS];
#pragma GCC unroll 6
  for (int r = 0; r < rows; r++) x[r] = v_load_n(a + r * job->k, MT_F32, p, m);
#pragma GCC unroll 4
  for (int c = 0; c < columns; c++) {
    vf y = v_load_n(b, T, c * job->b.col + p, m);
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) sum[r][c] = v_mad(x[r], y, sum[r][c]);
  }
}

/* Asks for what stands fetch.ahead bytes behind at in each of the columns that fetch names, which
 * lie step bytes apart. */
V void K(fetch_columns)(const char *at, int64_t step, int columns, gemm_fetch fetch) {
#pragma GCC unroll 4
  for (int c = 0; c < columns; c++)
    if (fetch.columns >> c & 1) __builtin_prefetch(at + c * step + fetch.ahead);
}

/* A block of dot products: rows of A (f32, [rows][k]) against columns of B that are contiguous
 * in k. Every element has the same sum whatever block it is in. Meanwhile comes what is to be
 * fetched. */
V void K(dots)(const gemm_job *job, const float *a, int64_t j, float *sums, int64_t ld, int rows, int columns, gemm_fetch fetch, int T) {
  const int64_t k = job->k, step = job->b.col;
  const void *b = gemm_at(&job->b, 0, j);
  vf sum[DOTS][DOT_COLUMNS];
#pragma GCC unroll 6
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
    for (int c = 0; c < columns; c++) sum[r][c] = v_set(0);
  V_EACH(k, p, m,
    if (fetch.columns) K(fetch_columns)((const char *)b + p * mt_element(T), step * mt_element(T), columns, fetch);
    K(dots_step)(job, a, b, p, m, sum, rows, columns, T););
#pragma GCC unroll 6
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
    for (int c = 0; c < columns; c++) sums[r * ld + c] = v_sum(sum[r][c]);
}

V void K(dots_of_rows)(const gemm_job *job, const float *a, int64_t j, int64_t columns, float *sums, int64_t ld, int rows, int side, gemm_fetch fetch, int T) {
  int64_t c = 0;
  for (; c + side <= columns; c += side) K(dots)(job, a, j + c, sums + c, ld, rows, side, fetch, T);
  for (; c < columns; c++) K(dots)(job, a, j + c, sums + c, ld, rows, 1, (gemm_fetch){0}, T);
}

/* Few rows pass over the tile's columns once, a few of them at a time; of many a few at a time
 * stay in the L1 cache. */
V void K(dots_of_tile)(const gemm_job *job, const float *a, const gemm_tile *t, float *sums, int T) {
  const int64_t rows = t->i1 - t->i0, columns = t->j1 - t->j0, once = rows <= GEMM_FEW, step = once ? DOT_COLUMNS : columns;
  const int64_t next = DOT_COLUMNS * job->b.col * mt_element(T);
  if (rows == 1) {
    K(dots_of_rows)(job, a, t->j0, columns, sums, columns, 1, LONE_COLUMNS, (gemm_fetch){LONE_COLUMNS == 1 ? GEMM_AHEAD : next, 7}, T);
    return;
  }
  for (int64_t j = 0; j < columns; j += step) {
    int64_t n = mt_min(step, columns - j), i = 0;
#define MT_ROWS(count)                                                                                                 \
  {                                                                                                                    \
    gemm_fetch fetch = gemm_next(next, once ? DOT_COLUMNS : 0, i, count, rows);                                        \
    K(dots_of_rows)(job, a + i * job->k, t->j0 + j, n, sums + i * columns + j, columns, count, DOT_COLUMNS, fetch, T); \
    i += count;                                                                                                        \
  }
    while (i + DOTS <= rows) MT_ROWS(DOTS)
    if (DOTS > 4 && i + 4 <= rows) MT_ROWS(4)
    if (i + 2 <= rows) MT_ROWS(2)
    if (i < rows) MT_ROWS(1)
#undef MT_ROWS
  }
}

static void K(by_row)(const gemm_job *job, const gemm_tile *t, float *workspace) {
  const int64_t rows = t->i1 - t->i0, k = job->k, columns = t->j1 - t->j0;
  float *a = workspace, *sums = a + rows * k;
  for (int64_t i = 0; i < rows; i++) {
    const void *from = gemm_at(&job->a, t->i0 + i, 0);
    V_BY_DTYPE(job->dtype, V_EACH(k, p, m, v_store_n(a + i * k, MT_F32, p, m, v_load_n(from, T, p, m));););
  }
  V_BY_DTYPE(job->dtype, K(dots_of_tile)(job, a, t, sums, T));
  K(finish)(job, t, sums, columns);
}

static void K(add_sums)(float *out, const float *a, const float *b, int64_t n) {
  for (int64_t i = 0; i < n; i += LANES) v_store(out, MT_F32, i, v_load(a, MT_F32, i) + v_load(b, MT_F32, i));
}

/* A number of less than 2^51 units of a grid that is added to 1.5·2^52 units is rounded to the grid. As the exponent stays,
 * the bits of the sum, as an integer, are those of 1.5·2^52 units + the number's units. So units are added up as integers. */
static int32_t K(grid_sums)(const float *leaf, uint64_t *sums, int64_t n, double grid, int32_t most) {
  vd magic = v_magic(grid);
  vi peak = {0};
  for (int64_t i = 0; i < n; i += LANES) {
    vw lo, hi;
    memcpy(&lo, sums + i, sizeof lo), memcpy(&hi, sums + i + LANES / 2, sizeof hi);
    lo += (vw)(v_widened(leaf + i) + magic), hi += (vw)(v_widened(leaf + i + LANES / 2) + magic);
    memcpy(sums + i, &lo, sizeof lo), memcpy(sums + i + LANES / 2, &hi, sizeof hi);
    peak = v_larger(peak, v_magnitude(v_load(leaf, MT_F32, i)));
  }
  int32_t largest = v_largest_bits(peak);
  return largest > most ? largest : most;
}

static void K(grid_read)(double *c, const uint64_t *sums, int64_t n, int64_t leaves, double grid, int32_t most) {
  enum { INFINITE = 0x7f800000 };
  const double bad = most >= INFINITE ? NAN : 0;
  const vw bias = (uint64_t)leaves * (vw)v_magic(grid);
  for (int64_t j = 0; j < n; j++) c[j] += (double)(int64_t)(sums[j] - bias[0]) * grid + bad;
}

static const gemm_kernel K(f32) = {
    .mr = MR, .nr = NR, .k_unit = 1, .k_block = 256, .element = 4,
    .pack_a = K(pack_a), .pack_b = K(pack_b), .micro = K(micro),
};

static const gemm_kernel K(paired) = {
    .mr = MR, .nr = NR, .k_unit = AMX_STEP, .k_block = 256, .element = 4,
    .pack_a = K(pack_a), .pack_b = K(pack_b), .micro = K(micro_paired),
};

static const gemm_kernels *K(kernels_of)(void) {
  static const gemm_kernels all = {
      .f32 = &K(f32), .paired = &K(paired), .finish = K(finish), .by_row = K(by_row), .add = K(add_sums), .grid_add = K(grid_sums), .grid_read = K(grid_read)};
  return &all;
}
#endif
