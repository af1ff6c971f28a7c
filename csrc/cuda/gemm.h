/* Our own matrix product: what runs where cuBLASLt is missing or refuses a shape. */
#ifndef MT_GEMM_H
#define MT_GEMM_H

#include "op.h"

/* f32: plain multiply-adds. */
void mt_gemm_f32(cudaStream_t stream, const mt_matmul_args &a);
/* bf16 and f16: tensor cores, sums in f32. */
void mt_gemm_half(cudaStream_t stream, const mt_matmul_args &a);

#endif
