/* Which instruction set the kernels use. */
#include "isa_level.h"

#include <stdlib.h>
#include <string.h>

int mt_isa_level = MT_PORTABLE, mt_isa_ordered = MT_PORTABLE, mt_isa_invariant;
static int best = MT_PORTABLE;

#ifdef MT_X86_SETS
__attribute__((constructor)) static void detect(void) {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) best = MT_AVX2;
  if (best == MT_AVX2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
    best = MT_AVX512;
  mt_isa_level = mt_isa_ordered = best;
  const char *setting = getenv("MONOTRON_ISA"); /* for comparison: kernels use no more than this */
  if (setting && strcmp(setting, "avx2") == 0) mt_isa_limit(MT_AVX2);
  if (setting && strcmp(setting, "portable") == 0) mt_isa_limit(MT_PORTABLE);
}
#endif

int mt_isa_dots(void) {
#ifdef MT_X86_SETS
  return mt_isa_level == MT_AVX512 && __builtin_cpu_supports("avx512bf16");
#else
  return 0;
#endif
}

void mt_isa_limit(int level) {
  mt_isa_level = mt_isa_ordered = level < best ? level : best;
  mt_isa_invariant = 0;
}

void mt_isa_common(void) {
  __atomic_store_n(&mt_isa_invariant, 1, __ATOMIC_RELAXED);
  if (mt_isa_level == MT_AVX512) __atomic_store_n(&mt_isa_level, MT_AVX2, __ATOMIC_RELAXED);
  if (mt_isa_level != MT_PORTABLE) return;
  __atomic_store_n(&mt_isa_ordered, MT_COMMON, __ATOMIC_RELAXED);
  __atomic_store_n(&mt_isa_level, MT_COMMON, __ATOMIC_RELAXED);
}

const char *mt_isa_name(void) {
  static const char *const names[] = {"portable vectors", "AVX2", "AVX-512", "portable vectors of 8"};
  return names[mt_isa_level];
}
