// Package cpu is the CPU device: C kernels, one file an op, run by the process's
// one pool of threads; GEMM by oneDNN where it is found at run time.
//
// Reading order: cpu.go (the device in Go; nocgo.go without cgo), settings.go (what the environment
// may switch off), isa.go (the same for tests), table.c (its ops), context.h (what a call has),
// tile.h and simd.h (how a kernel is written once for every instruction set), isa.c (which
// of them runs), functions.h (exponentials of f64), then the ops by name. A product: matmul.c (who makes it), gemm_cut.c (how
// it is cut), gemm_own.c, gemm_packed.c and gemm_kernels.c (our own), gemm_bf16.c, amx.c with
// gemm_amx.c and gemm_amx_f16.c, onednn.c. Attention: attention.c, attention_kernels.c,
// attention_bf16.c, attention_amx.c, attention_paired.c. instructions.c says what the processor can do at most.
//
// With --layout-invariant all processors give the same bits (docs/invariance.md). So a kernel
// says what is fused to one rounding (v_mad; v_fma, which is slow without an instruction for it),
// takes exponentials from simd.h, gelu.h and functions.h, and sums along a row by vectors.
package cpu
