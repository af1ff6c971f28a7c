/* One tile of C by our own kernels: A packed whole (L2 cache), B a panel at a
 * time (L1 cache), k in blocks in rising order, so every sum has one order. */
#include <string.h>

#include "gemm.h"

enum { MAX_MR = 32, MAX_NR = 64 };

typedef struct {
  const gemm_kernel *kernel;
  const gemm_job *job;
  const gemm_tile *tile;
  char *a, *b;      /* packed */
  float *sums;      /* [rows, ld], where C itself cannot hold them */
  int64_t ld, k, depth, padded; /* this block of k */
  int32_t direct;   /* sums go straight to C */
  int32_t single;   /* k is one block: sums holds one micro tile at a time */
} own_call;

static int64_t round_up(int64_t x, int64_t unit) { return (x + unit - 1) / unit * unit; }

static void add_corner(float *c, int64_t ldc, const float *part, int64_t ld, int64_t rows, int64_t columns, int32_t add) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < columns; j++) c[i * ldc + j] = part[i * ld + j] + (add ? c[i * ldc + j] : 0);
}

/* The micro tile at (i, j): into C, or into the sums and at the last block on to
 * the epilogue while they are in the L1 cache. */
static void micro_tile(own_call *o, int64_t i, int64_t j, const char *a) {
  const gemm_kernel *kr = o->kernel;
  const gemm_job *job = o->job;
  int64_t rows = o->tile->i1 - i < kr->mr ? o->tile->i1 - i : kr->mr;
  int64_t columns = o->tile->j1 - j < kr->nr ? o->tile->j1 - j : kr->nr;
  if (!o->direct) {
    float *sums = o->single ? o->sums : o->sums + (i - o->tile->i0) * o->ld + (j - o->tile->j0);
    kr->micro(o->padded, a, o->b, sums, o->ld, o->k > 0);
    gemm_tile part = {i, i + rows, j, j + columns};
    if (o->k + o->depth == job->k) mt_gemm_kernels()->finish(job, &part, sums, o->ld);
    return;
  }
  float *c = (float *)job->c + i * job->ldc + j;
  int32_t add = job->accumulate || o->k > 0;
  if (rows == kr->mr && columns == kr->nr) {
    kr->micro(o->padded, a, o->b, c, job->ldc, add);
    return;
  }
  _Alignas(64) float corner[MAX_MR * MAX_NR];
  kr->micro(o->padded, a, o->b, corner, kr->nr, 0);
  add_corner(c, job->ldc, corner, kr->nr, rows, columns, add);
}

static void block(own_call *o) {
  const gemm_kernel *kr = o->kernel;
  const gemm_tile *t = o->tile;
  int64_t panel = kr->mr * o->padded * kr->element;
  for (int64_t i = t->i0; i < t->i1; i += kr->mr)
    kr->pack_a(o->a + (i - t->i0) / kr->mr * panel, &o->job->a, i, t->i1 - i < kr->mr ? t->i1 - i : kr->mr, o->k, o->depth);
  for (int64_t j = t->j0; j < t->j1; j += kr->nr) {
    kr->pack_b(o->b, &o->job->b, o->k, o->depth, j, t->j1 - j < kr->nr ? t->j1 - j : kr->nr);
    for (int64_t i = t->i0; i < t->i1; i += kr->mr) micro_tile(o, i, j, o->a + (i - t->i0) / kr->mr * panel);
  }
}

void mt_gemm_own(const gemm_kernel *kr, const gemm_job *job, const gemm_tile *t, void *workspace) {
  own_call o = {.kernel = kr, .job = job, .tile = t};
  int64_t blocks = (job->k + kr->k_block - 1) / kr->k_block;
  int64_t depth = blocks ? round_up((job->k + blocks - 1) / blocks, kr->k_unit) : 0;
  int64_t rows = round_up(t->i1 - t->i0, kr->mr);
  o.direct = job->c_dtype == MT_F32 && !job->bias && job->epilogue == MT_NO_EPILOGUE;
  o.single = blocks <= 1;
  o.ld = o.single ? kr->nr : round_up(t->j1 - t->j0, kr->nr);
  o.b = workspace;
  o.a = o.b + round_up(kr->nr * depth * kr->element, 64);
  o.sums = (float *)(o.a + round_up(rows * depth * kr->element, 64));
  if (kr->begin) kr->begin();
  do { /* once even for k = 0, which makes C zero or the bias */
    o.depth = job->k - o.k < depth ? job->k - o.k : depth;
    o.padded = round_up(o.depth, kr->k_unit);
    block(&o);
    o.k += o.depth;
  } while (o.k < job->k);
  if (kr->end) kr->end();
}
