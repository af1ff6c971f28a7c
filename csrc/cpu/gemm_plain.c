/* GEMM for whatever the compiler's base target is. */
#define NAME mt_gemm_plain
#define ISA "portable C"
#define MR 4
#define NV 2
#define K_BLOCK 256
#include "gemm_kernel.h"
