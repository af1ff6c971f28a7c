/* What the GEMM files share. A job is one call with transposes resolved into
 * strides; a kernel is what one instruction set does with packed panels; an
 * engine (own C, or oneDNN) computes one tile of C. */
#ifndef MT_GEMM_H
#define MT_GEMM_H

#include "cpu.h"

typedef struct { const char *data; int64_t row, col; int32_t dtype; } gemm_operand; /* strides in elements; one of them is 1 */

typedef struct {
  gemm_operand a, b;   /* op(A) [m,k], op(B) [k,n] */
  char *c, *aux;
  const char *bias;
  int64_t m, n, k, ldc, ldaux;
  int32_t dtype, c_dtype; /* of A, B, bias, aux; of C */
  int32_t accumulate, epilogue;
} gemm_job;

typedef struct { int64_t i0, i1, j0, j1; } gemm_tile;

/* Panels: A in panels of mr rows, B in panels of nr columns, both with k
 * outermost and padded with zeros to mr, nr and multiples of k_unit. */
typedef struct {
  int32_t mr, nr, k_unit, k_block; /* k_block: a panel of B stays in the L1 cache */
  int32_t element;                 /* bytes of a packed value */
  void (*begin)(void), (*end)(void); /* around a tile; may be NULL */
  void (*pack_a)(void *panel, const gemm_operand *a, int64_t i, int64_t rows, int64_t k, int64_t depth);
  void (*pack_b)(void *panel, const gemm_operand *b, int64_t k, int64_t depth, int64_t j, int64_t columns);
  /* c [mr,nr] (+)= A panel · B panel, depth a multiple of k_unit */
  void (*micro)(int64_t depth, const void *a, const void *b, float *c, int64_t ldc, int32_t add);
} gemm_kernel;

/* C and Aux of the tile from its sums [rows, columns]. */
typedef void gemm_finish(const gemm_job *job, const gemm_tile *tile, const float *sums, int64_t ld);

/* What the instruction set in use offers. */
typedef struct {
  const gemm_kernel *f32; /* takes every value dtype, converting as it packs */
  gemm_finish *finish;
  void (*thin)(const gemm_job *job, const gemm_tile *tile, float *workspace); /* few rows against a [n,k] matrix */
} gemm_kernels;

const gemm_kernels *mt_gemm_kernels(void);
const gemm_kernel *mt_gemm_amx(void); /* bf16; where mt_amx() allows it */

/* The largest tile, and the bytes of its sums, which lead the workspace where
 * oneDNN's results pass through it. */
enum { MT_GEMM_ROWS = 512, MT_GEMM_COLUMNS = 768, MT_GEMM_SUMS = MT_GEMM_ROWS * MT_GEMM_COLUMNS * 4 };

#define MT_GEMM_THIN 4 /* rows up to which `thin` reads B once, unpacked */

/* Our own C kernels. */
void mt_gemm_own(const gemm_kernel *kernel, const gemm_job *job, const gemm_tile *tile, void *workspace);

/* oneDNN. `sums` is where f32 results go: C itself or a buffer. */
int32_t mt_onednn_open(void);           /* 1 when the library is there and wanted */
const char *mt_onednn_describe(void);
int32_t mt_onednn_sgemm(const gemm_job *job, const gemm_tile *tile, float *sums, int64_t ld, int32_t add);
int32_t mt_onednn_bf16(mt_context *ctx, const gemm_job *job, const gemm_tile *tile, void *out, int64_t ld, int32_t dtype, int32_t add);
static inline const char *gemm_at(const gemm_operand *x, int64_t i, int64_t j) {
  return x->data + (i * x->row + j * x->col) * (x->dtype == MT_F32 ? 4 : 2);
}

#endif
