/* A part of C by our own kernels: k in blocks in rising order, so every sum has
 * one order; A's block in the L2 cache, a panel of B's in L1. Operands come packed,
 * or are packed here, A's block at once, B's a panel at a time. Where sums are a tree
 * the leaves come one after the other, and a micro tile has sums of every level. */
#include <string.h>

#include "gemm.h"

typedef struct {
  const gemm_kernel *kernel;
  const gemm_job *job;
  const gemm_part *part;
  char *a, *b;      /* packing buffers */
  float *rest;      /* space after all else */
  float *sums;      /* a micro tile's after another's, unless k is one block */
  int64_t k, depth; /* this block of k */
  int32_t first, last; /* of the leaf, or of all of k */
  int64_t leaf, levels; /* of a tree: its leaf under way, and how many levels there are; else 0, 1 */
  double *exact;        /* of a sum on a grid: a micro tile's after another's; NULL: it is none */
  int32_t later;        /* the leaf is not the first */
  int32_t most;         /* the bits of the largest magnitude so far */
  int32_t single;   /* k is one block: there is space for one micro tile's sums */
} own_call;

void mt_gemm_pack(const gemm_kernel *kr, const gemm_job *job, int32_t of_b, char *to, int64_t panel, int64_t line, int64_t end, int64_t k, int64_t depth) {
  enum { STRIP = 32 };
  const gemm_operand rows = gemm_rows(job, of_b, k), *x = &rows;
  int64_t side = of_b ? kr->nr : kr->mr, strip = (of_b ? x->row : x->col) == 1 ? depth : STRIP;
  for (int64_t at = 0; at < depth; at += strip)
    for (int64_t l = line; l < end; l += side)
      (of_b ? kr->pack_b : kr->pack_a)(to + (l - line) / side * panel + at * side * kr->element, x, l, mt_min(side, end - l), k + at, mt_min(strip, depth - at));
}

/* Rows of C, and of Aux, lie pages apart: they come while sums are made. */
static void fetch(const gemm_job *job, int64_t i, int64_t rows, int64_t j, int64_t columns) {
  int64_t size = job->c_dtype == MT_F32 ? 4 : 2;
  for (int64_t r = i; r < i + rows; r++) {
    const char *c = job->c + (r * job->ldc + j) * size, *aux = job->aux + (r * job->ldaux + j) * 2;
    for (int64_t at = 0; at < columns * size; at += 64) __builtin_prefetch(c + at, 1);
    if (job->epilogue == MT_NO_EPILOGUE || job->stream_aux) continue;
    for (int64_t at = 0; at < columns * 2; at += 64) __builtin_prefetch(aux + at, 1);
  }
}

static int32_t any_nan(const float *x, int64_t n) {
  int32_t nan = 0;
  for (int64_t i = 0; i < n; i++) nan |= x[i] != x[i];
  return nan;
}

/* A micro tile from its operands, in f32. */
static void make_again(const own_call *o, const gemm_tile *here) {
  const gemm_kernel *kr = mt_gemm_kernels()->f32;
  gemm_part part = {.tile = *here, .k1 = o->job->k, .depth = gemm_depth(kr, o->job->k)};
  mt_gemm_own(kr, o->job, &part, o->rest);
}

/* Adds a leaf's sums, at the lowest level, to the tree: those of two subtrees of one size make
 * one of the next. The sums of all leaves end up at the highest level. */
static const float *grow(const own_call *o, float *sums) {
  const int64_t n = o->kernel->mr * o->kernel->nr;
  const float *made = sums;
  int64_t level = 1;
  for (int64_t leaf = o->leaf; leaf & 1; leaf >>= 1, level++) {
    float *half = sums + level * n;
    for (int64_t i = 0; i < n; i++) half[i] += made[i];
    made = half;
  }
  if (o->leaf + 1 < o->job->leaves) memcpy(sums + level * n, made, n * sizeof *made);
  return made;
}

/* Adds a leaf's sums of a micro tile to those of all leaves, and after the last these to C. */
static void add_leaf(own_call *o, const gemm_tile *here, const float *sums, double *exact) {
  const gemm_kernel *kr = o->kernel;
  const gemm_job *job = o->job;
  const int64_t n = kr->mr * kr->nr;
  if (!o->later) memset(exact, 0, n * sizeof *exact);
  o->most = mt_gemm_kernels()->grid_add(sums, exact, n, *job->grid, o->most);
  if (o->k + o->depth < job->k) return;
  for (int64_t i = here->i0; i < here->i1; i++) {
    double *c = (double *)job->c + i * job->ldc, *row = exact + (i - here->i0) * kr->nr;
    for (int64_t j = here->j0; j < here->j1; j++) c[j] += row[j - here->j0];
  }
}

/* The micro tile at (i, j): after the last block of k on to C while its sums are in
 * the L1 cache. */
static void micro_tile(own_call *o, int64_t i, int64_t j, const char *a, const char *b, const char *next) {
  const gemm_kernel *kr = o->kernel;
  const gemm_tile *t = &o->part->tile;
  int64_t across = mt_ceil(t->j1 - t->j0, kr->nr), index = (i - t->i0) / kr->mr * across + (j - t->j0) / kr->nr;
  float *sums = o->single ? o->sums : o->sums + index * o->levels * kr->mr * kr->nr;
  const float *all = sums;
  gemm_tile here = {i, mt_min(i + kr->mr, t->i1), j, mt_min(j + kr->nr, t->j1)};
  int32_t last = o->last && o->leaf + 1 >= o->job->leaves;
  if (o->exact) {
    kr->micro(o->depth, a, b, sums, !o->first, next);
    if (o->last) add_leaf(o, &here, sums, o->exact + index * kr->mr * kr->nr);
    return;
  }
  if (last && !o->job->stream) fetch(o->job, i, here.i1 - i, j, here.j1 - j);
  kr->micro(mt_up(o->depth, kr->k_unit), a, b, sums, !o->first, next);
  if (o->levels > 1 && o->last) all = grow(o, sums);
  if (!last) return;
  if (kr->splits && any_nan(all, kr->mr * kr->nr)) make_again(o, &here);
  else if (kr->finish && here.i1 - i == kr->mr && here.j1 - j == kr->nr) kr->finish(o->job, i, j, all);
  else mt_gemm_kernels()->finish(o->job, &here, all, kr->nr);
}

/* This block of A, packed now if need be, in panels of so many bytes. */
static const char *block_of_a(own_call *o, int64_t panel) {
  const gemm_kernel *kr = o->kernel;
  const gemm_tile *t = &o->part->tile;
  if (o->part->a.data) return gemm_panel(kr, &o->part->a, t->i0, o->k - o->part->k0, o->depth);
  mt_gemm_pack(kr, o->job, 0, o->a, panel, t->i0, t->i1, o->k, o->depth);
  return o->a;
}

static void block(own_call *o) {
  const gemm_kernel *kr = o->kernel;
  const gemm_part *p = o->part;
  const gemm_tile *t = &p->tile;
  int64_t line = mt_up(o->depth, kr->k_unit) * kr->element, a_panel = line * kr->mr, b_panel = line * kr->nr;
  int64_t part = b_panel / mt_ceil(t->i1 - t->i0, kr->mr);
  const char *first = block_of_a(o, a_panel);
  const gemm_operand rows = gemm_rows(o->job, 1, o->k);
  for (int64_t j = t->j0; j < t->j1; j += kr->nr) {
    const char *a = first, *b = p->b.data ? gemm_panel(kr, &p->b, j, o->k - p->k0, o->depth) : o->b;
    if (!p->b.data) kr->pack_b(o->b, &rows, j, mt_min(kr->nr, t->j1 - j), o->k, o->depth);
    const char *next = b + b_panel; /* a part of it comes with each panel of A */
    for (int64_t i = t->i0; i < t->i1; i += kr->mr, a += a_panel, next += part) micro_tile(o, i, j, a, b, next);
  }
}

/* Products over k from k0 to k1, a leaf or a stretch of it, in blocks of `depth`. */
static void blocks(own_call *o, int64_t k0, int64_t k1, int64_t depth, int32_t first, int32_t last) {
  o->k = k0;
  do { /* once even for k = 0, which makes C zero or the bias */
    o->depth = mt_min(depth, k1 - o->k);
    o->first = first && o->k == k0;
    o->last = last && o->k + o->depth == k1;
    block(o);
    o->k += o->depth;
  } while (o->k < k1);
}

/* Every leaf of a sum on a grid by itself, then the peak, which no order changes. */
static void grid_leaves(own_call *o, int64_t depth) {
  const gemm_job *job = o->job;
  for (int64_t k = 0, end; k < job->k; k = end, o->later = 1) {
    end = gemm_leaf_end(job, k);
    blocks(o, k, end, depth, 1, 1);
  }
  mt_raise(job->peak, o->most);
}

/* Every leaf by itself: its parts of all stretches, one after the other. */
static void leaves(own_call *o, int64_t depth) {
  const gemm_job *job = o->job;
  const int64_t part = gemm_leaf(job), stretches = mt_max(1, job->stretches);
  for (o->leaf = 0; o->leaf < job->leaves; o->leaf++)
    for (int64_t s = 0; s < stretches; s++) {
      int64_t k = s * (job->k / stretches) + o->leaf * part;
      blocks(o, k, k + part, depth, s == 0, s + 1 == stretches);
    }
}

void mt_gemm_own(const gemm_kernel *kr, const gemm_job *job, const gemm_part *p, void *workspace) {
  own_call o = {.kernel = kr, .job = job, .part = p, .levels = 1};
  int64_t depth = p->depth;
  const int32_t tree = gemm_tree(job);
  for (int64_t n = job->leaves; n > 1; n >>= 1) o.levels++; /* a leaf's own sums are at the lowest */
  o.single = !p->sums && !tree && depth >= p->k1 - p->k0;
  o.b = workspace;
  o.a = o.b + mt_up(kr->nr * depth * kr->element, 64);
  int64_t down = mt_ceil(p->tile.i1 - p->tile.i0, kr->mr), across = mt_ceil(p->tile.j1 - p->tile.j0, kr->nr);
  float *sums = (float *)(o.a + mt_up(down * kr->mr * depth * kr->element, 64));
  o.sums = p->sums ? p->sums : sums;
  o.rest = sums + (o.single ? 1 : down * across * o.levels) * kr->mr * kr->nr;
  if (gemm_exact(job)) {
    o.exact = (double *)mt_up((uintptr_t)o.rest, 64);
    o.rest = (float *)(o.exact + down * across * kr->mr * kr->nr);
  }
  if (kr->begin) kr->begin();
  if (gemm_exact(job)) grid_leaves(&o, depth);
  else if (tree) leaves(&o, depth);
  else blocks(&o, p->k0, p->k1, depth, p->k0 == 0, p->k1 == job->k);
  if (kr->end) kr->end();
}
