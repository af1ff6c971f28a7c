/* A part of C by our own kernels: k in blocks in rising order, so every sum has
 * one order; A's block in the L2 cache, a panel of B's in L1. Operands come packed,
 * or are packed here, A's block at once, B's a panel at a time. Where sums have leaves,
 * a block has as many complete leaves as fit, or a part of one: a micro tile adds up its
 * leaves while their sums are in the L1 cache. */
#include <string.h>

#include "gemm.h"

enum {
  BLOCK = 256,      /* of k, at most, where a block has several leaves; */
  EXACT_BLOCK = 128 /* on a grid: all that a micro tile takes stays in the L1 cache from one leaf to the next */
};

typedef struct {
  const gemm_kernel *kernel;
  const gemm_job *job;
  const gemm_part *part;
  char *a, *b;      /* packing buffers */
  float *rest;      /* space after all else */
  float *sums;      /* a micro tile's after another's, unless one is enough */
  int64_t k, depth; /* this block of k */
  int32_t first, last;  /* whether its leaf, or all of k, begins with it, and ends */
  int64_t pieces;       /* leaves of this block, or 1 */
  int16_t ends[BLOCK];  /* where the pieces end, from k on */
  int64_t a_row, b_row; /* a piece that begins with row r is r times so many bytes behind the first in its panel */
  int64_t leaf, levels; /* of a tree: the first leaf of this block, and how many levels there are; else 0, 1 */
  uint64_t *exact;      /* of a sum on a grid: a micro tile's after another's, as gemm_grid_add has them; NULL: it is none */
  int32_t later;        /* the block is not the first */
  int32_t most;         /* the bits of the largest magnitude so far */
  int32_t single;       /* k is one block: there is space for one micro tile's sums */
} own_call;

void mt_gemm_pack(const gemm_kernel *kr, const gemm_job *job, int32_t of_b, char *to, int64_t panel, int64_t line, int64_t end, int64_t k, int64_t depth) {
  enum { ROWS = 8 }; /* that lie a multiple of pages apart, as many as the L1 cache has of one address */
  const gemm_operand rows = gemm_rows(job, of_b, k), *x = &rows;
  int64_t side = of_b ? kr->nr : kr->mr, strip = (of_b ? x->row : x->col) == 1 ? depth : mt_max(ROWS, kr->k_unit);
  for (int64_t at = 0; at < depth; at += strip)
    for (int64_t l = line; l < end; l += side)
      (of_b ? kr->pack_b : kr->pack_a)(to + (l - line) / side * panel + at * side * kr->element, x, l, mt_min(side, end - l), k + at, mt_min(strip, depth - at));
}

/* Rows of C, and of Aux, lie pages apart: they come while sums are made. */
static void fetch(const gemm_job *job, int64_t i, int64_t rows, int64_t j, int64_t columns) {
  if (job->turned) return;
  int64_t size = gemm_exact(job) ? 8 : job->c_dtype == MT_F32 ? 4 : 2;
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

/* Where piece n of this block begins, from k on. */
static int64_t piece_from(const own_call *o, int64_t n) { return n ? o->ends[n - 1] : 0; }

/* Where the sums of a leaf go among those of the tree's levels: a leaf that is the first of two to level 1, where the
 * second, at the lowest level, is added to it. */
static float *leaf_sums(const own_call *o, int64_t leaf, float *sums) {
  return leaf % 2 == 0 && leaf + 1 < o->job->leaves ? sums + o->kernel->mr * o->kernel->nr : sums;
}

/* Adds a leaf's sums to the tree: those of two subtrees of one size make one of the next. Returns where the largest
 * subtree is that is complete. */
static const float *grow(const own_call *o, int64_t leaf, float *sums) {
  const int64_t n = o->kernel->mr * o->kernel->nr;
  float *made = leaf_sums(o, leaf, sums), *half = sums + n;
  for (int64_t rest = leaf; rest & 1; rest >>= 1, half += n) {
    /* It stays if it is the second of two, or all; else it is the first of two, and goes to the next level. */
    float *to = rest & 2 || leaf + 1 == o->job->leaves ? half : half + n;
    mt_gemm_ordered_kernels()->add(to, half, made, n);
    made = to;
  }
  return made;
}

/* Adds the sums of a micro tile on a grid to C. */
static void add_to_c(const own_call *o, const gemm_tile *here, const uint64_t *exact, int64_t leaves) {
  gemm_grid_read *read = mt_gemm_ordered_kernels()->grid_read;
  for (int64_t i = here->i0; i < here->i1; i++, exact += o->kernel->nr)
    read((double *)o->job->c + i * o->job->ldc + here->j0, exact, here->j1 - here->j0, leaves, *o->job->grid, o->most);
}

/* Products of piece p of this block to `to`, added to what is there where the leaf began in an earlier block. */
static void multiply(const own_call *o, int64_t p, const char *a, const char *b, float *to, const char *next) {
  const int64_t from = piece_from(o, p);
  o->kernel->micro(mt_up(o->ends[p] - from, o->kernel->k_unit), a + from * o->a_row, b + from * o->b_row, to, !o->first, next + from * o->b_row);
}

/* The pieces of this block, added on a grid: one while the products of the next are made, by other units of the processor. */
static void add_on_grid(own_call *o, const char *a, const char *b, float *sums, uint64_t *exact, const char *next) {
  const int64_t n = o->kernel->mr * o->kernel->nr;
  gemm_grid_add *add = mt_gemm_ordered_kernels()->grid_add;
  if (!o->later) memset(exact, 0, n * sizeof *exact);
  for (int64_t p = 0; p < o->pieces; p++) {
    multiply(o, p, a, b, sums + p % 2 * n, next);
    if (p > 0) o->most = add(sums + (p - 1) % 2 * n, exact, n, *o->job->grid, o->most);
  }
  if (o->last) o->most = add(sums + (o->pieces - 1) % 2 * n, exact, n, *o->job->grid, o->most);
}

/* The pieces of this block as leaves of the tree, or the block's part of one sum; returns the sums of all. */
static const float *add_to_tree(const own_call *o, const char *a, const char *b, float *sums, const char *next) {
  const float *all = sums;
  for (int64_t p = 0; p < o->pieces; p++) {
    multiply(o, p, a, b, o->levels > 1 ? leaf_sums(o, o->leaf + p, sums) : sums, next);
    if (o->levels > 1 && o->last) all = grow(o, o->leaf + p, sums);
  }
  return all;
}

/* The micro tile at (i, j): after the last block of k on to C while its sums are in
 * the L1 cache. */
static void micro_tile(own_call *o, int64_t i, int64_t j, const char *a, const char *b, const char *next) {
  const gemm_kernel *kr = o->kernel;
  const gemm_tile *t = &o->part->tile;
  const int64_t n = kr->mr * kr->nr, across = mt_ceil(t->j1 - t->j0, kr->nr), index = (i - t->i0) / kr->mr * across + (j - t->j0) / kr->nr;
  uint64_t *exact = o->exact ? o->exact + index * n : NULL;
  const int32_t single = o->single || (exact && o->first && o->last); /* no sums stay from one block to the next */
  float *sums = single ? o->sums : o->sums + index * o->levels * n;
  gemm_tile here = {i, mt_min(i + kr->mr, t->i1), j, mt_min(j + kr->nr, t->j1)};
  const int32_t last = o->last && (o->exact ? o->k + o->depth >= o->job->k : o->leaf + o->pieces >= o->job->leaves);
  if (last && !o->job->stream) fetch(o->job, i, here.i1 - i, j, here.j1 - j);
  if (exact) {
    add_on_grid(o, a, b, sums, exact, next);
    if (last) add_to_c(o, &here, exact, o->leaf + o->pieces);
    return;
  }
  const float *all = add_to_tree(o, a, b, sums, next);
  if (!last) return;
  if (kr->splits && any_nan(all, n)) make_again(o, &here);
  else if (kr->finish && here.i1 - i == kr->mr && here.j1 - j == kr->nr) kr->finish(o->job, i, j, all);
  else mt_gemm_ordered_kernels()->finish(o->job, &here, all, kr->nr);
}

/* Packs this block of A, or a panel of B from column j on. The leaves of a chunk lie apart. */
static void pack_a(own_call *o, int64_t panel) {
  const gemm_tile *t = &o->part->tile;
  for (int64_t p = 0, from = 0, to; from < o->depth; p++, from = to) {
    to = o->job->chunk ? o->ends[p] : o->depth;
    mt_gemm_pack(o->kernel, o->job, 0, o->a + from * o->a_row, panel, t->i0, t->i1, o->k + from, to - from);
  }
}

static void pack_b(own_call *o, int64_t j) {
  const int64_t columns = mt_min(o->kernel->nr, o->part->tile.j1 - j);
  for (int64_t p = 0, from = 0, to; from < o->depth; p++, from = to) {
    to = o->job->chunk ? o->ends[p] : o->depth;
    const gemm_operand rows = gemm_rows(o->job, 1, o->k + from);
    o->kernel->pack_b(o->b + from * o->b_row, &rows, j, columns, o->k + from, to - from);
  }
}

static void block(own_call *o) {
  const gemm_kernel *kr = o->kernel;
  const gemm_part *p = o->part;
  const gemm_tile *t = &p->tile;
  /* Packed before, a leaf is a block of its own; packed here, its rows follow those of the leaf before. */
  const int64_t own = mt_up(o->depth, kr->k_unit) * kr->element, before = mt_up(o->ends[0], kr->k_unit) * kr->element;
  const int64_t a_panel = (p->a.data ? before : own) * kr->mr, b_panel = (p->b.data ? before : own) * kr->nr;
  o->a_row = (p->a.data ? p->a.lines : kr->mr) * kr->element, o->b_row = (p->b.data ? p->b.lines : kr->nr) * kr->element;
  int64_t part = b_panel / mt_ceil(t->i1 - t->i0, kr->mr);
  if (!p->a.data) pack_a(o, a_panel);
  const char *first = p->a.data ? gemm_panel(kr, &p->a, t->i0, o->k - p->k0, o->ends[0]) : o->a;
  for (int64_t j = t->j0; j < t->j1; j += kr->nr) {
    const char *a = first, *b = p->b.data ? gemm_panel(kr, &p->b, j, o->k - p->k0, o->ends[0]) : o->b;
    if (!p->b.data) pack_b(o, j);
    const char *next = b + b_panel; /* a part of it comes with each panel of A */
    for (int64_t i = t->i0; i < t->i1; i += kr->mr, a += a_panel, next += part) micro_tile(o, i, j, a, b, next);
  }
  o->later = 1;
}

/* Products over k from k0 to k1, a leaf or a stretch of it, in blocks of `depth`. */
static void blocks(own_call *o, int64_t k0, int64_t k1, int64_t depth, int32_t first, int32_t last) {
  o->k = k0;
  o->pieces = 1;
  do { /* once even for k = 0, which makes C zero or the bias */
    o->depth = mt_min(depth, k1 - o->k);
    o->ends[0] = (int16_t)o->depth;
    o->first = first && o->k == k0;
    o->last = last && o->k + o->depth == k1;
    block(o);
    o->k += o->depth;
  } while (o->k < k1);
}

/* As many complete leaves from k on as fit into a block; returns where they end, or k where not one fits. */
static int64_t complete_leaves(own_call *o, int64_t k) {
  const int64_t most = o->exact ? EXACT_BLOCK : BLOCK;
  o->k = k;
  o->first = o->last = 1;
  o->pieces = 0;
  for (int64_t end = k; k < o->job->k; k = end) {
    end = gemm_leaf_end(o->job, k);
    if (end - o->k > most) break;
    o->ends[o->pieces++] = (int16_t)(end - o->k);
  }
  o->depth = k - o->k;
  return k;
}

/* Leaves that are adjacent in k, in their order: on a grid, or of a tree. Where their lengths differ, that of one
 * decides how it is cut into blocks, and not how many rows there are. */
static void adjacent_leaves(own_call *o, int64_t depth) {
  if (o->job->leaf) depth = BLOCK;
  for (int64_t k = 0, end; k < o->job->k; k = end) {
    end = complete_leaves(o, k);
    if (end > k) block(o);
    else blocks(o, k, end = gemm_leaf_end(o->job, k), depth, 1, 1);
    o->leaf += o->pieces;
  }
}

/* Leaves with a part in each of several stretches of k, or without rows. */
static void leaves_in_stretches(own_call *o, int64_t depth) {
  const gemm_job *job = o->job;
  const int64_t part = gemm_leaf(job), stretches = mt_max(1, job->stretches);
  for (o->leaf = 0; o->leaf < job->leaves; o->leaf++)
    for (int64_t s = 0; s < stretches; s++) {
      int64_t k = s * (job->k / stretches) + o->leaf * part;
      blocks(o, k, k + part, depth, s == 0, s + 1 == stretches);
    }
}

/* A part of a leaf, whose sums continue those of the parts before. */
static void part_of_leaf(own_call *o) {
  const gemm_part *p = o->part;
  const int64_t leaf = gemm_leaf(o->job);
  o->leaf = p->k0 / leaf;
  blocks(o, p->k0, p->k1, p->depth, p->k0 % leaf == 0, p->k1 % leaf == 0);
}

void mt_gemm_own(const gemm_kernel *kr, const gemm_job *job, const gemm_part *p, void *workspace) {
  own_call o = {.kernel = kr, .job = job, .part = p, .levels = gemm_levels(job)};
  const int64_t depth = p->depth;
  const int32_t tree = gemm_tree(job), exact = gemm_exact(job), adjacent = tree && job->k > 0 && job->stretches <= 1;
  const int64_t deepest = adjacent ? mt_max(BLOCK, depth) : depth;
  o.single = !p->sums && !tree && depth >= p->k1 - p->k0;
  o.b = workspace;
  o.a = o.b + mt_up(kr->nr * deepest * kr->element, 64);
  int64_t down = mt_ceil(p->tile.i1 - p->tile.i0, kr->mr), across = mt_ceil(p->tile.j1 - p->tile.j0, kr->nr);
  float *sums = (float *)(o.a + mt_up(down * kr->mr * deepest * kr->element, 64));
  o.sums = p->sums ? p->sums : sums;
  o.rest = sums + (o.single ? 1 : down * across * o.levels + exact) * kr->mr * kr->nr; /* on a grid, two leaves of a micro tile */
  if (exact) {
    o.exact = (uint64_t *)mt_up((uintptr_t)o.rest, 64);
    o.rest = (float *)(o.exact + down * across * kr->mr * kr->nr);
  }
  if (kr->begin) kr->begin();
  if (tree && p->sums) part_of_leaf(&o);
  else if (adjacent) adjacent_leaves(&o, depth);
  else if (tree && !exact) leaves_in_stretches(&o, depth);
  else if (!tree) blocks(&o, p->k0, p->k1, depth, p->k0 == 0, p->k1 == job->k);
  if (exact) mt_raise(job->peak, o.most);
  if (kr->end) kr->end();
}
