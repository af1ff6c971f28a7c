/* Random words as device/philox.go makes them, bit for bit. */
#ifndef MT_PHILOX_H
#define MT_PHILOX_H

#include "kernel.h"

struct words { uint32_t w[4]; };

/* Philox4x32-10 (Salmon et al., SC 2011). */
__device__ inline words philox(uint64_t key, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3) {
  uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
#pragma unroll
  for (int i = 0; i < 10; i++) {
    uint32_t h0 = __umulhi(0xD2511F53u, c0), l0 = 0xD2511F53u * c0, h1 = __umulhi(0xCD9E8D57u, c2), l1 = 0xCD9E8D57u * c2;
    c0 = h1 ^ c1 ^ k0, c1 = l1, c2 = h0 ^ c3 ^ k1, c3 = l0;
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

/* Word i without an array in memory. */
__device__ inline uint32_t word(const words &x, int i) { return i & 2 ? (i & 1 ? x.w[3] : x.w[2]) : (i & 1 ? x.w[1] : x.w[0]); }

__device__ inline uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

__device__ inline uint64_t step_key(uint64_t stream, const mt_tensor &step) { return mix(stream ^ mix(*static_cast<const uint64_t *>(step.data))); }

/* What a mt_dropout names, for one (position, sample, head). */
struct mask {
  uint64_t key;
  uint32_t position, sample, head, threshold;
  float keep; /* what a kept value is multiplied by */

  __device__ mask() : key(0), position(0), sample(0), head(0), threshold(0), keep(1) {} /* drops nothing */

  __device__ mask(const mt_dropout &d, int64_t row, int column, int head)
      : key(step_key(d.stream, d.step)), position((uint32_t)(d.position + row)), sample(((const uint32_t *)d.samples.data)[column]), head((uint32_t)head),
        threshold((uint32_t)((double)d.rate * 4294967296.0)), keep(1 / (1 - d.rate)) {}

  __device__ words four(int64_t channel) const { return philox(key, (uint32_t)(channel >> 2), position, sample, head); }

  /* 0 or keep, for N channels from `channel` on. */
  template <int N> __device__ void factors(float (&out)[N], int64_t channel) const {
    words w = {};
#pragma unroll
    for (int j = 0; j < N; j++) {
      int at = (int)((channel + j) & 3);
      if (j == 0 || at == 0) w = four(channel + j);
      out[j] = word(w, at) < threshold ? 0 : keep;
    }
  }
};

#endif
