/* AdamW with moments of 8 bits (op_adamw8.go): a block of 256 elements that share a scale at a time. */
#ifndef MT_ISA
enum { BLOCK = 256, STRETCHES = 65536 };

#define MT_KERNELS "adamw8.c"
#include "segments.h"

#include "isa.h"

static int64_t adamw8_tiles(const void *args, int32_t phase) { return phase == 0 ? mt_flat_tiles(mt_len(&((const mt_adamw8_args *)args)->param)) : 0; }

MT_OP(adamw8, adamw8_tiles, NULL)
#else

/* What the blocks of a segment have in common: factors of gradients and of moments, of a parameter, of its direction. */
typedef struct { float scale, b1, r1, b2, r2, shrink, step, root, eps; } K(update8);

static K(update8) K(update8_of)(const mt_adamw8_args *a, int64_t segment) {
  const double *rates = a->rates.data;
  const float *mults = (const float *)a->mults.data + 2 * segment;
  double lr = rates[MT_RATE_LR] * mults[0];
  volatile double decay = lr * (rates[MT_RATE_WEIGHT_DECAY] * mults[1]); /* not one operation with what follows */
  return (K(update8)){((const float *)a->hyper.data)[MT_HYPER_GRAD_SCALE], (float)a->beta1, (float)(1 - a->beta1), (float)a->beta2, (float)(1 - a->beta2),
                      (float)(1 - decay), (float)(-lr / rates[MT_RATE_CORRECTION1]), (float)rates[MT_RATE_CORRECTION2], (float)a->eps};
}

/* The values of n codes of a block. */
V void K(values8)(float *x, const uint8_t *codes, const float *map, float most, int64_t n) {
  for (int64_t i = 0; i < n; i++) x[i] = map[codes[i]] * most;
}

/* Rounds the n values of a block to codes; x has space for full vectors. */
V void K(codes8)(uint8_t *codes, float *most, const float *x, const uint8_t *nearest, int64_t n) {
  vf largest = v_set(0);
  V_EACH(n, i, m, largest = v_max(largest, v_abs(v_load_n(x, MT_F32, i, m))););
  *most = v_largest(largest);
  if (*most == 0) {
    memset(codes, 0, n);
    return;
  }
  float inverse = 1 / *most;
  int32_t at[BLOCK];
  V_EACH(n, i, m,
    vf half = (v_min(v_max(v_load_n(x, MT_F32, i, m) * inverse, v_set(-1)), v_set(1)) + 1.f) * 0.5f;
    vi stretch = __builtin_convertvector(half * (float)(STRETCHES - 1) + 0.5f, vi);
    memcpy(at + i, &stretch, m * sizeof(int32_t)););
  for (int64_t i = 0; i < n; i++) codes[i] = nearest[at[i]];
}

V void K(block8)(const mt_adamw8_args *a, int T, void *model, const K(update8) *u, int64_t from, int64_t n) {
  const float *maps = a->maps.data, *grad = a->grad.data;
  const uint8_t *nearest = a->nearest.data;
  uint8_t *m8 = (uint8_t *)a->m_codes.data + from, *v8 = (uint8_t *)a->v_codes.data + from;
  float *param = a->param.data, *most1 = (float *)a->m_scales.data + from / BLOCK, *most2 = (float *)a->v_scales.data + from / BLOCK, first[BLOCK], second[BLOCK];
  K(values8)(first, m8, maps, *most1, n);
  K(values8)(second, v8, maps + 256, *most2, n);
  V_EACH(n, j, m,
    int64_t i = from + j;
    vf g = v_load_n(grad, MT_F32, i, m) * u->scale;
    vf s = v_fma(g, v_set(u->r1), v_load_n(first, MT_F32, j, m) * u->b1);
    vf q = v_fma(g * u->r2, g, v_load_n(second, MT_F32, j, m) * u->b2);
    vf p = v_fma(v_load_n(param, MT_F32, i, m), v_set(u->shrink), v_set(-0.f)); /* rounded before the sum */
    p = p + (s * u->step) / (v_sqrt(q) / u->root + u->eps);
    v_store_n(first, MT_F32, j, m, s);
    v_store_n(second, MT_F32, j, m, q);
    v_store_n(param, MT_F32, i, m, p);
    if (model) v_store_n(model, T, i, m, p););
  K(codes8)(m8, most1, first, nearest, n);
  K(codes8)(v8, most2, second, nearest + STRETCHES, n);
}

static int32_t K(adamw8)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_adamw8_args *a = args;
  if (((const float *)a->hyper.data)[MT_HYPER_SKIP] != 0) return 0;
  int64_t n = mt_len(&a->param);
  mt_range r = mt_flat_range(n, tile);
  for (int64_t s = mt_segment_at(&a->segments, n, r.from); s < mt_segments(&a->segments); s++) {
    mt_range all = mt_segment(&a->segments, n, s);
    if (all.from >= r.to) break;
    K(update8) u = K(update8_of)(a, s);
    for (int64_t from = mt_max(all.from, r.from); from < mt_min(all.to, r.to); from += BLOCK) {
      int64_t count = mt_min(BLOCK, all.to - from);
      if (mt_given(&a->model))
        V_BY_DTYPE(a->model.dtype, K(block8)(a, T, a->model.data, &u, from, count))
      else
        K(block8)(a, MT_F32, NULL, &u, from, count);
    }
  }
  return 0;
}
#endif
