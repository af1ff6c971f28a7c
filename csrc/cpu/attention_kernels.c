/* Attention for each instruction set, in f32, and the choice among them. */
#ifndef MT_ISA
#define MT_KERNELS "attention_kernels.c"
#include "amx.h"
#include "attention.h"
#include "isa.h"
#include <stddef.h>

const attention_kernels *mt_attention_amx(void);
const attention_kernels *mt_attention_bf16(void); /* NULL where there is none */

const attention_kernels *mt_attention_kernels(const mt_attention_forward_args *f) {
  const attention_kernels *own = NULL;
  if (f->q.dtype == MT_BF16) own = mt_amx() ? mt_attention_amx() : mt_attention_bf16();
  if (own) return own;
  /* Each query is a lane, so its sums do not depend on the vectors' width. The operations round alike in all sets, but for
   * a reciprocal in the cap. */
  return MT_CALL_AT((f->rule == MT_PLAIN_SCORES ? mt_isa_ordered : mt_isa_level), kernels_of);
}

float mt_attention_dot(const float *x, const float *y, int64_t n) { return MT_CALL(dot, x, y, n); }

#else
#include "gemm_transpose.h"
#include "philox.h"

#include "attention_blocks.h"
#include "attention_masks.h"

#include "attention_backward.h"
#include "attention_forward.h"

static float K(dot)(const float *x, const float *y, int64_t n) {
  vf sum = {0};
  V_EACH(n, j, m, sum = v_mad(v_load_n(x, MT_F32, j, m), v_load_n(y, MT_F32, j, m), sum););
  return v_sum(sum);
}

static const attention_kernels *K(kernels_of)(void) {
  static const attention_kernels all = {
      sizeof(K(value)), K(pack), K(forward), K(backward), K(sum),
  };
  return &all;
}
#endif
