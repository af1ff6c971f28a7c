/* Where documents and the positions of sequences in blocks begin, for ops whose positions see
 * earlier ones. */
#ifndef MT_DOCUMENTS_H
#define MT_DOCUMENTS_H

#include "tensor.h"

enum { PAGED_BLOCK = 16 }; /* device.PagedBlock */

/* The first position of the document of position t of a sample; doc_start [b, s] or none. */
__device__ inline int64_t doc_first(const mt_tensor &doc_start, int64_t sample, int64_t t) {
  return given(doc_start) ? data_of<int32_t>(doc_start)[sample * doc_start.stride[0] + t] : 0;
}

/* A row's position in its sequence, rows [rows, 2]; and the block of its table that has a position. */
__device__ inline int64_t doc_position(const mt_tensor &rows, int64_t row) { return data_of<int32_t>(rows)[2 * row + 1]; }
__device__ inline int64_t doc_block(const mt_tensor &tables, const mt_tensor &rows, int64_t row, int64_t position) {
  return data_of<int32_t>(tables)[data_of<int32_t>(rows)[2 * row] * tables.shape[1] + position / PAGED_BLOCK];
}

#endif
