/* Dropout in attention's tiles of 16 rows a warp. A Philox gives the words of four keys that
 * follow each other: the lanes that hold these share the work, and tell each other a bit a
 * key. */
#ifndef MT_ATTENTION_DROP_H
#define MT_ATTENTION_DROP_H

#include "philox.h"

/* Bit 4n + j: whether key `first` + 8n + j is dropped. first counts from the sequence's start;
 * where it is not a multiple of four, which only pieces of odd lengths make, each key takes a
 * Philox of its own. */
template <int N> __device__ inline uint32_t dropped_keys(const mask &m, int first) {
  uint32_t bits = 0;
  if (first % 4 == 0) {
#pragma unroll
    for (int n = 0; n < N; n++) {
      words w = m.four(first + 8 * n);
#pragma unroll
      for (int j = 0; j < 4; j++) bits |= (uint32_t)(w.w[j] < m.threshold) << (4 * n + j);
    }
  } else {
#pragma unroll 1
    for (int i = 0; i < 4 * N; i++) {
      int key = first + i / 4 * 8 + i % 4;
      bits |= (uint32_t)(word(m.four(key), key & 3) < m.threshold) << i;
    }
  }
  return bits;
}

/* Rows are queries: bit 4n + e of bits[h] is for a lane's row h and its key 8n + e. m is that of
 * row lane % 2; the other's come from the neighbour. first: the tile's first key. */
template <int N> __device__ inline void drops_of_queries(uint32_t (&bits)[2], const mask &m, int first) {
  int lane = threadIdx.x % 32;
  uint32_t mine = dropped_keys<N>(m, first + lane % 4 / 2 * 4), theirs = __shfl_xor_sync(0xffffffff, mine, 1);
#pragma unroll
  for (int h = 0; h < 2; h++) bits[h] = (h == lane % 2 ? mine : theirs) >> lane % 2 * 2;
}

/* Rows are keys, columns 32 queries: bit 4h + 8e of bits[c] is for a lane's row h and its query
 * 8c + e, of which the lanes of four keys each draw for two. first: the warp's first key; query:
 * the tile's first. m: of the head, and of query 0 at `position`. */
__device__ inline void drops_of_keys(uint32_t (&bits)[4], mask m, uint32_t position, int first, int query) {
  int lane = threadIdx.x % 32, own = lane / 4 % 4;
  uint32_t mine = 0;
#pragma unroll
  for (int e = 0; e < 2; e++) {
    m.position = position + (uint32_t)(query + own * 8 + lane % 4 * 2 + e);
    mine |= dropped_keys<2>(m, first + lane / 16 * 4) << 8 * e;
  }
#pragma unroll
  for (int c = 0; c < 4; c++) bits[c] = __shfl_sync(0xffffffff, mine, (lane & ~12) | c << 2) >> own;
}

#endif
