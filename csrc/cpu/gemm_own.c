/* One tile of C by our own kernels: A packed whole (L2 cache), B a panel at a
 * time (L1 cache), k in blocks in rising order, so every sum has one order. */
#include "gemm.h"

typedef struct {
  const gemm_kernel *kernel;
  const gemm_job *job;
  const gemm_tile *tile;
  char *a, *b;      /* packed */
  float *sums;      /* [rows, ld], where C itself cannot hold them */
  int64_t ld, k, depth, padded; /* this block of k */
  int32_t direct;   /* whole micro tiles go straight to C: nothing follows */
  int32_t single;   /* k is one block: sums holds one micro tile at a time */
} own_call;

static int64_t round_up(int64_t x, int64_t unit) { return (x + unit - 1) / unit * unit; }

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Rows of C, and of Aux, lie pages apart: they come while sums are made. */
static void fetch(const gemm_job *job, int64_t i, int64_t rows, int64_t j, int64_t columns) {
  int64_t size = job->c_dtype == MT_F32 ? 4 : 2;
  for (int64_t r = i; r < i + rows; r++) {
    const char *c = job->c + (r * job->ldc + j) * size, *aux = job->aux + (r * job->ldaux + j) * 2;
    for (int64_t at = 0; at < columns * size; at += 64) __builtin_prefetch(c + at, 1);
    if (job->epilogue == MT_NO_EPILOGUE) continue;
    for (int64_t at = 0; at < columns * 2; at += 64) __builtin_prefetch(aux + at, 1);
  }
}

/* The micro tile at (i, j): straight into C, or into the sums and after the last
 * block of k on to the epilogue while they are in the L1 cache. */
static void micro_tile(own_call *o, int64_t i, int64_t j, const char *a) {
  const gemm_kernel *kr = o->kernel;
  const gemm_job *job = o->job;
  int64_t rows = least(kr->mr, o->tile->i1 - i), columns = least(kr->nr, o->tile->j1 - j);
  int32_t last = o->k + o->depth == job->k, add = o->k > 0;
  if (o->direct && rows == kr->mr && columns == kr->nr) {
    fetch(job, i + kr->mr, least(kr->mr, o->tile->i1 - i - kr->mr), j, columns); /* the next call reads C at once */
    kr->micro(o->padded, a, o->b, (float *)job->c + i * job->ldc + j, job->ldc, add || job->accumulate);
    return;
  }
  gemm_tile part = {i, i + rows, j, j + columns};
  float *sums = o->single ? o->sums : o->sums + (i - o->tile->i0) * o->ld + (j - o->tile->j0);
  if (last) fetch(job, i, rows, j, columns);
  kr->micro(o->padded, a, o->b, sums, o->ld, add);
  if (last) mt_gemm_kernels()->finish(job, &part, sums, o->ld);
}

static void block(own_call *o) {
  const gemm_kernel *kr = o->kernel;
  const gemm_tile *t = o->tile;
  int64_t panel = kr->mr * o->padded * kr->element;
  for (int64_t i = t->i0; i < t->i1; i += kr->mr)
    kr->pack_a(o->a + (i - t->i0) / kr->mr * panel, &o->job->a, i, least(kr->mr, t->i1 - i), o->k, o->depth);
  for (int64_t j = t->j0; j < t->j1; j += kr->nr) {
    kr->pack_b(o->b, &o->job->b, o->k, o->depth, j, least(kr->nr, t->j1 - j));
    for (int64_t i = t->i0; i < t->i1; i += kr->mr) micro_tile(o, i, j, o->a + (i - t->i0) / kr->mr * panel);
  }
}

void mt_gemm_own(const gemm_kernel *kr, const gemm_job *job, const gemm_tile *t, void *workspace) {
  own_call o = {.kernel = kr, .job = job, .tile = t};
  int64_t blocks = (job->k + kr->k_block - 1) / kr->k_block;
  int64_t depth = blocks ? round_up((job->k + blocks - 1) / blocks, kr->k_unit) : 0;
  int64_t rows = round_up(t->i1 - t->i0, kr->mr);
  o.single = blocks <= 1;
  o.direct = job->c_dtype == MT_F32 && !job->bias && job->epilogue == MT_NO_EPILOGUE && (o.single || job->accumulate);
  o.ld = o.single ? kr->nr : round_up(t->j1 - t->j0, kr->nr);
  o.b = workspace;
  o.a = o.b + round_up(kr->nr * depth * kr->element, 64);
  o.sums = (float *)(o.a + round_up(rows * depth * kr->element, 64));
  if (kr->begin) kr->begin();
  do { /* once even for k = 0, which makes C zero or the bias */
    o.depth = least(depth, job->k - o.k);
    o.padded = round_up(o.depth, kr->k_unit);
    block(&o);
    o.k += o.depth;
  } while (o.k < job->k);
  if (kr->end) kr->end();
}
