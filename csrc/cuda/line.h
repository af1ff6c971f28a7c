/* A row of T in the registers of a block's threads, N elements a pack, so that a
 * kernel that looks at a row several times reads it once. PACKS 0: too long a row, or
 * one that is not aligned; it is read again each time. */
#ifndef MT_LINE_H
#define MT_LINE_H

#include "op.h"

template <typename T, int N, int PACKS> struct line {
  const T *x;
  int h;
  float kept[PACKS > 0 ? PACKS : 1][N];

  __device__ line(const T *x, int64_t h) : x(x), h((int)h) {
#pragma unroll
    for (int p = 0; p < PACKS; p++)
      if (column(p) < this->h) load(kept[p], x + column(p));
  }

  __device__ static int column(int p) { return (p * (int)blockDim.x + (int)threadIdx.x) * N; }

  /* f(column, values[N], p): p counts this thread's packs. */
  template <typename F> __device__ void each(F f) const {
    if (PACKS > 0) {
#pragma unroll
      for (int p = 0; p < PACKS; p++)
        if (column(p) < h) f(column(p), kept[p], p);
    } else {
      for (int p = 0; column(p) < h; p++) {
        float v[N];
        load(v, x + column(p));
        f(column(p), v, p);
      }
    }
  }
};

#endif
