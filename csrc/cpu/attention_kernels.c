/* Attention for each instruction set, in f32, and the choice among them. */
#ifndef MT_ISA
#define MT_KERNELS "attention_kernels.c"
#include "amx.h"
#include "attention.h"
#include "isa.h"
#include <stddef.h>

const attention_kernels *mt_attention_amx(void);
const attention_kernels *mt_attention_bf16(void); /* NULL where there is none */

const attention_kernels *mt_attention_kernels(int32_t dtype) {
  const attention_kernels *own = NULL;
  if (dtype == MT_BF16) own = mt_amx() ? mt_attention_amx() : mt_attention_bf16();
  return own ? own : MT_CALL(kernels_of);
}

#else
#include "gemm_transpose.h"
#include "philox.h"

#include "attention_blocks.h"
#include "attention_masks.h"

#include "attention_backward.h"
#include "attention_forward.h"

static const attention_kernels *K(kernels_of)(void) {
  static const attention_kernels all = {
      sizeof(K(value)), K(pack), K(forward), K(backward), K(sum),
  };
  return &all;
}
#endif
