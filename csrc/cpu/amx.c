/* Whether AMX may be used: the processor must have it, and Linux be asked for the
 * state of the tiles. This file itself is compiled for any processor. */
#include "amx.h"
#include "isa_level.h"

#if defined(MT_X86_SETS) && defined(__linux__)
#include <cpuid.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int32_t granted;

static void request(void) {
  enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
  unsigned a, b, c, d;
  const char *setting = getenv("MONOTRON_AMX");
  if (setting && strcmp(setting, "off") == 0) return;
  if (!__get_cpuid_count(7, 1, &a, &b, &c, &d) || !(a >> 5 & 1)) return; /* AVX512_BF16, for rounding */
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d >> 22 & 1) || !(d >> 24 & 1)) return;
  granted = syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

int32_t mt_amx_with(int level) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, request);
  return granted && level == MT_AVX512;
}

#else
int32_t mt_amx_with(int level) { return 0; }
#endif

int32_t mt_amx(void) { return mt_amx_with(mt_isa_level); }
