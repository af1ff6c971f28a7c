/* The parts of Muon that are not products of matrices: an element at a time. */
#ifndef MT_ISA
#define MT_KERNELS "muon.c"
#include <math.h>

#include "isa.h"

static int64_t momentum_tiles(const void *args, int32_t phase) { return phase == 0 ? mt_flat_tiles(mt_len(&((const mt_momentum_args *)args)->m)) : 0; }
static int64_t normalize_tiles(const void *args, int32_t phase) { return phase == 0 ? mt_flat_tiles(mt_len(&((const mt_normalize_args *)args)->out)) : 0; }
static int64_t polynomial_tiles(const void *args, int32_t phase) { return phase == 0 ? mt_flat_tiles(mt_len(&((const mt_polynomial_args *)args)->out)) : 0; }
static int64_t follow_tiles(const void *args, int32_t phase) { return phase == 0 ? mt_flat_tiles(mt_len(&((const mt_follow_args *)args)->param)) : 0; }

MT_OP(momentum, momentum_tiles, NULL)
MT_OP(normalize, normalize_tiles, NULL)
MT_OP(polynomial, polynomial_tiles, NULL)
MT_OP(follow, follow_tiles, NULL)
#else

static int32_t K(momentum)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_momentum_args *a = args;
  const float *hyper = a->hyper.data, *grad = a->grad.data;
  if (hyper[MT_HYPER_SKIP] != 0) return 0;
  float *mean = a->m.data, *out = mt_given(&a->out) ? a->out.data : NULL;
  float mu = a->mu, rest = 1 - mu, scale = hyper[MT_HYPER_GRAD_SCALE];
  mt_range r = mt_flat_range(mt_len(&a->m), tile);
  V_EACH(r.to - r.from, j, m,
    int64_t i = r.from + j;
    vf g = v_load_n(grad, MT_F32, i, m) * scale * rest;
    vf s = v_load_n(mean, MT_F32, i, m) * mu + g;
    v_store_n(mean, MT_F32, i, m, s);
    if (out) v_store_n(out, MT_F32, i, m, s * mu + g););
  return 0;
}

static int32_t K(normalize)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_normalize_args *a = args;
  float norm = (float)fmax(sqrt(((const double *)a->stats.data)[MT_STAT_SQUARES]), a->eps);
  mt_range r = mt_flat_range(mt_len(&a->out), tile);
  V_BY_DTYPE(a->out.dtype, V_EACH(r.to - r.from, i, m, v_store_n(a->out.data, T, r.from + i, m, v_load_n(a->x.data, MT_F32, r.from + i, m) / norm);););
  return 0;
}

/* A times the unit matrix is added where a vector has something of the diagonal. */
static int32_t K(polynomial)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_polynomial_args *a = args;
  int64_t n = mt_last(&a->x);
  mt_range r = mt_flat_range(mt_len(&a->out), tile);
  int squared = mt_given(&a->y);
  V_BY_DTYPE(a->x.dtype, {
    float diagonal[LANES];
    V_EACH(r.to - r.from, j, m,
      int64_t i = r.from + j, next = (i + n) / (n + 1) * (n + 1); /* on the diagonal, from i on */
      vf p = v_load_n(a->x.data, T, i, m) * a->b;
      if (squared) p += v_load_n(a->y.data, T, i, m) * a->c;
      if (next < i + m) {
        memcpy(diagonal, &p, sizeof p);
        for (; next < i + m; next += n + 1) diagonal[next - i] += a->a;
        memcpy(&p, diagonal, sizeof p);
      }
      v_store_n(a->out.data, T, i, m, p););
  })
  return 0;
}

V void K(follow_range)(const mt_follow_args *a, int T, void *model, mt_range r) {
  const float *hyper = a->hyper.data, *direction = a->direction.data;
  float *param = a->param.data, step = hyper[MT_HYPER_LR] * a->by, decay = hyper[MT_HYPER_LR] * (hyper[MT_HYPER_WEIGHT_DECAY] * a->decay);
  V_EACH(r.to - r.from, j, m,
    int64_t i = r.from + j;
    vf p = v_load_n(param, MT_F32, i, m);
    p -= step * v_load_n(direction, MT_F32, i, m) + decay * p;
    v_store_n(param, MT_F32, i, m, p);
    if (model) v_store_n(model, T, i, m, p););
}

static int32_t K(follow)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_follow_args *a = args;
  if (((const float *)a->hyper.data)[MT_HYPER_SKIP] != 0) return 0;
  mt_range r = mt_flat_range(mt_len(&a->param), tile);
  if (mt_given(&a->model))
    V_BY_DTYPE(a->model.dtype, K(follow_range)(a, T, a->model.data, r))
  else
    K(follow_range)(a, MT_F32, NULL, r);
  return 0;
}
#endif
