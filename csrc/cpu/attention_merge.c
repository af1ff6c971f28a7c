/* Two attentions of the same queries to different keys, joined. */
#ifndef MT_ISA
#include <math.h>

#include "functions.h"
#include "tile.h"

static int64_t merge_tiles(const void *args, int32_t phase) {
  const mt_tensor *o = &((const mt_attention_merge_args *)args)->o;
  return phase == 0 ? mt_row_tiles(mt_rows(o), mt_last(o)) : 0;
}

#define MT_KERNELS "attention_merge.c"
#include "isa.h"

MT_OP(attention_merge, merge_tiles, NULL)
#else

/* One query of one head: w = 1/(1+e^(lse−part)), whichever is larger. */
V void K(merge_row)(float *o, const float *part, float *lse, float other, int64_t d) {
  if (other == -INFINITY) return;
  float w = 1 / (1 + (float)mt_exp(*lse - other)), top = *lse > other ? *lse : other;
  V_EACH(d, i, m,
    vf x = v_load_n(o, MT_F32, i, m);
    v_store_n(o, MT_F32, i, m, v_mad(v_set(w), v_load_n(part, MT_F32, i, m) - x, x)););
  *lse = top + (float)mt_log1p(mt_exp(-fabsf(*lse - other)));
}

static int32_t K(attention_merge)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_attention_merge_args *a = args;
  int64_t batch = a->lse.shape[0], heads = a->lse.shape[1], sq = a->lse.shape[2], d = mt_last(&a->o);
  mt_range r = mt_row_range(mt_rows(&a->o), d, tile);
  for (int64_t row = r.from; row < r.to; row++) {
    int64_t head = row % heads, sample = row / heads % batch, i = row / heads / batch, at = (sample * heads + head) * sq + i;
    K(merge_row)((float *)a->o.data + row * d, (const float *)a->part.data + row * d, (float *)a->lse.data + at, ((const float *)a->part_lse.data)[at], d);
  }
  return 0;
}
#endif
