/* How elementwise work is given to threads: a pack each, in memory order. */
#ifndef MT_SPREAD_H
#define MT_SPREAD_H

#include <type_traits>

#include "op.h"

enum { SPREAD = 256 }; /* threads of a block */

/* This thread's pack of a [rows, width] tensor: its row and first column. */
struct cell {
  int64_t row, column;
  bool here; /* false beyond the end */
};

template <int N> __device__ inline cell cell_of(int64_t rows, int64_t width) {
  int64_t i = (int64_t)blockIdx.x * SPREAD + threadIdx.x, across = width / N, total = rows * across;
  if (i >= total) return {0, 0, false};
  int64_t row = total >> 32 ? i / across : (unsigned)i / (unsigned)across; /* wide division is slow */
  return {row, (i - row * across) * N, true};
}

/* f(i, N) for this thread's N of n adjacent elements, and f(i, 1) for each
 * left at the end; the size is a type (std::integral_constant). */
template <int N, typename F> __device__ inline void flat(int64_t n, F f) {
  int64_t i = ((int64_t)blockIdx.x * SPREAD + threadIdx.x) * N;
  if (i + N <= n) {
    f(i, std::integral_constant<int, N>());
  } else {
    for (; i < n; i++) f(i, std::integral_constant<int, 1>());
  }
}

/* Segments of a flat buffer of n elements (op_optimizer.go): a block has `each` adjacent
 * elements of it. begin(s) gives for a segment that these have something of a function
 * g(i, N), which is called for packs of N that begin at multiples of N, and g(i, 1) for each
 * element of a pack that is the segment's in part. */
template <int N, typename F> __device__ inline void segmented(const mt_tensor &table, int64_t n, int64_t each, F begin) {
  const int64_t *at = data_of<int64_t>(table);
  int64_t from = blockIdx.x * each, to = from + each < n ? from + each : n, s = 0, count = given(table) ? table.shape[0] : 1;
  if (given(table))
    for (int64_t high = count; s < high;) { /* the first that ends behind from */
      int64_t mid = (s + high) / 2;
      if (at[2 * mid + 1] > from) high = mid;
      else s = mid + 1;
    }
  for (; s < count; s++) {
    int64_t first = from, last = to;
    if (given(table)) {
      if (at[2 * s] > first) first = at[2 * s];
      if (at[2 * s + 1] < last) last = at[2 * s + 1];
    }
    if (first >= to) return;
    auto g = begin(s);
    for (int64_t i = first / N * N + (int64_t)threadIdx.x * N; i < last; i += SPREAD * N) {
      if (i >= first && i + N <= last) {
        g(i, std::integral_constant<int, N>());
      } else {
        for (int64_t j = i < first ? first : i; j < last && j < i + N; j++) g(j, std::integral_constant<int, 1>());
      }
    }
  }
}

inline unsigned spread_blocks(int64_t elements, int n) { return blocks_for(ceil_div(elements, n), SPREAD); }

/* Whether packs of n elements of t start where they can be moved at once; as with packs. */
inline bool starts(const mt_tensor &t, int n) { return !mt_cuda_invariant && (!given(t) || (uintptr_t)t.data % (n * element_size(t.dtype)) == 0); }

#endif
