/* Elements and packs of them: values are stored in T and computed in f32. A pack is
 * what one thread moves at a time: 16 bytes where rows are aligned, else one element. */
#ifndef MT_VALUES_H
#define MT_VALUES_H

#include "kernel.h"

__host__ __device__ inline float to_float(float x) { return x; }
__host__ __device__ inline float to_float(bf16 x) { return __bfloat162float(x); }
__host__ __device__ inline float to_float(f16 x) { return __half2float(x); }

template <typename T> __host__ __device__ inline T from_float(float x);
template <> __host__ __device__ inline float from_float<float>(float x) { return x; }
template <> __host__ __device__ inline bf16 from_float<bf16>(float x) { return __float2bfloat16_rn(x); }
template <> __host__ __device__ inline f16 from_float<f16>(float x) { return __float2half_rn(x); }

template <typename T> struct dtype_of;
template <> struct dtype_of<float> { enum { value = MT_F32 }; };
template <> struct dtype_of<bf16> { enum { value = MT_BF16 }; };
template <> struct dtype_of<f16> { enum { value = MT_F16 }; };

/* Elements of T in 16 bytes. */
template <typename T> struct wide { enum { value = 16 / sizeof(T) }; };

template <typename T, int N> struct alignas(N * sizeof(T)) pack { T v[N]; };

template <int N, typename T> __device__ inline void load(float (&out)[N], const T *from) {
  pack<T, N> p = *reinterpret_cast<const pack<T, N> *>(from);
#pragma unroll
  for (int i = 0; i < N; i++) out[i] = to_float(p.v[i]);
}

template <int N, typename T> __device__ inline void store(T *to, const float (&in)[N]) {
  pack<T, N> p;
#pragma unroll
  for (int i = 0; i < N; i++) p.v[i] = from_float<T>(in[i]);
  *reinterpret_cast<pack<T, N> *>(to) = p;
}

/* As stored in T and read again. */
template <typename T> __device__ inline float rounded(float x) { return to_float(from_float<T>(x)); }

#endif
