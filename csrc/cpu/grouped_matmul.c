/* Products of groups of rows with a matrix each. The tiles of all groups are handed out
 * together; where they lie is read from the offsets, which are there before the call. A row
 * has the same sums whatever group it is in and however it is cut: by our own kernels alone,
 * with blocks of k that depend on k. */
#include <stddef.h>
#include <stdio.h>

#include "amx.h"
#include "gemm.h"
#include "tile.h"

enum {
  ROWS = 512, COLUMNS = 768, /* of the largest tile: each packs its operands, so that B comes once for all rows of a small group */
  GRADIENT_ROWS = 768,       /* of a gradient's, whose k is a group's rows: a block of A is not deep */
  FEWER_ROWS = 256,          /* where there were not TILES otherwise */
  TILES = 32, NARROW = 192   /* tiles are made narrower, to NARROW, until there are TILES, so that threads end together */
};

/* Whether sums have an order that no instruction set changes: a chain of fused multiply-adds of each leaf. */
static int32_t ordered(const mt_grouped_matmul_args *a) { return a->leaves || mt_given(&a->grid); }

/* f16's AMX kernel makes products again where it meets NaN, of all rows near it; and a
 * kernel's own store of full micro tiles to C may round unlike that of the rest. */
static gemm_kernel kernel_of(const mt_grouped_matmul_args *a) {
  const gemm_kernel *kr = NULL;
  if (mt_given(&a->grid)) kr = mt_gemm_ordered(a->a.dtype, 0); /* a leaf's rows are those of one expert */
  else if (a->leaves) kr = mt_gemm_ordered(a->a.dtype, mt_last(&a->a) / a->leaves / mt_max(1, a->stretches));
  else if (a->a.dtype == MT_BF16) kr = mt_amx() ? mt_gemm_amx() : mt_gemm_bf16();
  gemm_kernel plain = kr ? *kr : *mt_gemm_kernels()->f32;
  plain.finish = NULL;
  return plain;
}

typedef struct {
  gemm_kernel kernel;
  int64_t groups, m, n, k; /* m or k is 0: that of a group is its number of rows */
  int64_t rows, columns;   /* of a tile */
} grouped_plan;

static int64_t rows_of(const mt_grouped_matmul_args *a, int64_t group) {
  const int32_t *offsets = a->offsets.data;
  return offsets[group + 1] - offsets[group];
}

/* The first group whose rows are not all in A, as where ranks disagree about how many tokens
 * an expert has; -1: there is none. */
static int64_t astray(const mt_grouped_matmul_args *a) {
  const int32_t *offsets = a->offsets.data;
  for (int64_t group = 0; group < a->offsets.shape[0] - 1; group++)
    if (offsets[group] < 0 || offsets[group + 1] < offsets[group] || offsets[group + 1] > a->a.shape[0]) return group;
  return -1;
}

static gemm_grid grid_of(const mt_grouped_matmul_args *a, const grouped_plan *p, int64_t group) {
  int64_t rows = rows_of(a, group), m = a->trans_a ? p->m : rows;
  if (rows == 0 || m == 0 || p->n == 0) return (gemm_grid){0};
  gemm_grid g = {.rows = mt_up(mt_ceil(m, mt_ceil(m, p->rows)), p->kernel.mr), .columns = p->columns};
  g.down = mt_ceil(m, g.rows);
  g.across = mt_ceil(p->n, g.columns);
  return g;
}

static int64_t all_tiles(const mt_grouped_matmul_args *a, const grouped_plan *p) {
  int64_t tiles = 0;
  for (int64_t group = 0; group < p->groups; group++) {
    gemm_grid g = grid_of(a, p, group);
    tiles += g.down * g.across;
  }
  return tiles;
}

/* Tiles of sums with leaves have those of every level, or of all leaves, in addition to a leaf's. */
static grouped_plan tree_plan(grouped_plan p) {
  p.rows = TREE_ROWS;
  p.columns = mt_up(mt_ceil(p.n, mt_max(1, mt_ceil(p.n, TREE_COLUMNS))), p.kernel.nr);
  return p;
}

static grouped_plan plan_of(const mt_grouped_matmul_args *a) {
  grouped_plan p = {.kernel = kernel_of(a), .groups = a->offsets.shape[0] - 1, .m = a->trans_a ? mt_last(&a->a) : 0, .n = mt_last(&a->c), .k = a->trans_a ? 0 : mt_last(&a->a)};
  if (ordered(a)) return tree_plan(p);
  p.rows = a->trans_a ? GRADIENT_ROWS : ROWS;
  p.columns = mt_up(mt_min(p.n, COLUMNS), p.kernel.nr);
  if (all_tiles(a, &p) < TILES) p.rows = FEWER_ROWS;
  for (int64_t pieces = mt_ceil(p.n, COLUMNS);; pieces++) {
    p.columns = mt_up(mt_ceil(p.n, mt_max(1, pieces)), p.kernel.nr);
    if (p.columns <= NARROW || all_tiles(a, &p) >= TILES) return p;
  }
}

static char *matrix(const mt_tensor *t, int64_t group) { return (char *)t->data + group * t->stride[0] * mt_element(t->dtype); }

static gemm_operand operand(char *data, int64_t stride, int32_t dtype, int32_t transposed) {
  return transposed ? (gemm_operand){data, 1, stride, dtype} : (gemm_operand){data, stride, 1, dtype};
}

/* The group's product. */
static gemm_job job_of(const mt_grouped_matmul_args *a, const grouped_plan *p, int64_t group) {
  int64_t first = ((const int32_t *)a->offsets.data)[group], rows = rows_of(a, group);
  gemm_job job = {.n = p->n, .dtype = a->a.dtype, .c_dtype = a->c.dtype, .epilogue = MT_NO_EPILOGUE};
  job.a = operand(mt_row(&a->a, first), a->a.stride[0], a->a.dtype, a->trans_a);
  if (a->trans_a) {
    job.b = operand(mt_row(&a->b, first), a->b.stride[0], a->b.dtype, 0);
    job.c = matrix(&a->c, group), job.ldc = a->c.stride[1];
    job.m = p->m, job.k = rows, job.accumulate = 1;
    if (mt_given(&a->grid)) job.grid = a->grid.data, job.peak = a->peak.data, job.leaf = (const int32_t *)a->leaf.data + first;
  } else {
    job.b = operand(matrix(&a->b, group), a->b.stride[1], a->b.dtype, a->trans_b);
    job.c = mt_row(&a->c, first), job.ldc = a->c.stride[0];
    job.m = rows, job.k = p->k, job.leaves = a->leaves, job.stretches = a->stretches;
    job.bias = mt_given(&a->bias) ? matrix(&a->bias, group) : NULL;
  }
  return job;
}

static int64_t tiles(const void *args, int32_t phase) {
  if (phase > 0) return 0;
  if (astray(args) >= 0) return 1; /* the tile reports it */
  grouped_plan p = plan_of(args);
  return all_tiles(args, &p);
}

static int32_t run(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_grouped_matmul_args *a = args;
  int64_t group = astray(a);
  if (group >= 0) {
    const int32_t *offsets = (const int32_t *)a->offsets.data + group;
    snprintf(ctx->error, sizeof ctx->error, "group %lld has rows %d to %d, which are not within the %lld rows of the tensor", (long long)group, offsets[0], offsets[1], (long long)a->a.shape[0]);
    return 1;
  }
  grouped_plan p = plan_of(a);
  gemm_grid g;
  for (group = 0;; group++) {
    g = grid_of(a, &p, group);
    if (tile < g.down * g.across) break;
    tile -= g.down * g.across;
  }
  gemm_job job = job_of(a, &p, group);
  gemm_part part = {.tile = mt_gemm_tile(&g, (gemm_tile){0, job.m, 0, job.n}, tile), .k1 = job.k, .depth = gemm_job_depth(&p.kernel, &job)};
  mt_gemm_own(&p.kernel, &job, &part, ctx->workspace);
  return 0;
}

const mt_op mt_cpu_grouped_matmul = {.tiles = tiles, .scratch = NULL, .run = run};
