/* The branch of an adapter, Y += Scale·X·Aᵀ·op(B), in two phases: X·Aᵀ in f32, which stays in the
 * caches, while op(B) is packed, and their product, added to Y as it is made. An element's sums are chains along
 * their depth, whatever the number of rows. */
#ifndef MT_ISA
enum { DOWN, UP };
enum { ALONE = 8 }; /* rows up to which packing op(B) costs more than it brings */

#define MT_KERNELS "low_rank.c"
#include "context.h"
#include "gemm.h"

enum { PANEL = 48, PACKED = 4 * PANEL }; /* columns of op(B): of a panel at most, and those that a tile packs */
enum { CHUNK = 32 << 10 };              /* values of panels that stay in the L2 cache */

static int64_t rank_of(const mt_low_rank_add_args *a) { return a->b.shape[a->trans_b ? 1 : 0]; }

/* Rows of a tile: of X as many as stay in the L2 cache; of Y so many that a tile is worth handing out. */
static int64_t down_rows(const mt_low_rank_add_args *a) { return mt_max(12, MT_TILE / mt_max(1, mt_last(&a->x)) / 12 * 12); }
static int64_t up_rows(const mt_low_rank_add_args *a) { return mt_len(&a->y) <= MT_SMALL ? mt_max(1, a->y.shape[0]) : 64; }

/* Stretches of equal size of a row of Y. */
static int64_t stretches_of(const mt_low_rank_add_args *a) { return a->y.rank == 3 ? a->y.shape[1] : 1; }

/* Whether the rows are so few that op(B) is read as it lies. */
static int32_t alone(const mt_low_rank_add_args *a) { return !a->trans_b && a->y.shape[0] <= ALONE; }

/* The panels of a stretch, of which the one of column j begins j·rank values behind the first; tiles that pack it. */
static int64_t panels_of(const mt_low_rank_add_args *a) { return mt_up(mt_last(&a->y), PANEL) * rank_of(a); }
static int64_t packing_tiles(const mt_low_rank_add_args *a) { return mt_ceil(mt_last(&a->y), PACKED); }

/* Scratch: X·Aᵀ, then the panels. */
static int64_t down_values(const mt_low_rank_add_args *a) { return mt_up(a->x.shape[0] * rank_of(a), 16); }

/* X·Aᵀ into t [n,rank], f32. */
static gemm_job down_job(const mt_low_rank_add_args *a, float *t) {
  int64_t rank = rank_of(a);
  return (gemm_job){.a = {a->x.data, a->x.stride[0], 1, a->x.dtype}, .b = {a->a.data, 1, a->a.stride[0], a->a.dtype}, .c = (char *)t, .m = a->x.shape[0], .n = rank,
                    .k = mt_last(&a->x), .ldc = rank, .dtype = a->x.dtype, .c_dtype = MT_F32, .by_row = 1};
}

#include "isa.h"

static int64_t tiles(const void *args, int32_t phase) {
  const mt_low_rank_add_args *a = args;
  if (mt_len(&a->y) == 0 || phase > UP) return 0;
  if (phase == UP) return mt_ceil(a->y.shape[0], up_rows(a));
  return mt_ceil(a->y.shape[0], down_rows(a)) + (alone(a) ? 0 : stretches_of(a) * packing_tiles(a));
}

static int64_t scratch(const void *args) {
  const mt_low_rank_add_args *a = args;
  return (down_values(a) + (alone(a) ? 0 : stretches_of(a) * panels_of(a))) * (int64_t)sizeof(float);
}

MT_OP(low_rank_add, tiles, scratch)
#else
#include "gemm_transpose.h"

/* Rows by vectors of accumulators. */
#undef ROWS
#undef VECTORS
#undef WIDTH
#define ROWS (MT_ISA == MT_AVX512 ? 8 : 4)
#define VECTORS (MT_ISA == MT_PORTABLE ? 2 : 3)
#define WIDTH (VECTORS * LANES)
_Static_assert(PANEL % WIDTH == 0, "panels");

/* panel [rank][WIDTH] in f32: the columns of op(B) from j on, zeros behind the last. */
static void K(pack_up)(const mt_low_rank_add_args *a, int64_t j, int64_t columns, float *panel) {
  const int64_t rank = rank_of(a), ld = a->b.stride[0];
  const char *b = (const char *)a->b.data + (a->trans_b ? j * ld : j) * mt_element(a->b.dtype);
  if (a->trans_b) {
    K(transpose)(panel, WIDTH, WIDTH, b, a->b.dtype, ld, columns, rank);
    return;
  }
  for (int64_t k = 0; k < rank; k++, panel += WIDTH) {
    V_BY_DTYPE(a->b.dtype, V_EACH(columns, c, m, v_store_n(panel, MT_F32, c, m, v_load_n(b, T, k * ld + c, m));););
    for (int64_t c = columns; c < WIDTH; c++) panel[c] = 0;
  }
}

/* Panels of a stretch for a tile's columns. */
static void K(pack)(const mt_low_rank_add_args *a, float *panels, int64_t tile) {
  const int64_t size = mt_last(&a->y), g = tile / packing_tiles(a), from = tile % packing_tiles(a) * PACKED;
  panels += g * panels_of(a);
  for (int64_t j = from; j < mt_min(size, from + PACKED); j += WIDTH) K(pack_up)(a, g * size + j, mt_min(WIDTH, size - j), panels + j * rank_of(a));
}

/* y [rows][columns], rows ldy values apart, += scale·t·panel. */
V void K(up_block)(const float *t, int64_t rank, const float *panel, float scale, char *y, int64_t ldy, int64_t columns, int rows, int T) {
  vf sum[ROWS][VECTORS];
#pragma GCC unroll 8
  for (int i = 0; i < rows; i++)
#pragma GCC unroll 3
    for (int v = 0; v < VECTORS; v++) sum[i][v] = v_set(0);
  for (int64_t k = 0; k < rank; k++, panel += WIDTH) {
    vf b[VECTORS];
#pragma GCC unroll 3
    for (int v = 0; v < VECTORS; v++) b[v] = v_load(panel, MT_F32, v * LANES);
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) {
      vf x = v_set(t[i * rank + k]);
#pragma GCC unroll 3
      for (int v = 0; v < VECTORS; v++) sum[i][v] = v_fma(x, b[v], sum[i][v]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < rows; i++) {
    void *row = y + i * ldy * mt_element(T);
    if (columns == WIDTH) {
#pragma GCC unroll 3
      for (int v = 0; v < VECTORS; v++) v_store(row, T, v * LANES, v_load(row, T, v * LANES) + scale * sum[i][v]);
      continue;
    }
    float sums[WIDTH];
    memcpy(sums, sum[i], sizeof sums);
    V_EACH(columns, c, m, v_store_n(row, T, c, m, v_load_n(row, T, c, m) + scale * v_load_n(sums, MT_F32, c, m)););
  }
}

/* Columns from..to of a stretch of rows i..i+count-1, count ROWS or 1. */
V void K(up_line)(const mt_low_rank_add_args *a, const float *t, const float *panels, int64_t from, int64_t to, char *y, int count, int T) {
  const int64_t rank = rank_of(a);
  for (int64_t j = from; j < to; j += WIDTH)
    K(up_block)(t, rank, panels + j * rank, a->scale, y + j * mt_element(T), a->y.stride[0], mt_min(WIDTH, to - j), count, T);
}

/* A stretch of rows of Y, which are read and written as they lie, a few at a time. */
V void K(up_stretch)(const mt_low_rank_add_args *a, const float *t, const float *panels, mt_range rows, char *y, int T) {
  const int64_t rank = rank_of(a), size = mt_last(&a->y), chunk = mt_max(PANEL, CHUNK / rank / PANEL * PANEL), ld = a->y.stride[0];
  for (int64_t from = 0; from < size; from += chunk) {
    const int64_t to = mt_min(size, from + chunk);
    int64_t i = rows.from;
    for (; i + ROWS <= rows.to; i += ROWS) K(up_line)(a, t + i * rank, panels, from, to, y + i * ld * mt_element(T), ROWS, T);
    for (; i < rows.to; i++) K(up_line)(a, t + i * rank, panels, from, to, y + i * ld * mt_element(T), 1, T);
  }
}

/* y [columns] += scale·t·op(B), whose rows lie ld values apart: a row by itself reads them as they lie. */
V void K(up_row)(const float *t, int64_t rank, const void *b, int64_t ld, float scale, void *y, int64_t columns, int BT, int T) {
  V_EACH(columns, c, m,
    vf sum = v_set(0);
    for (int64_t k = 0; k < rank; k++) sum = v_fma(v_set(t[k]), v_load_n(b, BT, k * ld + c, m), sum);
    v_store_n(y, T, c, m, v_load_n(y, T, c, m) + scale * sum););
}

/* The few rows of an op that has op(B) [rank,out] as it is stored. */
static void K(up_rows_alone)(const mt_low_rank_add_args *a, const float *t, mt_range rows) {
  const int64_t rank = rank_of(a), stretches = a->y.rank == 3 ? a->y.shape[1] : 1, size = mt_last(&a->y);
  for (int64_t i = rows.from; i < rows.to; i++)
    for (int64_t g = 0; g < stretches; g++) {
      const char *b = (const char *)a->b.data + g * size * mt_element(a->b.dtype);
      char *y = (char *)a->y.data + (i * a->y.stride[0] + (a->y.rank == 3 ? g * a->y.stride[1] : 0)) * mt_element(a->y.dtype);
      if (a->y.dtype == a->b.dtype) V_BY_DTYPE(a->b.dtype, K(up_row)(t + i * rank, rank, b, a->b.stride[0], a->scale, y, size, T, T))
      else V_BY_DTYPE(a->b.dtype, K(up_row)(t + i * rank, rank, b, a->b.stride[0], a->scale, y, size, T, MT_F32))
    }
}

static void K(up)(const mt_low_rank_add_args *a, const float *t, mt_range rows) {
  if (alone(a)) {
    K(up_rows_alone)(a, t, rows);
    return;
  }
  const float *panels = t + down_values(a);
  for (int64_t g = 0; g < stretches_of(a); g++) {
    const int64_t at = a->y.rank == 3 ? g * a->y.stride[1] : 0;
    V_BY_DTYPE(a->y.dtype, K(up_stretch)(a, t, panels + g * panels_of(a), rows, (char *)a->y.data + at * mt_element(T), T));
  }
}

/* Rows of Scale·X·Aᵀ to where the caller keeps them. */
static void K(keep)(const mt_low_rank_add_args *a, const float *t, mt_range rows) {
  const int64_t rank = rank_of(a);
  for (int64_t i = rows.from; i < rows.to; i++)
    V_BY_DTYPE(a->t.dtype, V_EACH(rank, k, m, v_store_n(mt_row(&a->t, i), T, k, m, a->scale * v_load_n(t + i * rank, MT_F32, k, m));););
}

static int32_t K(low_rank_add)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_low_rank_add_args *a = args;
  const int64_t n = a->y.shape[0], each = phase == DOWN ? down_rows(a) : up_rows(a);
  const mt_range rows = {tile * each, mt_min(n, (tile + 1) * each)};
  if (phase == UP) {
    K(up)(a, scratch, rows);
    return 0;
  }
  if (tile >= mt_ceil(n, each)) {
    K(pack)(a, (float *)scratch + down_values(a), tile - mt_ceil(n, each));
    return 0;
  }
  if (!mt_given(&a->a)) { /* X is the product */
    const int64_t rank = rank_of(a);
    float *t = scratch;
    for (int64_t i = rows.from; i < rows.to; i++)
      V_BY_DTYPE(a->x.dtype, V_EACH(rank, k, m, v_store_n(t + i * rank, MT_F32, k, m, v_load_n(mt_row(&a->x, i), T, k, m));););
    return 0;
  }
  /* Products by rows: their workspace is the rows of X in f32 and the sums. */
  gemm_job job = down_job(a, scratch);
  float *workspace = (float *)mt_cpu_room(ctx, (rows.to - rows.from) * (job.k + job.n) * (int64_t)sizeof(float));
  if (!workspace) return 1;
  gemm_by_row *by_row = job.dtype == MT_BF16 ? mt_gemm_bf16_by_row() : NULL;
  (by_row ? by_row : mt_gemm_kernels()->by_row)(&job, &(gemm_tile){rows.from, rows.to, 0, job.n}, workspace);
  if (mt_given(&a->t)) K(keep)(a, scratch, rows);
  return 0;
}
#endif
