/* Matrix products by cuBLASLt, opened at run time: nothing of it is needed to build
 * or to start. MONOTRON_CUBLASLT=off goes without; MONOTRON_TF32=on rounds the
 * operands of f32 products to TF32. */
#ifndef MT_BLASLT_H
#define MT_BLASLT_H

#include "op.h"

struct mt_blaslt;

mt_blaslt *mt_blaslt_open(); /* of the current GPU; NULL where the library is missing */
void mt_blaslt_close(mt_blaslt *b);
const char *mt_blaslt_describe(const mt_blaslt *b);

/* The products that our own kernels made instead since it was opened, a line; NULL: none. */
const char *mt_blaslt_refused(mt_blaslt *b);

/* Enqueues a; false where the library has no way to compute it: the caller has one. */
bool mt_blaslt_matmul(mt_context *ctx, const mt_matmul_args &a);

#endif
