/* Rotary positions, in place: channel pairs turned by their position's angle. */
#ifndef MT_ISA
#define MT_KERNELS "rope.c"
#include "isa.h"

static int64_t tiles(const void *args, int32_t phase) {
  const mt_rope_args *a = args;
  return phase == 0 ? mt_row_tiles(a->x.shape[0], a->x.shape[1] * a->x.shape[2] * a->rot_dims) : 0;
}

MT_OP(rope, tiles, NULL)
#else

V void K(turn_head)(void *x, int T, int interleaved, int64_t half, const float *cosine, const float *sine, float sign) {
  V_EACH(half, i, m,
    vf c = v_load_n(cosine, MT_F32, i, m);
    vf s = v_load_n(sine, MT_F32, i, m) * sign;
    if (interleaved) {
      int64_t m2 = mt_max(0, 2 * m - LANES); /* pairs i to i+m lie in elements 2i to 2i+2m */
      vu first = (vu)v_load_n(x, T, 2 * i, mt_min(LANES, 2 * m));
      vu second = m2 > 0 ? (vu)v_load_n(x, T, 2 * i + LANES, m2) : (vu){0};
      vu even;
      vu odd;
      v_unzip(first, second, &even, &odd);
      vf x0 = (vf)even;
      vf x1 = (vf)odd;
      v_zip((vu)(x0 * c - x1 * s), (vu)(x0 * s + x1 * c), &first, &second);
      v_store_n(x, T, 2 * i, mt_min(LANES, 2 * m), (vf)first);
      if (m2 > 0) v_store_n(x, T, 2 * i + LANES, m2, (vf)second);
    } else {
      vf x0 = v_load_n(x, T, i, m);
      vf x1 = v_load_n(x, T, half + i, m);
      v_store_n(x, T, i, m, x0 * c - x1 * s);
      v_store_n(x, T, half + i, m, x0 * s + x1 * c);
    });
}

V void K(turn_token)(const mt_rope_args *a, int T, int interleaved, int64_t token) {
  const mt_tensor *x = &a->x;
  int64_t half = a->rot_dims / 2, at = ((const int32_t *)a->positions.data)[token], size = mt_element(T);
  const float *cosine = (const float *)a->cos.data + at * a->cos.stride[0], *sine = (const float *)a->sin.data + at * a->sin.stride[0];
  for (int64_t g = 0; g < x->shape[1]; g++)
    for (int64_t j = 0; j < x->shape[2]; j++) {
      void *head = (char *)x->data + (token * x->stride[0] + g * x->stride[1] + j * x->stride[2]) * size;
      K(turn_head)(head, T, interleaved, half, cosine, sine, a->inverse ? -1 : 1);
    }
}

static int32_t K(rope)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_rope_args *a = args;
  mt_range r = mt_row_range(a->x.shape[0], a->x.shape[1] * a->x.shape[2] * a->rot_dims, tile);
  V_BY_DTYPE(a->x.dtype, {
    if (a->interleaved)
      for (int64_t t = r.from; t < r.to; t++) K(turn_token)(a, T, 1, t);
    else
      for (int64_t t = r.from; t < r.to; t++) K(turn_token)(a, T, 0, t);
  });
  return 0;
}
#endif
