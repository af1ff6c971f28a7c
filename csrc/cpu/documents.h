/* Where documents begin, for ops whose positions see earlier ones. */
#ifndef MT_DOCUMENTS_H
#define MT_DOCUMENTS_H

#include "tile.h"

/* The first position of the document of position t of a sample; doc_start [b, s] or none. */
static inline int64_t doc_first(const mt_tensor *doc_start, int64_t sample, int64_t t) {
  return mt_given(doc_start) ? ((const int32_t *)doc_start->data)[sample * doc_start->stride[0] + t] : 0;
}

#endif
