/* What does the work here, for the log and the doctor. */
#include <stdio.h>
#include <string.h>

#include "gemm.h"

static const char *gain(void) { return strcmp(mt_gemm_isa(), "avx512") == 0 ? "a tenth" : "several times"; }

const char *mt_cpu_describe(void) {
  static __thread char text[256];
  const char *bf16 = mt_gemm_kernels()->bf16 ? "; bf16 matmul: own kernels on amx" : "";
  if (mt_onednn_open()) snprintf(text, sizeof text, "matmul: %s%s; C kernels: %s", mt_onednn_describe(), bf16, mt_gemm_isa());
  else snprintf(text, sizeof text, "C kernels: %s%s; installing libdnnl2 makes f32 matmul about %s faster", mt_gemm_isa(), bf16, gain());
  return text;
}
