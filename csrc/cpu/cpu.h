/* What every CPU kernel file shares. An op is one .c file that defines
 * `const mt_op mt_cpu_<op>`; kernels have no threads of their own. Whichever file works by an
 * enumeration defines `const uint32_t mt_cpu_known_<it>`: an op is called with nothing else. */
#ifndef MT_CPU_H
#define MT_CPU_H

#include "../device/device.h"

/* What is fused to one rounding is said (v_fma and v_mad of simd.h): a compiler that chose would choose by
 * instruction set. clang heeds the pragma, gcc fuses nothing with -std=c11 (not gnu11). */
#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#elif !defined(__STRICT_ANSI__)
#error "compile with -std=c11: other modes of gcc fuse multiplications and additions as they like"
#endif

#define MT_CPU_WORKSPACE (8 << 20) /* bytes a pool thread has for one tile's buffers */

#endif
