/* Activations, gated or not, forward and backward: one pass over memory. */
#include "activation.h"
#include "spread.h"

#define OR_BIT(kind, type) | MT_BIT(kind)
MT_KNOWN(activation, 0 MT_ACTIVATIONS(OR_BIT))

template <typename T, int N> __global__ void activation_forward_kernel(const __grid_constant__ mt_activation_forward_args a) {
  int64_t f = a.y.shape[1];
  cell at = cell_of<N>(a.y.shape[0], f);
  if (!at.here) return;
  const T *from = row_of<T>(a.x, at.row) + at.column;
  float x[N], gate[N] = {}, y[N] = {};
  load(x, from);
  if (gated(a.kind)) load(gate, from + f);
  with_activation(a.kind, [&](auto act) {
    for (int j = 0; j < N; j++) y[j] = act.value(x[j]);
  });
  if (gated(a.kind))
    for (int j = 0; j < N; j++) y[j] *= gate[j];
  store(row_of<T>(a.y, at.row) + at.column, y);
}

static void activation_forward(mt_context *ctx, const mt_activation_forward_args &a, void *) {
  int64_t n = length(a.y);
  if (n == 0) return;
  MT_BY_TYPE(a.y.dtype, {
    const int N = wide<T>::value;
    if (packs(a.y, N) && packs(a.x, N)) MT_LAUNCH((activation_forward_kernel<T, N>), spread_blocks(n, N), SPREAD, 0, stream_of(ctx), a);
    else MT_LAUNCH((activation_forward_kernel<T, 1>), spread_blocks(n, 1), SPREAD, 0, stream_of(ctx), a);
  })
}

MT_OP(activation_forward, nullptr)

/* dx may be x. */
template <typename T, int N> __global__ void activation_backward_kernel(const __grid_constant__ mt_activation_backward_args a) {
  int64_t f = a.dy.shape[1];
  cell at = cell_of<N>(a.dy.shape[0], f);
  if (!at.here) return;
  const T *from = row_of<T>(a.x, at.row) + at.column;
  T *to = row_of<T>(a.dx, at.row) + at.column;
  float x[N], gate[N] = {}, dy[N], value[N] = {}, slope[N] = {};
  load(x, from);
  if (gated(a.kind)) load(gate, from + f);
  load(dy, row_of<T>(a.dy, at.row) + at.column);
  with_activation(a.kind, [&](auto act) {
    for (int j = 0; j < N; j++) {
      slope[j] = dy[j] * act.slope(x[j]);
      value[j] = dy[j] * act.value(x[j]); /* used where gated */
    }
  });
  if (gated(a.kind)) {
    for (int j = 0; j < N; j++) slope[j] *= gate[j];
    store(to + f, value);
  }
  store(to, slope);
}

static void activation_backward(mt_context *ctx, const mt_activation_backward_args &a, void *) {
  int64_t n = length(a.dy);
  if (n == 0) return;
  MT_BY_TYPE(a.dy.dtype, {
    const int N = wide<T>::value;
    bool aligned = packs(a.dy, N) && packs(a.x, N) && packs(a.dx, N);
    if (aligned) MT_LAUNCH((activation_backward_kernel<T, N>), spread_blocks(n, N), SPREAD, 0, stream_of(ctx), a);
    else MT_LAUNCH((activation_backward_kernel<T, 1>), spread_blocks(n, 1), SPREAD, 0, stream_of(ctx), a);
  })
}

MT_OP(activation_backward, nullptr)
