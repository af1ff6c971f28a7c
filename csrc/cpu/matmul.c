/* C = op(A)·op(B) with what follows it. The call is cut into tiles by shape only
 * (gemm_cut.c, gemm_packed.c), sums over k are made in one order. With AVX-512, f32
 * goes to oneDNN where it is installed; bf16 does so only with AVX512_BF16 and without
 * AMX. bf16 and f16 go to AMX where the processor has it. Our own kernels do the rest:
 * few rows, other instruction sets, and bf16 without AVX512_BF16. */
#include <stddef.h>

#include "amx.h"
#include "gemm.h"
#include "isa_level.h"
#include "tile.h"

static gemm_operand operand(const mt_tensor *t, int32_t transposed) {
  return (gemm_operand){t->data, t->stride[transposed ? 1 : 0], t->stride[transposed ? 0 : 1], t->dtype};
}

static gemm_job job_of(const mt_matmul_args *p) {
  int32_t stream = p->c.dtype == MT_F32 && !p->accumulate && mt_len(&p->c) * 4 >= MT_STREAM && (uintptr_t)p->c.data % 64 == 0 && p->c.stride[0] % 16 == 0;
  int32_t stream_aux = p->epilogue != MT_NO_EPILOGUE && p->aux.dtype == MT_BF16 && mt_len(&p->aux) * 2 >= MT_STREAM_LATER && (uintptr_t)p->aux.data % 64 == 0 && p->aux.stride[0] % 32 == 0;
  if (mt_given(&p->grid)) stream = 0;
  return (gemm_job){
      .chunk = p->chunk, .batch = p->batch, .grid = p->grid.data, .peak = p->peak.data,
      .a = operand(&p->a, p->trans_a), .b = operand(&p->b, p->trans_b),
      .c = p->c.data, .aux = p->aux.data, .bias = p->bias.rank ? p->bias.data : NULL,
      .m = p->c.shape[0], .n = p->c.shape[1], .k = p->trans_a ? p->a.shape[0] : p->a.shape[1],
      .ldc = p->c.stride[0], .ldaux = p->aux.stride[0], .dtype = p->a.dtype, .c_dtype = p->c.dtype,
      .accumulate = p->accumulate, .epilogue = p->epilogue, .by_row = p->by_row, .leaves = p->leaves, .stretches = p->stretches, .stream = stream, .stream_aux = stream_aux,
  };
}

typedef enum { NOTHING, BY_ROW, LIBRARY, SINGLE, PACKED } route;

/* Whether oneDNN makes it: all that it can with MONOTRON_ONEDNN=all; else bf16 only by AVX512_BF16, and not
 * where there is AMX. Without instructions for bf16 the library takes several times as long as for f32, where our
 * own kernels widen as they pack. */
static int32_t by_library(const gemm_job *job) {
  if (job->dtype == MT_F16 || !mt_onednn_open()) return 0;
  if (mt_onednn_all()) return 1;
  /* With AVX2 the library's rows depend on how many there are, and our kernels are as fast. */
  return mt_isa_level == MT_AVX512 && (job->dtype == MT_F32 || (mt_isa_dots() && !mt_amx()));
}

static route route_of(const gemm_job *job) {
  if (job->m == 0 || job->n == 0) return NOTHING;
  if (job->leaves || job->chunk) { /* one order for all shapes */
    int32_t fits = !gemm_tree(job) || (job->m <= TREE_ROWS && job->n <= TREE_COLUMNS);
    return fits && job->m * job->n * job->k <= MT_GEMM_SMALL ? SINGLE : PACKED;
  }
  if (job->by_row || (job->m <= MT_GEMM_THIN && job->b.row == 1 && job->a.col == 1)) return BY_ROW;
  if (by_library(job)) return LIBRARY;
  return job->m * job->n * job->k <= MT_GEMM_SMALL ? SINGLE : PACKED;
}

static const gemm_kernel *kernel_of(const gemm_job *job) {
  const gemm_kernel *own = NULL;
  if (job->leaves || job->chunk) return mt_gemm_ordered(job->dtype, gemm_leaf(job));
  if (job->dtype == MT_BF16) own = mt_amx() ? mt_gemm_amx() : mt_gemm_bf16();
  if (job->dtype == MT_F16 && mt_amx()) own = mt_gemm_amx_f16();
  return own ? own : mt_gemm_kernels()->f32;
}

/* A product with few columns, as those with an adapter's rank, fills a part of the kernel's vectors. Its transpose
 * fills them with its many columns, and has the same sums. */
static gemm_job narrow(gemm_job job) {
  const gemm_kernel *kr = mt_gemm_kernels()->f32;
  const int64_t plain = mt_up(job.m, kr->mr) * mt_up(job.n, kr->nr), turned = mt_up(job.n, kr->mr) * mt_up(job.m, kr->nr);
  const route by = route_of(&job);
  if ((by != SINGLE && by != PACKED) || kernel_of(&job) != kr || gemm_tree(&job) || job.leaves || job.bias || job.epilogue != MT_NO_EPILOGUE) return job;
  if (job.n <= MT_GEMM_THIN || 3 * turned > 2 * plain) return job;
  gemm_job other = job;
  other.a = (gemm_operand){job.b.data, job.b.col, job.b.row, job.b.dtype};
  other.b = (gemm_operand){job.a.data, job.a.col, job.a.row, job.a.dtype};
  other.m = job.n, other.n = job.m, other.turned = 1, other.stream = 0;
  return other;
}

static gemm_by_row *by_row_of(const gemm_job *job) {
  gemm_by_row *own = job->dtype == MT_BF16 ? mt_gemm_bf16_by_row() : NULL;
  return own ? own : mt_gemm_kernels()->by_row;
}

/* Of few rows the cost is reading B: tiles are small enough that threads end together, and large
 * enough that each reads on without a pause; of many, a tile's rows of A stay in the L2 cache. */
static gemm_grid rows_grid(const gemm_job *job) {
  enum { A_BYTES = 512 << 10, ROWS = 512, COLUMNS = 768 };
  const int64_t element = job->dtype == MT_F32 ? 4 : 2;
  const int64_t few = mt_min(1 << 20, mt_max(128 << 10, job->n * job->k * element / 32)) / element;
  const int64_t read = job->m <= GEMM_FEW ? few : 128 << 10; /* elements of B of a tile, about */
  gemm_grid g = {.rows = mt_min(ROWS, mt_max(4, A_BYTES / 4 / mt_max(1, job->k) / 4 * 4))};
  g.down = mt_ceil(job->m, g.rows);
  g.rows = mt_up(mt_ceil(job->m, g.down), 4);
  g.columns = mt_min(COLUMNS, mt_up(mt_ceil(job->n, mt_ceil(job->n * job->k, read)), 32));
  g.down = mt_ceil(job->m, g.rows);
  g.across = mt_ceil(job->n, g.columns);
  return g;
}

static gemm_grid grid_of(const gemm_job *job, route by) {
  if (by == LIBRARY) return mt_gemm_cut(job->m, job->n, job->k, (gemm_limits){MT_GEMM_ROWS, MT_GEMM_COLUMNS, 32, 32});
  if (by == BY_ROW) return rows_grid(job);
  return (gemm_grid){job->m, job->n, 1, 1};
}

static int64_t tiles(const void *args, int32_t phase) {
  gemm_job job = narrow(job_of(args));
  route by = route_of(&job);
  if (by == PACKED) return mt_gemm_packed_tiles(kernel_of(&job), &job, phase);
  gemm_grid g = grid_of(&job, by);
  return phase > 0 || by == NOTHING ? 0 : g.across * g.down;
}

static int64_t scratch_bytes(const void *args) {
  gemm_job job = narrow(job_of(args));
  return route_of(&job) == PACKED ? mt_gemm_packed_scratch(kernel_of(&job), &job) : 0;
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
  gemm_job job = narrow(job_of(args));
  route by = route_of(&job);
  if (by == PACKED) {
    mt_gemm_packed(kernel_of(&job), &job, scratch, phase, tile, ctx->workspace);
    return 0;
  }
  gemm_grid g = grid_of(&job, by);
  gemm_part part = {.tile = mt_gemm_tile(&g, (gemm_tile){0, job.m, 0, job.n}, tile), .k1 = job.k, .depth = gemm_job_depth(kernel_of(&job), &job)};
  if (by == BY_ROW) by_row_of(&job)(&job, &part.tile, ctx->workspace);
  else if (by == SINGLE || by_onednn(ctx, &job, &part.tile) != 0)
    mt_gemm_own(kernel_of(&job), &job, &part, ctx->workspace); /* or a shape or a processor that oneDNN refuses */
  return 0;
}

const uint32_t mt_cpu_known_epilogue = MT_BIT(MT_NO_EPILOGUE) | MT_BIT(MT_GELU_TANH_EPILOGUE) | MT_BIT(MT_GELU_ERF_EPILOGUE);

const mt_op mt_cpu_matmul = {.tiles = tiles, .scratch = scratch_bytes, .run = run};
