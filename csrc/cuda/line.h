/* A row of T in the registers of the threads that have it, N elements a pack, so that a
 * kernel that uses a row several times reads it once. PACKS 0: too long a row, or
 * one that is not aligned; it is read again each time. */
#ifndef MT_LINE_H
#define MT_LINE_H

#include "op.h"
#include "reduce.h"

/* The threads that have a row: LANES of a warp, so that a block has several rows at once, or
 * (0) all of the block. */
template <int LANES> struct row_threads {
  static const unsigned SHARE = LANES ? LANES : 1;
  __device__ static int count() { return LANES ? LANES : (int)blockDim.x; }
  __device__ static int place() { return (int)(LANES ? threadIdx.x % SHARE : threadIdx.x); }
  __device__ static int rows() { return (int)(LANES ? blockDim.x / SHARE : 1); } /* of a block */
  __device__ static int row() { return (int)(LANES ? threadIdx.x / SHARE : 0); }
  __device__ static float sum(float x) {
    if (LANES) return lanes_sum<SHARE>(x);
    return block_sum(x);
  }
  __device__ static void sums(float &x, float &y) {
    if (LANES) x = lanes_sum<SHARE>(x), y = lanes_sum<SHARE>(y);
    else block_sums(x, y);
  }
};

template <typename T, int N, int PACKS, int LANES = 0> struct line {
  const T *x;
  int h;
  float kept[PACKS > 0 ? PACKS : 1][N];

  __device__ line(const T *x, int64_t h) : x(x), h((int)h) {
#pragma unroll
    for (int p = 0; p < PACKS; p++)
      if (column(p) < this->h) load(kept[p], x + column(p));
  }

  __device__ static int column(int p) { return (p * row_threads<LANES>::count() + row_threads<LANES>::place()) * N; }

  /* f(column, values[N]) for each of this thread's packs. */
  template <typename F> __device__ void each(F f) const {
    if (PACKS > 0) {
#pragma unroll
      for (int p = 0; p < PACKS; p++)
        if (column(p) < h) f(column(p), kept[p]);
    } else {
      for (int p = 0; column(p) < h; p++) {
        float v[N];
        load(v, x + column(p));
        f(column(p), v);
      }
    }
  }
};

#endif
