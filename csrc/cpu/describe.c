/* What does the work here, for the log and the doctor. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "amx.h"
#include "gemm.h"
#include "isa_level.h"

const char *mt_cpu_describe(void) {
  static __thread char text[256];
  const char *amx = mt_amx() ? ", AMX for bf16 and f16 matmul" : "";
  const char *setting = getenv("MONOTRON_ONEDNN");
  if (mt_isa_invariant) snprintf(text, sizeof text, "C kernels for %s, products by leaves (--layout-invariant)", mt_isa_name());
  else if (setting && strcmp(setting, "off") == 0) snprintf(text, sizeof text, "C kernels for %s%s (MONOTRON_ONEDNN=off)", mt_isa_name(), amx);
  else if (mt_onednn_open()) snprintf(text, sizeof text, "%s, C kernels for %s%s", mt_onednn_describe(), mt_isa_name(), amx);
  else snprintf(text, sizeof text, "C kernels for %s%s; installing libdnnl2 makes %s matmul faster", mt_isa_name(), amx, *amx ? "f32" : "f32 and bf16");
  return text;
}
