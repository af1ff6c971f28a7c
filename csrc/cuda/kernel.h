/* What every kernel file starts with: CUDA's headers, or the emulator instead;
 * and the three things whose syntax differs between them. */
#ifndef MT_KERNEL_H
#define MT_KERNEL_H

#ifdef MT_EMU
#include "emu/emu.h"
#define MT_EMULATED true
#else
#define MT_EMULATED false
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

template <typename T> using mt_type = T;
#define MT_SHARED(T, x) __shared__ mt_type<T> x
#define MT_DYN_SHARED(T, x)                                  \
  extern __shared__ __align__(16) unsigned char mt_dynamic[]; \
  T *x = reinterpret_cast<T *>(mt_dynamic)
#define MT_LAUNCH(kernel, grid, block, smem, stream, ...) kernel<<<grid, block, smem, stream>>>(__VA_ARGS__)
#endif

#include "../device/device.h"

typedef __nv_bfloat16 bf16;
typedef __half f16;

#endif
