/* Scaling, soft capping, and the sinks of attention. */
#ifndef MT_ISA
#define MT_KERNELS "parts.c"
#include <math.h>
#include <stddef.h>

#include "functions.h"
#include "isa.h"

static int64_t scale_tiles(const void *args, int32_t phase) { return phase == 0 ? mt_flat_tiles(mt_len(&((const mt_scale_args *)args)->out)) : 0; }
static int64_t cap_tiles(const void *args, int32_t phase) { return phase == 0 ? mt_flat_tiles(mt_len(&((const mt_soft_cap_args *)args)->out)) : 0; }
static int64_t cap_backward_tiles(const void *args, int32_t phase) { return phase == 0 ? mt_flat_tiles(mt_len(&((const mt_soft_cap_backward_args *)args)->dx)) : 0; }

static int64_t sink_tiles(const void *args, int32_t phase) {
  const mt_tensor *o = &((const mt_attention_sink_args *)args)->o;
  return phase == 0 ? mt_row_tiles(mt_rows(o), mt_last(o)) : 0;
}

/* A tile a head: its sum is made in one order. */
static int64_t sink_backward_tiles(const void *args, int32_t phase) { return phase == 0 ? mt_len(&((const mt_attention_sink_backward_args *)args)->sinks) : 0; }

const uint32_t mt_cpu_known_score_rule = MT_BIT(MT_PLAIN_SCORES) | MT_BIT(MT_CAPPED_SCORES);

MT_OP(scale, scale_tiles, NULL)
MT_OP(soft_cap, cap_tiles, NULL)
MT_OP(soft_cap_backward, cap_backward_tiles, NULL)
MT_OP(attention_sink, sink_tiles, NULL)
MT_OP(attention_sink_backward, sink_backward_tiles, NULL)
#else

static int32_t K(scale)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_scale_args *a = args;
  mt_range r = mt_flat_range(mt_len(&a->out), tile);
  float by = mt_given(&a->factor) ? a->by * *(const float *)a->factor.data : a->by;
  V_BY_DTYPE(a->x.dtype, V_EACH(r.to - r.from, i, m, v_store_n(a->out.data, T, r.from + i, m, v_load_n(a->x.data, T, r.from + i, m) * by);););
  return 0;
}

/* tanh x = sigmoid(2x) - sigmoid(-2x). */
V vf K(capped)(vf x, float cap) {
  vf rest;
  vf s = v_sigmoid_pair(x * (2 / cap), &rest);
  return (s - rest) * cap;
}

static int32_t K(soft_cap)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_soft_cap_args *a = args;
  mt_range r = mt_flat_range(mt_len(&a->out), tile);
  V_BY_DTYPE(a->x.dtype, V_EACH(r.to - r.from, i, m, v_store_n(a->out.data, T, r.from + i, m, K(capped)(v_load_n(a->x.data, T, r.from + i, m), a->cap));););
  return 0;
}

static int32_t K(soft_cap_backward)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_soft_cap_backward_args *a = args;
  mt_range r = mt_flat_range(mt_len(&a->dx), tile);
  float inverse = 1 / a->cap;
  V_BY_DTYPE(a->dx.dtype, { enum { D = T }; V_BY_DTYPE(a->y.dtype, {
    V_EACH(r.to - r.from, i, m,
      vf t = v_load_n(a->y.data, T, r.from + i, m) * inverse;
      v_store_n(a->dx.data, D, r.from + i, m, v_load_n(a->dy.data, D, r.from + i, m) * (1.f - t * t)););
  }) });
  return 0;
}

V float K(sink_of)(const mt_tensor *sinks, int64_t head) {
  float sink = 0;
  V_BY_DTYPE(sinks->dtype, sink = v_load_n(sinks->data, T, head, 1)[0]);
  return sink;
}

/* Row number `row` of o [sq*b, groups, heads a group, d] is head row % heads of query
 * row / heads / b of sample row / heads % b. */
static int32_t K(attention_sink)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_attention_sink_args *a = args;
  int64_t batch = a->lse.shape[0], heads = a->lse.shape[1], sq = a->lse.shape[2], d = mt_last(&a->o);
  mt_range r = mt_row_range(mt_rows(&a->o), d, tile);
  for (int64_t row = r.from; row < r.to; row++) {
    int64_t head = row % heads, at = (row / heads % batch * heads + head) * sq + row / heads / batch;
    float *lse = (float *)a->lse.data + at, sink = K(sink_of)(&a->sinks, head), factor = 1 / (1 + (float)mt_exp(sink - *lse)), top = *lse > sink ? *lse : sink;
    void *o = mt_row(&a->o, row);
    V_BY_DTYPE(a->o.dtype, V_EACH(d, i, m, v_store_n(o, T, i, m, v_load_n(o, T, i, m) * factor);););
    *lse = top + (float)mt_log1p(mt_exp(-fabsf(*lse - sink)));
  }
  return 0;
}

static int32_t K(attention_sink_backward)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t head) {
  const mt_attention_sink_backward_args *a = args;
  int64_t batch = a->lse.shape[0], heads = a->lse.shape[1], sq = a->lse.shape[2], d = mt_last(&a->o);
  float sink = K(sink_of)(&a->sinks, head);
  double total = 0;
  for (int64_t sample = 0; sample < batch; sample++)
    for (int64_t i = 0; i < sq; i++) {
      int64_t row = (i * batch + sample) * heads + head;
      const void *o = mt_row(&a->o, row), *d_o = mt_row(&a->d_o, row);
      vf sum = {0};
      V_BY_DTYPE(a->o.dtype, V_EACH(d, j, m, sum = v_mad(v_load_n(o, T, j, m), v_load_n(d_o, T, j, m), sum);););
      total -= (float)mt_exp(sink - ((const float *)a->lse.data)[(sample * heads + head) * sq + i]) * v_sum(sum);
    }
  ((float *)a->dsinks.data)[head] += (float)total;
  return 0;
}
#endif
