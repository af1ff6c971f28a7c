/* Optimizer steps: one pass over main parameters, gradients and moments that also
 * writes the model's copy. All factors are read from memory at run time. */
#ifndef MT_ISA
#define MT_KERNELS "optimizer.c"
#include "segments.h"

#include "isa.h"

static int64_t adamw_tiles(const void *args, int32_t phase) { return phase == 0 ? mt_flat_tiles(mt_len(&((const mt_adamw_args *)args)->param)) : 0; }
static int64_t sgd_tiles(const void *args, int32_t phase) { return phase == 0 ? mt_flat_tiles(mt_len(&((const mt_sgd_args *)args)->param)) : 0; }
static int64_t lion_tiles(const void *args, int32_t phase) { return phase == 0 ? mt_flat_tiles(mt_len(&((const mt_lion_args *)args)->param)) : 0; }
static int64_t schedule_free_tiles(const void *args, int32_t phase) { return phase == 0 ? mt_flat_tiles(mt_len(&((const mt_schedule_free_args *)args)->x)) : 0; }
static int64_t blend_tiles(const void *args, int32_t phase) { return phase == 0 ? mt_flat_tiles(mt_len(&((const mt_blend_args *)args)->out)) : 0; }

MT_OP(adamw, adamw_tiles, NULL)
MT_OP(sgd, sgd_tiles, NULL)
MT_OP(lion, lion_tiles, NULL)
MT_OP(schedule_free, schedule_free_tiles, NULL)
MT_OP(blend, blend_tiles, NULL)
#else

/* What range r has of segment s, with the segment's learning rate and weight decay. */
typedef struct { mt_range r; float lr, decay; } K(rated);

static K(rated) K(rated_segment)(const mt_tensor *segments, const mt_tensor *mults, const float *hyper, int64_t n, mt_range r, int64_t s) {
  mt_range all = mt_segment(segments, n, s);
  const float *mult = (const float *)mults->data + 2 * s;
  return (K(rated)){{mt_max(all.from, r.from), mt_min(all.to, r.to)}, hyper[MT_HYPER_LR] * mult[0], hyper[MT_HYPER_WEIGHT_DECAY] * mult[1]};
}

/* The statement for each segment that range r has something of, as K(rated) part. */
#define EACH_SEGMENT(a, r, ...)                                                                                       \
  for (int64_t n = mt_len(&(a)->param), s = mt_segment_at(&(a)->segments, n, r.from); s < mt_segments(&(a)->segments); s++) { \
    K(rated) part = K(rated_segment)(&(a)->segments, &(a)->mults, (a)->hyper.data, n, r, s);                          \
    if (part.r.from >= r.to) break;                                                                                   \
    __VA_ARGS__;                                                                                                      \
  }

V void K(adamw_range)(const mt_adamw_args *a, int T, void *model, K(rated) part) {
  const float *hyper = a->hyper.data, *grad = a->grad.data;
  float *param = a->param.data, *first = a->m.data, *second = a->v.data;
  mt_range r = part.r;
  float lr = part.lr, decay = part.decay, scale = hyper[MT_HYPER_GRAD_SCALE];
  float b1 = a->beta1, b2 = a->beta2, r1 = 1 - b1, r2 = 1 - b2, eps = a->eps;
  float step = lr / hyper[MT_HYPER_CORRECTION1], root = 1 / sqrtf(hyper[MT_HYPER_CORRECTION2]);
  V_EACH(r.to - r.from, j, m,
    int64_t i = r.from + j;
    vf g = v_load_n(grad, MT_F32, i, m) * scale;
    vf p = v_load_n(param, MT_F32, i, m);
    vf s = v_load_n(first, MT_F32, i, m) * b1 + g * r1;
    vf q = v_load_n(second, MT_F32, i, m) * b2 + g * g * r2;
    p -= step * s / (v_sqrt(q) * root + eps) + lr * decay * p;
    v_store_n(first, MT_F32, i, m, s);
    v_store_n(second, MT_F32, i, m, q);
    v_store_n(param, MT_F32, i, m, p);
    if (model) v_store_n(model, T, i, m, p););
}

static int32_t K(adamw)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_adamw_args *a = args;
  if (((const float *)a->hyper.data)[MT_HYPER_SKIP] != 0) return 0;
  mt_range r = mt_flat_range(mt_len(&a->param), tile);
  EACH_SEGMENT(a, r,
    if (mt_given(&a->model))
      V_BY_DTYPE(a->model.dtype, K(adamw_range)(a, T, a->model.data, part))
    else
      K(adamw_range)(a, MT_F32, NULL, part))
  return 0;
}

V void K(sgd_range)(const mt_sgd_args *a, int T, void *model, K(rated) part) {
  const float *hyper = a->hyper.data, *grad = a->grad.data;
  float *param = a->param.data, *momentum = mt_given(&a->momentum) ? a->momentum.data : NULL;
  mt_range r = part.r;
  float lr = part.lr, decay = part.decay, scale = hyper[MT_HYPER_GRAD_SCALE];
  V_EACH(r.to - r.from, j, m,
    int64_t i = r.from + j;
    vf p = v_load_n(param, MT_F32, i, m);
    vf g = v_load_n(grad, MT_F32, i, m) * scale + decay * p;
    if (momentum) {
      g += v_load_n(momentum, MT_F32, i, m) * a->mu;
      v_store_n(momentum, MT_F32, i, m, g);
    }
    p -= lr * g;
    v_store_n(param, MT_F32, i, m, p);
    if (model) v_store_n(model, T, i, m, p););
}

static int32_t K(sgd)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_sgd_args *a = args;
  if (((const float *)a->hyper.data)[MT_HYPER_SKIP] != 0) return 0;
  mt_range r = mt_flat_range(mt_len(&a->param), tile);
  EACH_SEGMENT(a, r,
    if (mt_given(&a->model))
      V_BY_DTYPE(a->model.dtype, K(sgd_range)(a, T, a->model.data, part))
    else
      K(sgd_range)(a, MT_F32, NULL, part))
  return 0;
}

/* The sign of a mean of gradients is all that moves a parameter. */
V void K(lion_range)(const mt_lion_args *a, int T, void *model, K(rated) part) {
  const float *hyper = a->hyper.data, *grad = a->grad.data;
  float *param = a->param.data, *momentum = a->m.data;
  mt_range r = part.r;
  float lr = part.lr, decay = part.decay, scale = hyper[MT_HYPER_GRAD_SCALE];
  float b1 = a->beta1, b2 = a->beta2, r1 = 1 - b1, r2 = 1 - b2;
  vf none = v_set(0.f);
  V_EACH(r.to - r.from, j, m,
    int64_t i = r.from + j;
    vf g = v_load_n(grad, MT_F32, i, m) * scale;
    vf p = v_load_n(param, MT_F32, i, m);
    vf s = v_load_n(momentum, MT_F32, i, m);
    vf c = s * b1 + g * r1;
    vf sign = v_select(v_lt(none, c), v_set(1.f), v_select(v_lt(c, none), v_set(-1.f), none));
    p -= lr * sign + lr * decay * p;
    v_store_n(momentum, MT_F32, i, m, s * b2 + g * r2);
    v_store_n(param, MT_F32, i, m, p);
    if (model) v_store_n(model, T, i, m, p););
}

static int32_t K(lion)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_lion_args *a = args;
  if (((const float *)a->hyper.data)[MT_HYPER_SKIP] != 0) return 0;
  mt_range r = mt_flat_range(mt_len(&a->param), tile);
  EACH_SEGMENT(a, r,
    if (mt_given(&a->model))
      V_BY_DTYPE(a->model.dtype, K(lion_range)(a, T, a->model.data, part))
    else
      K(lion_range)(a, MT_F32, NULL, part))
  return 0;
}
#undef EACH_SEGMENT

V void K(schedule_free_range)(const mt_schedule_free_args *a, int T, void *model, mt_range r, int64_t segment) {
  const float *hyper = a->hyper.data, *grad = a->grad.data, *mult = (const float *)a->mults.data + 2 * segment;
  const double *rates = a->rates.data;
  float *average = a->x.data, *steps = a->z.data, *second = a->v.data;
  int skip = hyper[MT_HYPER_SKIP] != 0;
  float lr = (float)(rates[MT_RATE_LR] * mult[0]), decay = (float)(rates[MT_RATE_WEIGHT_DECAY] * mult[1]), scale = hyper[MT_HYPER_GRAD_SCALE];
  float c = (float)rates[MT_RATE_AVERAGE], root = (float)(1 / sqrt(rates[MT_RATE_CORRECTION2]));
  float b1 = a->beta1, b2 = a->beta2, r1 = 1 - b1, r2 = 1 - b2, eps = a->eps;
  V_EACH(r.to - r.from, j, m,
    int64_t i = r.from + j;
    vf x = v_load_n(average, MT_F32, i, m);
    if (!skip) {
      vf z = v_load_n(steps, MT_F32, i, m);
      vf g = v_load_n(grad, MT_F32, i, m) * scale;
      vf q = v_load_n(second, MT_F32, i, m) * b2 + g * g * r2;
      z -= lr * (g / (v_sqrt(q) * root + eps) + decay * (x * b1 + z * r1));
      x = x * (1 - c) + z * c;
      v_store_n(second, MT_F32, i, m, q);
      v_store_n(steps, MT_F32, i, m, z);
      v_store_n(average, MT_F32, i, m, x);
    }
    if (model) v_store_n(model, T, i, m, x););
}

static int32_t K(schedule_free)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_schedule_free_args *a = args;
  int64_t n = mt_len(&a->x);
  mt_range r = mt_flat_range(n, tile);
  for (int64_t s = mt_segment_at(&a->segments, n, r.from); s < mt_segments(&a->segments); s++) {
    mt_range all = mt_segment(&a->segments, n, s), part = {mt_max(all.from, r.from), mt_min(all.to, r.to)};
    if (part.from >= r.to) break;
    if (mt_given(&a->model))
      V_BY_DTYPE(a->model.dtype, K(schedule_free_range)(a, T, a->model.data, part, s))
    else
      K(schedule_free_range)(a, MT_F32, NULL, part, s);
  }
  return 0;
}

static int32_t K(blend)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_blend_args *a = args;
  mt_range r = mt_flat_range(mt_len(&a->out), tile);
  float b = 1 - a->a;
  V_BY_DTYPE(a->out.dtype, V_EACH(r.to - r.from, j, m,
    int64_t i = r.from + j;
    v_store_n(a->out.data, T, i, m, v_load_n(a->x.data, MT_F32, i, m) * a->a + v_load_n(a->y.data, MT_F32, i, m) * b);););
  return 0;
}
#endif
