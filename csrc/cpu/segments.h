/* Segments of a flat buffer (op_optimizer.go): ranges in their order, none in two. */
#ifndef MT_SEGMENTS_H
#define MT_SEGMENTS_H

#include "tile.h"

static inline int64_t mt_segments(const mt_tensor *table) { return mt_given(table) ? table->shape[0] : 1; }

/* Segment s of a buffer of n elements. */
static inline mt_range mt_segment(const mt_tensor *table, int64_t n, int64_t s) {
  if (!mt_given(table)) return (mt_range){0, n};
  const int64_t *at = table->data;
  return (mt_range){at[2 * s], at[2 * s + 1]};
}

/* The first segment that ends behind element i; their number where none does. */
static inline int64_t mt_segment_at(const mt_tensor *table, int64_t n, int64_t i) {
  int64_t low = 0, high = mt_segments(table);
  while (low < high) {
    int64_t mid = (low + high) / 2;
    if (mt_segment(table, n, mid).to > i) high = mid;
    else low = mid + 1;
  }
  return low;
}

#endif
