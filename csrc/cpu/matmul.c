/* C = op(A)·op(B) with what follows it. The call is cut into tiles by shape only;
 * k is never cut between tiles, so every sum is made in one order by one thread.
 * f32 goes to oneDNN where it is installed, bf16 to AMX, else oneDNN; our own C
 * kernels do the rest (f16, and everything where there is no oneDNN). */
#include <stdio.h>

#include "amx.h"
#include "gemm.h"

/* A call below SMALL multiply-adds is one tile: handing out costs more. A larger
 * one is cut until there are TILES, so that threads end together, or the tiles are
 * SMALL or narrow. */
enum { SMALL = 2 << 20, TILES = 12, NARROW = 192, UNIT = 32 };

typedef struct { int64_t rows, columns, across, down; } grid; /* a tile's size; tiles along n and m */

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

static int64_t part(int64_t n, int64_t pieces) { return ceil_div(ceil_div(n, pieces), UNIT) * UNIT; }

static grid cut(int64_t m, int64_t n, int64_t k) {
  int64_t down = ceil_div(m, MT_GEMM_ROWS), across = ceil_div(n, MT_GEMM_COLUMNS);
  for (;;) {
    grid g = {part(m, down), part(n, across), 0, 0};
    g.down = ceil_div(m, g.rows);
    g.across = ceil_div(n, g.columns);
    if (g.down * g.across >= TILES || g.rows * g.columns * k <= SMALL || (g.rows <= NARROW && g.columns <= NARROW)) return g;
    if (g.rows > NARROW && (g.rows >= g.columns || g.columns <= NARROW)) down++;
    else across++; /* not g.across + 1: a part rounded up to UNIT may leave that as it was */
  }
}

/* Few rows: the cost is reading B, so only its columns are cut. */
static int32_t is_thin(const mt_matmul_args *p) {
  return p->c.shape[0] <= MT_GEMM_THIN && p->trans_b && p->b.stride[1] == 1;
}

static grid grid_of(const mt_matmul_args *p) {
  int64_t m = p->c.shape[0], n = p->c.shape[1], k = p->trans_a ? p->a.shape[0] : p->a.shape[1];
  if (m == 0 || n == 0) return (grid){0};
  if (!is_thin(p)) return cut(m, n, k);
  grid g = {m, part(n, ceil_div(n * k, SMALL)), 0, 1};
  g.across = ceil_div(n, g.columns);
  return g;
}

static int64_t tiles(const void *args, int32_t phase) {
  if (phase > 0) return 0;
  grid g = grid_of(args);
  return g.across * g.down;
}

static gemm_operand operand(const mt_tensor *t, int32_t transposed) {
  return (gemm_operand){t->data, t->stride[transposed ? 1 : 0], t->stride[transposed ? 0 : 1], t->dtype};
}

static gemm_job job_of(const mt_matmul_args *p) {
  return (gemm_job){
      .a = operand(&p->a, p->trans_a), .b = operand(&p->b, p->trans_b),
      .c = p->c.data, .aux = p->aux.data, .bias = p->bias.rank ? p->bias.data : NULL,
      .m = p->c.shape[0], .n = p->c.shape[1], .k = p->trans_a ? p->a.shape[0] : p->a.shape[1],
      .ldc = p->c.stride[0], .ldaux = p->aux.stride[0], .dtype = p->a.dtype, .c_dtype = p->c.dtype,
      .accumulate = p->accumulate, .epilogue = p->epilogue,
  };
}

/* oneDNN writes f32 sums to C where nothing follows, else to the workspace. */
static int32_t by_onednn(mt_context *ctx, const gemm_job *job, const gemm_tile *t) {
  int32_t plain = !job->bias && job->epilogue == MT_NO_EPILOGUE;
  int32_t direct = plain && (job->c_dtype == MT_F32 || job->dtype == MT_BF16);
  void *out = direct ? job->c + (t->i0 * job->ldc + t->j0) * (job->c_dtype == MT_F32 ? 4 : 2) : ctx->workspace;
  int64_t ld = direct ? job->ldc : t->j1 - t->j0;
  int32_t bad = job->dtype == MT_F32 ? mt_onednn_sgemm(job, t, out, ld, job->accumulate)
                                     : mt_onednn_bf16(ctx, job, t, out, ld, direct ? job->c_dtype : MT_F32, job->accumulate);
  if (!bad && !direct) mt_gemm_kernels()->finish(job, t, out, ld);
  return bad;
}

static int32_t run(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_matmul_args *p = args;
  const gemm_kernels *own = mt_gemm_kernels();
  gemm_job job = job_of(p);
  grid g = grid_of(p);
  int64_t i = tile / g.across * g.rows, j = tile % g.across * g.columns;
  gemm_tile t = {i, i + g.rows < job.m ? i + g.rows : job.m, j, j + g.columns < job.n ? j + g.columns : job.n};
  (void)scratch;
  (void)phase;
  if (is_thin(p)) {
    own->thin(&job, &t, ctx->workspace);
  } else if (job.dtype == MT_BF16 && mt_amx()) {
    mt_gemm_own(mt_gemm_amx(), &job, &t, ctx->workspace);
  } else if (job.dtype == MT_F16 || !mt_onednn_open()) {
    mt_gemm_own(own->f32, &job, &t, ctx->workspace);
  } else if (by_onednn(ctx, &job, &t) != 0) {
    mt_gemm_own(own->f32, &job, &t, ctx->workspace); /* a shape or a processor that oneDNN refuses */
  }
  return 0;
}

const mt_op mt_cpu_matmul = {.tiles = tiles, .run = run};
