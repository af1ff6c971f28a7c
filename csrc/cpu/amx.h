/* The AMX tile unit of newer processors: products of bf16, and of f16 made of them. */
#ifndef MT_AMX_H
#define MT_AMX_H

#include <stdint.h>

enum { AMX_STEP = 32 }; /* of k, of a product of tiles of bf16 */

/* 1 where it may be used; MONOTRON_AMX=off and mt_isa_limit forbid it. */
int32_t mt_amx(void);

/* The same where kernels use the set `level`. */
int32_t mt_amx_with(int level);

/* So many rounds of products of tiles in registers; the operations of one. */
void mt_amx_tiles(int64_t rounds);
double mt_amx_tiles_operations(void);

#endif
