/* Large products by our own kernels. An operand that several tiles of C read is
 * packed once a call, by tiles of its own, before them. What is too large to lie
 * packed in the outer cache goes through in chunks along one dimension: phase p
 * packs chunk p and multiplies chunk p-1, so there are two buffers for what is cut. */
#include <stddef.h>

#include "gemm.h"

enum {
  WHOLE = 24 << 20,  /* bytes of packed operands up to which nothing is chunked */
  CHUNK = 8 << 20,   /* bytes of a chunk otherwise */
  SUMS = 32 << 20,   /* bytes of sums up to which k may be the chunked dimension */
  LINES = 96,        /* rows of A or columns of B that a tile packs: panels of every kernel fit */
  ROWS = 256,        /* of the largest tile: a block of A and the sums fit into the L2 cache, */
  COLUMNS = 768, WIDE = 1536, /* and B's panels come from the outer one in time; WIDE without sums */
  FEW = 4            /* panels of A that are few rows */
};

enum { ALONG_NONE, ALONG_M, ALONG_N, ALONG_K };

typedef struct {
  const gemm_kernel *kernel;
  int32_t along;
  int64_t m, n, k, chunks;             /* of a chunk; their number */
  int64_t depth;                       /* of a block of k: by k alone, so that parts of C are made as all of C is */
  int64_t segment;                     /* of k, which blocks do not cross: all, or a leaf's part of a stretch */
  int64_t levels;                      /* of the tree of leaves; 1: there is none */
  int64_t a_bytes, b_bytes;            /* of a buffer */
  int32_t a_buffers, b_buffers;        /* none where a tile packs for itself */
  gemm_grid grid;                      /* of a chunk's C */
} packed_plan;

static gemm_grid cut(const gemm_kernel *kr, const gemm_job *job, int64_t m, int64_t n, int64_t k, int32_t along) {
  if (gemm_tree(job) && along != ALONG_K) return mt_gemm_cut(m, n, k, (gemm_limits){TREE_ROWS, TREE_COLUMNS, kr->mr, kr->nr});
  /* Of few rows a tile with many columns is too large a part of all: threads would not end together. */
  const int64_t columns = m <= FEW * kr->mr ? FEW * kr->nr / 2 : gemm_depth(kr, k) < k ? COLUMNS : WIDE;
  return mt_gemm_cut(m, n, k, (gemm_limits){ROWS, columns, kr->mr, kr->nr});
}

/* Pieces of n of equal size, multiples of unit, whose number keeps `bytes` each. */
static int64_t piece(int64_t n, int64_t line_bytes, int64_t unit) {
  return mt_up(mt_ceil(n, mt_ceil(n * line_bytes, CHUNK)), unit);
}

/* Whether the chunks of `bytes` for each k may be along k: it is the longest dimension, there is space for the sums, and
 * chunks can be parts of leaves. */
static int32_t can_chunk_k(const gemm_job *job, int64_t levels, int64_t bytes) {
  if (job->chunk || job->stretches > 1 || job->k < mt_max(job->m, job->n) || job->m * job->n * levels > SUMS / 4) return 0;
  return !gemm_tree(job) || gemm_leaf(job) * bytes > CHUNK;
}

static packed_plan plan_of(const gemm_kernel *kr, const gemm_job *job) {
  packed_plan p = {.kernel = kr, .m = job->m, .n = job->n, .k = job->k, .chunks = 1, .depth = gemm_job_depth(kr, job), .levels = gemm_levels(job)};
  p.grid = cut(kr, job, job->m, job->n, job->k, ALONG_NONE);
  p.segment = gemm_tree(job) ? gemm_leaf(job) : job->k;
  int64_t a = p.grid.across > 1 ? job->m : 0, b = p.grid.down > 1 ? job->n : 0, line = job->k * kr->element;
  if ((a + b) * line > WHOLE) {
    if (can_chunk_k(job, p.levels, (a + b) * kr->element)) p.along = ALONG_K;
    else p.along = a > b ? ALONG_M : ALONG_N;
    if (p.along == ALONG_M) p.chunks = mt_ceil(job->m, p.m = piece(job->m, line, LINES));
    if (p.along == ALONG_N) p.chunks = mt_ceil(job->n, p.n = piece(job->n, line, LINES));
    if (p.along == ALONG_K) p.chunks = job->k / p.segment * mt_ceil(p.segment, p.k = piece(p.segment, (a + b) * kr->element, p.depth));
    p.grid = cut(kr, job, p.m, p.n, p.k, p.along);
  }
  if (p.grid.across > 1) p.a_buffers = p.along == ALONG_M || p.along == ALONG_K ? 2 : 1;
  if (p.grid.down > 1) p.b_buffers = p.along == ALONG_N || p.along == ALONG_K ? 2 : 1;
  p.a_bytes = mt_up(mt_up(p.m, kr->mr) * mt_up(p.k, kr->k_unit) * kr->element, 64);
  p.b_bytes = mt_up(mt_up(p.n, kr->nr) * mt_up(p.k, kr->k_unit) * kr->element, 64);
  return p;
}

/* The sums of all tiles, kept where k is chunked. */
static int64_t tile_sums(const packed_plan *p) { return p->along == ALONG_K ? mt_up(p->grid.rows, p->kernel->mr) * mt_up(p->grid.columns, p->kernel->nr) * p->levels : 0; }

int64_t mt_gemm_packed_scratch(const gemm_kernel *kr, const gemm_job *job) {
  packed_plan p = plan_of(kr, job);
  return p.a_bytes * p.a_buffers + p.b_bytes * p.b_buffers + tile_sums(&p) * p.grid.down * p.grid.across * 4;
}

/* A chunk's part of C, and its k. */
typedef struct { gemm_tile c; int64_t k0, k1; } range;

static range chunk_of(const packed_plan *p, const gemm_job *job, int64_t chunk) {
  int64_t i = p->along == ALONG_M ? chunk * p->m : 0, j = p->along == ALONG_N ? chunk * p->n : 0, k = 0, k1 = job->k;
  if (p->along == ALONG_K) { /* no chunk crosses a segment's end */
    int64_t each = mt_ceil(p->segment, p->k), from = chunk / each * p->segment;
    k = from + chunk % each * p->k;
    k1 = mt_min(from + p->segment, k + p->k);
  }
  return (range){{i, mt_min(job->m, i + p->m), j, mt_min(job->n, j + p->n)}, k, k1};
}

/* How a chunk of an operand is cut for packing: lines in groups, each block of k in
 * pieces; long in the direction in which memory runs. */
typedef struct { int64_t count, lines, groups, depth, pieces, segment, blocks, segments; } packing;

static packing packing_of(const packed_plan *p, const gemm_job *job, int32_t of_b, const range *r) {
  int32_t along_k = (of_b ? job->b.row : job->a.col) == 1;
  packing c = {.count = of_b ? r->c.j1 - r->c.j0 : r->c.i1 - r->c.i0, .lines = along_k ? LINES : 16 * LINES, .depth = along_k ? p->depth : LINES};
  c.groups = mt_ceil(c.count, c.lines);
  c.pieces = mt_ceil(p->depth, c.depth);
  c.segment = mt_min(p->segment, r->k1 - r->k0);
  c.blocks = mt_ceil(c.segment, p->depth);
  c.segments = c.segment ? (r->k1 - r->k0) / c.segment : 0;
  return c;
}

static int64_t packing_tiles(const packed_plan *p, const gemm_job *job, int32_t of_b, const range *r) {
  packing c = packing_of(p, job, of_b, r);
  return c.groups * c.pieces * c.blocks * c.segments;
}

/* Tiles of a phase: those of C, of A's packing, of B's. */
typedef struct { int64_t c, a, b; } phase_tiles;

static phase_tiles tiles_of(const packed_plan *p, const gemm_job *job, int32_t phase) {
  phase_tiles t = {0};
  if (phase > 0 && phase <= p->chunks) {
    range r = chunk_of(p, job, phase - 1);
    t.c = mt_ceil(r.c.i1 - r.c.i0, p->grid.rows) * p->grid.across;
    if (p->along == ALONG_N) t.c = p->grid.down * mt_ceil(r.c.j1 - r.c.j0, p->grid.columns);
  }
  if (phase < p->chunks) {
    range r = chunk_of(p, job, phase);
    if (p->a_buffers > (phase > 0)) t.a = packing_tiles(p, job, 0, &r);
    if (p->b_buffers > (phase > 0)) t.b = packing_tiles(p, job, 1, &r);
  }
  return t;
}

/* Where nothing is packed the first phase multiplies: one without tiles would end
 * the call. */
static int32_t first_phase(const packed_plan *p) { return p->a_buffers + p->b_buffers == 0; }

int64_t mt_gemm_packed_tiles(const gemm_kernel *kr, const gemm_job *job, int32_t phase) {
  packed_plan p = plan_of(kr, job);
  phase_tiles t = tiles_of(&p, job, phase + first_phase(&p));
  return t.c + t.a + t.b;
}

static gemm_packed packed_a(const packed_plan *p, const range *r, char *scratch, int64_t chunk) {
  if (p->a_buffers == 0) return (gemm_packed){0};
  return (gemm_packed){scratch + chunk % p->a_buffers * p->a_bytes, mt_up(r->c.i1 - r->c.i0, p->kernel->mr), r->c.i0};
}

static gemm_packed packed_b(const packed_plan *p, const range *r, char *scratch, int64_t chunk) {
  if (p->b_buffers == 0) return (gemm_packed){0};
  return (gemm_packed){scratch + p->a_buffers * p->a_bytes + chunk % p->b_buffers * p->b_bytes, mt_up(r->c.j1 - r->c.j0, p->kernel->nr), r->c.j0};
}

static void pack(const packed_plan *p, const gemm_job *job, int32_t of_b, char *scratch, int64_t chunk, int64_t tile) {
  const gemm_kernel *kr = p->kernel;
  range r = chunk_of(p, job, chunk);
  packing c = packing_of(p, job, of_b, &r);
  gemm_packed to = of_b ? packed_b(p, &r, scratch, chunk) : packed_a(p, &r, scratch, chunk);
  int64_t piece = tile / c.groups % c.pieces * c.depth, nth = tile / c.groups / c.pieces;
  int64_t within = nth % c.blocks * p->depth, k = nth / c.blocks * c.segment + within; /* from k0 */
  int64_t line = to.first + tile % c.groups * c.lines, end = mt_min(to.first + c.count, line + c.lines);
  int64_t block = mt_min(p->depth, c.segment - within), depth = mt_min(c.depth, block - piece), side = (of_b ? kr->nr : kr->mr) * kr->element;
  if (depth > 0) mt_gemm_pack(kr, job, of_b, gemm_panel(kr, &to, line, k, block) + piece * side, mt_up(block, kr->k_unit) * side, line, end, r.k0 + k + piece, depth);
}

static void multiply(const packed_plan *p, const gemm_job *job, char *scratch, int64_t chunk, int64_t tile, void *workspace) {
  range r = chunk_of(p, job, chunk);
  gemm_grid g = p->grid;
  g.across = mt_ceil(r.c.j1 - r.c.j0, g.columns);
  gemm_part part = {.tile = mt_gemm_tile(&g, r.c, tile), .k0 = r.k0, .k1 = r.k1, .depth = p->depth};
  part.a = packed_a(p, &r, scratch, chunk);
  part.b = packed_b(p, &r, scratch, chunk);
  if (tile_sums(p) > 0) part.sums = (float *)(scratch + p->a_buffers * p->a_bytes + p->b_buffers * p->b_bytes) + tile * tile_sums(p);
  mt_gemm_own(p->kernel, job, &part, workspace);
}

void mt_gemm_packed(const gemm_kernel *kr, const gemm_job *job, void *scratch, int32_t phase, int64_t tile, void *workspace) {
  packed_plan p = plan_of(kr, job);
  phase += first_phase(&p);
  phase_tiles t = tiles_of(&p, job, phase);
  if (tile < t.c) multiply(&p, job, scratch, phase - 1, tile, workspace);
  else if (tile < t.c + t.a) pack(&p, job, 0, scratch, phase, tile - t.c);
  else pack(&p, job, 1, scratch, phase, tile - t.c - t.a);
}
