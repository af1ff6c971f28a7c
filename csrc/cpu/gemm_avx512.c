/* GEMM for AVX-512: 24 of 32 registers are accumulators. */
#if defined(__x86_64__)
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")
#define NAME mt_gemm_avx512
#define ISA "avx512"
#define MR 8
#define NV 3
#define K_BLOCK 256
#include "gemm_kernel.h"
#endif
