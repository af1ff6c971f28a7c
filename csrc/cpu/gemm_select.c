/* Which kernels this machine runs: chosen once, at the first call. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "gemm.h"

extern const gemm_kernels mt_gemm_plain;
#if defined(__x86_64__)
extern const gemm_kernels mt_gemm_avx512, mt_gemm_avx2;
#endif
const gemm_kernel *mt_gemm_amx(void);

static gemm_kernels chosen;

/* MONOTRON_CPU_ISA (amx, avx512, avx2, portable) lowers the choice. */
static int32_t limit(void) {
  static const char *names[] = {"portable", "avx2", "avx512", "amx"};
  const char *s = getenv("MONOTRON_CPU_ISA");
  for (int i = 0; s && i < 4; i++)
    if (strcmp(s, names[i]) == 0) return i;
  return 3;
}

static void choose(void) {
  chosen = mt_gemm_plain;
#if defined(__x86_64__)
  int32_t highest = limit();
  __builtin_cpu_init();
  if (highest >= 1 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) chosen = mt_gemm_avx2;
  if (highest >= 2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    chosen = mt_gemm_avx512;
    if (highest >= 3) chosen.bf16 = mt_gemm_amx();
  }
#endif
}

const gemm_kernels *mt_gemm_kernels(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, choose);
  return &chosen;
}

const char *mt_gemm_isa(void) { return mt_gemm_kernels()->f32->name; }
