/* The MLP's non-linearities, plain and gated, and what an expert's row weighs. Backward
 * reads all it needs of an index before it writes there, so that dx may be x. */
#ifndef MT_ISA
/* X(kind, ...) of those that act and act_grad below compute. */
#define KINDS(X, ...)                                                                       \
  X(MT_GELU_TANH, __VA_ARGS__) X(MT_GELU_ERF, __VA_ARGS__) X(MT_SQUARED_RELU, __VA_ARGS__) \
  X(MT_SWIGLU, __VA_ARGS__) X(MT_QUICK_GEGLU, __VA_ARGS__) \
  X(MT_GEGLU, __VA_ARGS__) X(MT_RELU, __VA_ARGS__)

#define MT_KERNELS "activation.c"
#include "isa.h"

static int64_t forward_tiles(const void *args, int32_t phase) {
  const mt_activation_forward_args *a = args;
  return phase == 0 ? mt_row_tiles(a->y.shape[0], a->y.shape[1]) : 0;
}

static int64_t backward_tiles(const void *args, int32_t phase) {
  const mt_activation_backward_args *a = args;
  return phase == 0 ? mt_row_tiles(a->dy.shape[0], a->dy.shape[1]) : 0;
}

#define OR_BIT(kind, ...) | MT_BIT(kind)
const uint32_t mt_cpu_known_activation = 0 KINDS(OR_BIT, );

MT_OP_OF_ANY_WIDTH(activation_forward, forward_tiles, NULL)
/* Gradients of weights are sums over vectors. */
MT_OP_AT((mt_given(&((const mt_activation_backward_args *)args)->dweights) ? mt_isa_level : mt_isa_ordered), activation_backward, backward_tiles, NULL)
#else
#include "gelu.h"

V int K(gated)(int kind) { return MT_GATED >> kind & 1; }

V vf K(act)(int kind, int T, vf x) {
  switch (kind) {
  case MT_GELU_TANH: return v_gelu_tanh_to(x, T);
  case MT_GELU_ERF: return v_gelu_erf(x);
  case MT_SQUARED_RELU: return v_max(v_set(0), x) * v_max(v_set(0), x);
  case MT_RELU: return v_max(v_set(0), x);
  case MT_GEGLU: return v_gelu_tanh_to(x, T);
  case MT_SWIGLU: return x * v_sigmoid(x);
  case MT_QUICK_GEGLU: return x * v_sigmoid(x * 1.702f);
  }
  __builtin_trap(); /* kind is one of KINDS */
}

/* act' and, for gated kinds, act. */
V vf K(act_grad)(int kind, int T, vf x, vf *y) {
  switch (kind) {
  case MT_GELU_TANH: return v_gelu_tanh_grad_to(x, T);
  case MT_GELU_ERF: return v_gelu_erf_grad(x);
  case MT_SQUARED_RELU: return v_max(v_set(0), x) * 2.f;
  case MT_RELU: return v_select(v_lt(v_set(0), x), v_set(1), v_set(0));
  case MT_GEGLU:
    *y = v_gelu_tanh_to(x, T);
    return v_gelu_tanh_grad_to(x, T);
  case MT_SWIGLU: case MT_QUICK_GEGLU: {
    float k = kind == MT_SWIGLU ? 1 : 1.702f;
    vf rest, s = v_sigmoid_pair(x * k, &rest);
    *y = x * s;
    return v_mad(*y * k, rest, s);
  }
  }
  __builtin_trap();
}

/* x between -limit (`both`) and limit; NaN stays. */
V vf K(clamped)(vf x, float limit, int both) {
  x = v_select(v_lt(v_set(limit), x), v_set(limit), x);
  return both ? v_select(v_lt(x, v_set(-limit)), v_set(-limit), x) : x;
}

/* A row's weight; none: NULL. */
V const float *K(weight_of)(const mt_tensor *weights, int64_t row) { return mt_given(weights) ? (const float *)weights->data + row : NULL; }

V void K(forward_rows)(const mt_activation_forward_args *a, int T, int kind, mt_range r) {
  int64_t n = a->y.shape[1];
  float limit = a->limit;
  for (int64_t row = r.from; row < r.to; row++) {
    const float *weight = K(weight_of)(&a->weights, row);
    const void *x = mt_row(&a->x, row);
    void *y = mt_row(&a->y, row);
    V_EACH(n, i, m,
      vf v = v_load_n(x, T, i, m);
      v = K(act)(kind, T, limit > 0 ? K(clamped)(v, limit, 0) : v);
      if (K(gated)(kind)) {
        vf up = v_load_n(x, T, n + i, m);
        v *= (limit > 0 ? K(clamped)(up, limit, 1) : up) + a->offset;
      }
      if (weight) v = v_rounded(v, T) * *weight;
      v_store_n(y, T, i, m, v););
  }
}

/* Columns of a row; the sum of dy·act(x) over them, where it is weighted. */
V float K(backward_row)(const mt_activation_backward_args *a, int T, int kind, int64_t row, mt_range columns) {
  const float *weight = K(weight_of)(&a->weights, row);
  const void *x = mt_row(&a->x, row), *dy = mt_row(&a->dy, row);
  void *dx = mt_row(&a->dx, row);
  int64_t n = a->dy.shape[1];
  float limit = a->limit;
  vf sum = {0};
  V_EACH(columns.to - columns.from, column, m,
    const int64_t i = columns.from + column;
    vf y, gate = {0}, up = {0}, d = v_load_n(dy, T, i, m), given = v_load_n(x, T, i, m), v = given;
    if (limit > 0) v = K(clamped)(v, limit, 0);
    vf slope = K(act_grad)(kind, T, v, &y);
    /* The other half of a gated MLP. */
    if (K(gated)(kind)) {
      up = v_load_n(x, T, n + i, m);
      gate = (limit > 0 ? K(clamped)(up, limit, 1) : up) + a->offset;
    }
    /* An expert's row has a weight: its gradient is dy·act(x), that of x is weighted. */
    if (weight) {
      sum = v_mad(d, v_rounded(K(gated)(kind) ? y * gate : K(act)(kind, T, v), T), sum);
      d = v_rounded(d * *weight, T);
    }
    /* Where a clamp limited a value, its gradient is 0. */
    if (K(gated)(kind)) {
      slope *= gate;
      vf dup = d * y;
      if (limit > 0) {
        slope = v_select(v_lt(v_set(limit), given), v_set(0), slope);
        dup = v_select(v_lt(v_set(limit), v_abs(up)), v_set(0), dup);
      }
      v_store_n(dx, T, n + i, m, dup);
    }
    v_store_n(dx, T, i, m, d * slope););
  return v_sum(sum);
}

V void K(backward_rows)(const mt_activation_backward_args *a, int T, int kind, mt_range r) {
  const int64_t parts = a->dweights.rank == 2 ? a->dweights.shape[0] : 1, n = a->dy.shape[1] / parts, rows = a->dy.shape[0];
  for (int64_t row = r.from; row < r.to; row++)
    for (int64_t part = 0; part < parts; part++) {
      float dweight = K(backward_row)(a, T, kind, row, (mt_range){part * n, (part + 1) * n});
      if (mt_given(&a->dweights)) ((float *)a->dweights.data)[part * rows + row] = dweight;
    }
}

/* Runs a statement with kind_ constant. */
#define AS_CASE(kind, ...) case kind: { enum { kind_ = kind }; __VA_ARGS__; break; }
#define BY_KIND(kind, ...) switch (kind) { KINDS(AS_CASE, __VA_ARGS__) }

static int32_t K(activation_forward)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_activation_forward_args *a = args;
  mt_range r = mt_row_range(a->y.shape[0], a->y.shape[1], tile);
  V_BY_DTYPE(a->x.dtype, BY_KIND(a->kind, K(forward_rows)(a, T, kind_, r)));
  return 0;
}

static int32_t K(activation_backward)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_activation_backward_args *a = args;
  mt_range r = mt_row_range(a->dy.shape[0], a->dy.shape[1], tile);
  V_BY_DTYPE(a->x.dtype, BY_KIND(a->kind, K(backward_rows)(a, T, kind_, r)));
  return 0;
}
#undef BY_KIND
#undef AS_CASE
#endif
