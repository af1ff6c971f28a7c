/* The way between pageable memory and the GPU's: through pinned memory, so that a copy
 * to the device returns when its source is free and never waits for the ops before it. */
#ifndef MT_STAGING_H
#define MT_STAGING_H

#include "op.h"

struct mt_staging;

mt_staging *mt_staging_open(); /* NULL: no pinned memory to be had; copies then wait */
void mt_staging_close(mt_staging *s);

cudaError_t mt_staging_up(mt_staging *s, cudaStream_t stream, void *dst, const void *src, int64_t bytes);   /* returns when src is free */
cudaError_t mt_staging_down(mt_staging *s, cudaStream_t stream, void *dst, const void *src, int64_t bytes); /* returns when dst is filled */

#endif
