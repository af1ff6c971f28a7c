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

/* f(i, N) for this thread's N of n adjacent elements, and f(i, 1) for each of what
 * is left at the end; the size is a type (std::integral_constant). */
template <int N, typename F> __device__ inline void flat(int64_t n, F f) {
  int64_t i = ((int64_t)blockIdx.x * SPREAD + threadIdx.x) * N;
  if (i + N <= n) {
    f(i, std::integral_constant<int, N>());
  } else {
    for (; i < n; i++) f(i, std::integral_constant<int, 1>());
  }
}

inline unsigned spread_blocks(int64_t elements, int n) { return blocks_for(ceil_div(elements, n), SPREAD); }

/* Whether packs of n elements of t start where they can be moved at once. */
inline bool starts(const mt_tensor &t, int n) { return !given(t) || (uintptr_t)t.data % (n * element_size(t.dtype)) == 0; }

#endif
