/* What does the work here, for the log and the doctor. */
#include <stdio.h>

#include "gemm.h"

const char *mt_cpu_describe(void) {
  static __thread char text[256];
  const gemm_kernels *own = mt_gemm_kernels();
  const char *f32 = mt_onednn_open() ? mt_onednn_describe() : "own C kernels";
  snprintf(text, sizeof text, "%s", f32);
  (void)own;
  return text;
}
