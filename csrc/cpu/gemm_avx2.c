/* GEMM for AVX2 with FMA: 12 of 16 registers are accumulators. */
#if defined(__x86_64__)
#pragma GCC target("avx2,fma,f16c")
#define NAME mt_gemm_avx2
#define ISA "avx2"
#define MR 4
#define NV 3
#define K_BLOCK 256
#include "gemm_kernel.h"
#endif
