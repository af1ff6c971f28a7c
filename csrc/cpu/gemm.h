/* What the GEMM files share. A job is one call with transposes resolved into
 * strides; a kernel is what one instruction set does with packed panels; an
 * engine (own C, or oneDNN) computes one tile of C. */
#ifndef MT_GEMM_H
#define MT_GEMM_H

#include "cpu.h"
#include "tile.h"

typedef struct { const char *data; int64_t row, col; int32_t dtype; } gemm_operand; /* strides in elements; one of them is 1 */

typedef struct {
  gemm_operand a, b;   /* op(A) [m,k], op(B) [k,n] */
  char *c, *aux;
  const char *bias;
  int64_t m, n, k, ldc, ldaux;
  int32_t dtype, c_dtype; /* of A, B, bias, aux; of C */
  int32_t accumulate, epilogue;
  int32_t by_row; /* 1: a row of C may not depend on how many there are */
  int32_t leaves, stretches; /* of k, whose sums are a tree; 0: they are one chain of blocks */
  int64_t chunk, batch; /* of a sum on a grid: rows of a leaf, and how far apart they lie; 0: it is none */
  const int32_t *leaf;  /* of a sum on a grid whose leaves are runs of equal numbers: those of k; NULL: see chunk */
  const double *grid;   /* read while sums are made: a plan has no memory behind it */
  int32_t *peak;        /* the bits of the largest magnitude of a leaf */
  int32_t turned; /* 1: the product's transpose goes to C: element (i, j) to row j */
  int32_t stream, stream_aux; /* 1: C, or Aux, is large and new: it may be written around the caches */
} gemm_job;

typedef struct { int64_t i0, i1, j0, j1; } gemm_tile;

/* A packed operand: blocks of k, all of one depth but the last, in each the panels of `lines` rows of
 * A or columns of B, from `first` on. NULL: not packed. */
typedef struct { const char *data; int64_t lines, first; } gemm_packed;

/* What one call of our own kernels computes: the products of k0..k1-1, added to
 * those of smaller k where there are any, and C after the last. */
typedef struct {
  gemm_tile tile;
  int64_t k0, k1, depth;    /* depth of a block of k */
  gemm_packed a, b;
  float *sums;              /* kept between calls where k comes in more than one; else NULL */
} gemm_part;

/* Packs `lines` rows of A or columns of B from `line` on into a panel: k..k+depth-1. */
typedef void gemm_pack(void *panel, const gemm_operand *x, int64_t line, int64_t lines, int64_t k, int64_t depth);

/* Adds the sums of a leaf, rounded to a grid, to those of all leaves, which are in units of the grid, with the
 * bits of 1.5·2^52 units added for each leaf, modulo 2^64; returns the bits of the larger of most and their magnitudes.
 * n: a multiple of every vector. */
typedef int32_t gemm_grid_add(const float *leaf, uint64_t *sums, int64_t n, double grid, int32_t most);

/* c += n such sums of `leaves` leaves, or nan where `most`, of all their addends, is that of no finite number. */
typedef void gemm_grid_read(double *c, const uint64_t *sums, int64_t n, int64_t leaves, double grid, int32_t most);

/* out = a + b, which may be out. n: a multiple of every vector. */
typedef void gemm_add(float *out, const float *a, const float *b, int64_t n);

/* Panels: A in panels of mr rows, B in panels of nr columns, both with k
 * outermost and padded with zeros to mr, nr and multiples of k_unit. */
typedef struct {
  int32_t mr, nr, k_unit, k_block; /* k_block: a panel of B stays in the L1 cache */
  int32_t element;                 /* bytes of a packed value */
  void (*begin)(void), (*end)(void); /* around a tile; may be NULL */
  gemm_pack *pack_a, *pack_b;
  int32_t splits;                  /* 1: nan may stand for infinity: where one is, f32 products decide */
  /* c [mr,nr] (+)= A panel · B panel, depth a multiple of k_unit. `next` will be read soon. */
  void (*micro)(int64_t depth, const void *a, const void *b, float *c, int32_t add, const void *next);
  void (*finish)(const gemm_job *job, int64_t i, int64_t j, const float *sums); /* of a full micro tile; may be NULL */
} gemm_kernel;

/* C and Aux of the tile from its sums [rows, columns]; C += where the job accumulates. */
typedef void gemm_finish(const gemm_job *job, const gemm_tile *tile, const float *sums, int64_t ld);

/* A tile of C against a [n,k] matrix, read as it lies; an element's sum depends on k alone. */
typedef void gemm_by_row(const gemm_job *job, const gemm_tile *tile, float *workspace);

/* What the instruction set in use offers. */
typedef struct {
  const gemm_kernel *f32;    /* takes every value dtype, converting as it packs */
  const gemm_kernel *paired; /* the same, with sums in the order of AMX */
  gemm_finish *finish;
  gemm_by_row *by_row;
  gemm_add *add;
  gemm_grid_add *grid_add;
  gemm_grid_read *grid_read;
} gemm_kernels;

const gemm_kernels *mt_gemm_kernels(void);

/* The kernel for sums of leaves of `leaf` products each, 0 where leaves differ in length, and what the best set
 * offers for such sums: the bits are the same with every instruction set. */
const gemm_kernel *mt_gemm_ordered(int32_t dtype, int64_t leaf);
const gemm_kernels *mt_gemm_ordered_kernels(void);

const gemm_kernel *mt_gemm_amx(void);         /* bf16; where mt_amx() allows it */
const gemm_kernel *mt_gemm_amx_ordered(void); /* the same for sums of leaves; where mt_amx_with(mt_isa_ordered) does */
const gemm_kernel *mt_gemm_amx_f16(void);     /* f16; where mt_amx() allows it */
const gemm_kernel *mt_gemm_bf16(void);    /* bf16 by AVX512_BF16; NULL where there is none */
gemm_by_row *mt_gemm_bf16_by_row(void);   /* the same */

/* The largest tile of oneDNN's, and the bytes of its sums, which lead the
 * workspace where its results pass through it. */
enum { MT_GEMM_ROWS = 512, MT_GEMM_COLUMNS = 768, MT_GEMM_SUMS = MT_GEMM_ROWS * MT_GEMM_COLUMNS * 4 };

#define GEMM_AHEAD 2048 /* bytes behind those of a column by itself that are asked of memory meanwhile */

/* What is asked of memory while dot products are made: for the columns that have a bit, what
 * lies so many bytes behind. */
typedef struct { int64_t ahead; uint32_t columns; } gemm_fetch;

/* The share of rows i..i+count-1 in the next columns, where all rows pass over a few columns
 * before they advance: memory then has work all the time, not with the first rows alone. */
static inline gemm_fetch gemm_next(int64_t ahead, int columns, int64_t i, int64_t count, int64_t rows) {
  gemm_fetch f = {ahead, 0};
  for (int c = 0; c < columns; c++) f.columns |= (uint32_t)(c * rows / columns >= i && c * rows / columns < i + count) << c;
  return f;
}

#define GEMM_FEW 48 /* rows up to which products by rows are ruled by reading B */

#define MT_GEMM_THIN 4 /* rows up to which nothing is faster than reading B once, unpacked */

enum { TREE_ROWS = 128, TREE_COLUMNS = 384 }; /* of the largest tile whose sums are a tree: it has those of every level */

enum { MT_GEMM_SMALL = 2 << 20 }; /* multiply-adds up to which handing out costs more than it brings */

/* A tile's largest sides and what they are multiples of; tiles along n and m. */
typedef struct { int64_t rows, columns, row_unit, column_unit; } gemm_limits;
typedef struct { int64_t rows, columns, across, down; } gemm_grid;

gemm_grid mt_gemm_cut(int64_t m, int64_t n, int64_t k, gemm_limits limits);
gemm_tile mt_gemm_tile(const gemm_grid *grid, gemm_tile whole, int64_t tile); /* of the part of C that is cut */

/* Large products by our own kernels: an op's tiles, scratch and run. */
int64_t mt_gemm_packed_tiles(const gemm_kernel *kernel, const gemm_job *job, int32_t phase);
int64_t mt_gemm_packed_scratch(const gemm_kernel *kernel, const gemm_job *job);
void mt_gemm_packed(const gemm_kernel *kernel, const gemm_job *job, void *scratch, int32_t phase, int64_t tile, void *workspace);

/* Blocks of k between k0 and k1: as few as keep a panel in the L1 cache, of one depth but the last. */
static inline int64_t gemm_depth(const gemm_kernel *kr, int64_t k) {
  int64_t blocks = mt_ceil(k, kr->k_block);
  return blocks ? mt_up(mt_ceil(k, blocks), kr->k_unit) : 0;
}

/* A leaf's part of a stretch of k; all of k where there is one leaf. */
static inline int64_t gemm_leaf(const gemm_job *job) { return job->chunk ? job->chunk : job->k / mt_max(1, job->leaves) / mt_max(1, job->stretches); }

/* Whether sums are on a grid. */
static inline int32_t gemm_exact(const gemm_job *job) { return job->chunk || job->leaf; }

/* Whether sums over k are of leaves: of more than one, of one in several stretches, on a grid. */
static inline int32_t gemm_tree(const gemm_job *job) { return gemm_exact(job) || job->leaves > 1 || job->stretches > 1; }

/* Levels of the tree of leaves: a leaf's own sums are at the lowest. */
static inline int64_t gemm_levels(const gemm_job *job) {
  int64_t levels = 1;
  for (int64_t n = job->leaves; n > 1; n >>= 1) levels++;
  return levels;
}

/* Where the leaf that begins at k ends. */
static inline int64_t gemm_leaf_end(const gemm_job *job, int64_t k) {
  if (!job->leaf) return k + gemm_leaf(job);
  int64_t end = k + 1;
  while (end < job->k && job->leaf[end] == job->leaf[k]) end++;
  return end;
}

/* An operand as packing of rows k.. reads it. On a grid k counts leaf by leaf: the rows of a leaf lie
 * `batch` apart, those of `batch` leaves between each other. */
static inline gemm_operand gemm_rows(const gemm_job *job, int32_t of_b, int64_t k) {
  gemm_operand x = of_b ? job->b : job->a;
  if (!job->chunk) return x;
  int64_t leaf = k / job->chunk, step = of_b ? x.row : x.col;
  int64_t first = leaf / job->batch * job->chunk * job->batch + leaf % job->batch - leaf * job->chunk * job->batch;
  x.data += first * step * (x.dtype == MT_F32 ? 4 : 2);
  if (of_b) x.row = step * job->batch;
  else x.col = step * job->batch;
  return x;
}

/* Blocks of a leaf's part of a stretch, which are those of such a k by itself. */
static inline int64_t gemm_job_depth(const gemm_kernel *kr, const gemm_job *job) { return gemm_depth(kr, gemm_leaf(job)); }

/* The panel of `line` in the block of `depth` that starts k behind the first. */
static inline char *gemm_panel(const gemm_kernel *kr, const gemm_packed *x, int64_t line, int64_t k, int64_t depth) {
  return (char *)x->data + (x->lines * k + (line - x->first) * mt_up(depth, kr->k_unit)) * kr->element;
}

/* Packs lines line..end-1, k..k+depth-1 of A or B to the panels at `to`, which are
 * `panel` bytes long; along memory's rows, whichever way they run. */
void mt_gemm_pack(const gemm_kernel *kernel, const gemm_job *job, int32_t of_b, char *to, int64_t panel, int64_t line, int64_t end, int64_t k, int64_t depth);

/* One part of C by our own kernels. */
void mt_gemm_own(const gemm_kernel *kernel, const gemm_job *job, const gemm_part *part, void *workspace);

/* oneDNN. `sums` is where f32 results go: C itself or a buffer. */
int32_t mt_onednn_open(void);           /* 1 when the library is there and wanted */
int32_t mt_onednn_all(void);            /* 1 when it is to make whatever it can, for comparison */
const char *mt_onednn_describe(void);
int32_t mt_onednn_sgemm(const gemm_job *job, const gemm_tile *tile, float *sums, int64_t ld, int32_t add);
int32_t mt_onednn_bf16(mt_context *ctx, const gemm_job *job, const gemm_tile *tile, void *out, int64_t ld, int32_t dtype, int32_t add);
static inline const char *gemm_at(const gemm_operand *x, int64_t i, int64_t j) {
  return x->data + (i * x->row + j * x->col) * (x->dtype == MT_F32 ? 4 : 2);
}

#endif
