/* Sums over rows, in two steps whose cut depends on the shape alone: blocks leave a
 * row of partial sums each, [parts, n] in scratch, and these are added in order. */
#ifndef MT_SUM_H
#define MT_SUM_H

#include "op.h"

/* out[n] += the sum of parts [count, n]; where there is a second sum, second[n] += that of the
 * count parts behind them. */
void mt_add_parts(cudaStream_t stream, float *out, const float *parts, int64_t count, int64_t n, float *second = nullptr);

#endif
