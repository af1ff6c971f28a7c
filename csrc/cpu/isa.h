/* Compiles one file's kernels once for each instruction set and chooses at run
 * time (cgo has no flags per file). A kernel file reads itself:
 *
 *   #ifndef MT_ISA
 *   #define MT_KERNELS "norm.c"
 *   #include "isa.h"              // reads this file again, once a set
 *   ... tiles, scratch ...
 *   MT_OP(norm_forward, tiles, scratch)
 *   #else
 *   static int32_t K(norm_forward)(mt_context *, const void *, void *, int32_t, int64_t) { ... }
 *   #endif
 *
 * K(name) carries the set's suffix; every function and type defined under
 * MT_ISA needs it. The names of simd.h have theirs already. */
#ifndef MT_ISA_H
#define MT_ISA_H

#include "cpu.h"
#include "isa_level.h"
#include "tile.h"

#ifdef MT_X86_SETS
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

/* Where there are other sets, these two are for processors older than they are: they need not be
 * compiled as long. The bits are the same. */
#ifdef MT_X86_SETS
#pragma GCC push_options
#pragma GCC optimize("O1")
#endif
#define MT_ISA MT_PORTABLE
#define K(name) name##_portable
#include "simd.h"
#include MT_KERNELS
#undef K
#undef MT_ISA

#define MT_ISA MT_COMMON
#define K(name) name##_common
#include "simd.h"
#include MT_KERNELS
#undef K
#undef MT_ISA
#ifdef MT_X86_SETS
#pragma GCC pop_options
#endif

#ifdef MT_X86_SETS
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#define MT_ISA MT_AVX2
#define K(name) name##_avx2
#include "simd.h"
#include MT_KERNELS
#undef K
#undef MT_ISA
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")
#define MT_ISA MT_AVX512
#define K(name) name##_avx512
#include "simd.h"
#include MT_KERNELS
#undef K
#undef MT_ISA
#pragma GCC pop_options

#define MT_CALL_AT(level, name, ...)           \
  (level == MT_AVX512 ? name##_avx512(__VA_ARGS__) \
   : level == MT_AVX2 ? name##_avx2(__VA_ARGS__)   \
   : level == MT_COMMON ? name##_common(__VA_ARGS__) \
                      : name##_portable(__VA_ARGS__))
#else
#define MT_CALL_AT(level, name, ...) (level == MT_COMMON ? name##_common(__VA_ARGS__) : name##_portable(__VA_ARGS__))
#endif
#define MT_CALL(name, ...) MT_CALL_AT(mt_isa_level, name, ##__VA_ARGS__)

/* Defines mt_cpu_<op> over the kernels K(op). MT_OP_OF_ANY_WIDTH: their bits do not depend on the vectors' width, so that
 * --layout-invariant keeps the best set. */
#define MT_OP_AT(level, op, tiles, scratch)                                                                \
  static int32_t op##_run(mt_context *ctx, const void *args, void *shared, int32_t phase, int64_t tile) { \
    return MT_CALL_AT(level, op, ctx, args, shared, phase, tile);                                          \
  }                                                                                                        \
  const mt_op mt_cpu_##op = {tiles, scratch, op##_run};
#define MT_OP(op, tiles, scratch) MT_OP_AT(mt_isa_level, op, tiles, scratch)
#define MT_OP_OF_ANY_WIDTH(op, tiles, scratch) MT_OP_AT(mt_isa_ordered, op, tiles, scratch)

#endif
