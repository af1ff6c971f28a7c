/* Activations, gated or not, and what an expert's row weighs, forward and backward: one pass
 * over memory. */
#include "activation.h"
#include "reduce.h"
#include "spread.h"

#define OR_BIT(kind, type) | MT_BIT(kind)
MT_KNOWN(activation, 0 MT_ACTIVATIONS(OR_BIT))

/* What is done to the halves of a gated kind's input: see op_activation.go. NaN stays. */
struct bounds {
  float limit, offset;
  __device__ float below(float x) const { return limit > 0 && x > limit ? limit : x; }
  __device__ float within(float x) const { return limit > 0 && x < -limit ? -limit : below(x); }
  __device__ bool clamps(float x) const { return limit > 0 && x > limit; }
};

/* N elements' activations; gate is read where they are gated: the half after the clamp and
 * the offset. */
template <int N> __device__ inline void activate(int kind, const bounds &b, float (&y)[N], const float (&x)[N], const float (&gate)[N]) {
  with_activation(kind, [&](auto act) {
    for (int j = 0; j < N; j++) y[j] = act.value(b.below(x[j]));
  });
  if (gated(kind))
    for (int j = 0; j < N; j++) y[j] *= b.within(gate[j]) + b.offset;
}

template <typename T, int N> __global__ void activation_forward_kernel(const __grid_constant__ mt_activation_forward_args a) {
  int64_t f = a.y.shape[1];
  cell at = cell_of<N>(a.y.shape[0], f);
  if (!at.here) return;
  const T *from = row_of<T>(a.x, at.row) + at.column;
  float x[N], gate[N] = {}, y[N] = {};
  load(x, from);
  if (gated(a.kind)) load(gate, from + f);
  activate(a.kind, {a.limit, a.offset}, y, x, gate);
  if (given(a.weights)) {
    float w = data_of<float>(a.weights)[at.row];
    for (int j = 0; j < N; j++) y[j] = rounded<T>(y[j]) * w;
  }
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

/* Stores the gradients of x and of gate, which lies f elements behind. */
template <typename T, int N> __device__ inline void store_gradient(int kind, const bounds &b, T *to, int64_t f, const float (&x)[N], const float (&gate)[N], const float (&dy)[N]) {
  float value[N] = {}, slope[N] = {};
  with_activation(kind, [&](auto act) {
    for (int j = 0; j < N; j++) {
      slope[j] = b.clamps(x[j]) ? 0 : dy[j] * act.slope(x[j]);
      value[j] = b.clamps(fabsf(gate[j])) ? 0 : dy[j] * act.value(b.below(x[j])); /* used where gated */
    }
  });
  if (gated(kind)) {
    for (int j = 0; j < N; j++) slope[j] *= b.within(gate[j]) + b.offset;
    store(to + f, value);
  }
  store(to, slope);
}

/* dx may be x. */
template <typename T, int N> __global__ void activation_backward_kernel(const __grid_constant__ mt_activation_backward_args a) {
  int64_t f = a.dy.shape[1];
  cell at = cell_of<N>(a.dy.shape[0], f);
  if (!at.here) return;
  const T *from = row_of<T>(a.x, at.row) + at.column;
  float x[N], gate[N] = {}, dy[N];
  load(x, from);
  if (gated(a.kind)) load(gate, from + f);
  load(dy, row_of<T>(a.dy, at.row) + at.column);
  store_gradient(a.kind, {a.limit, a.offset}, row_of<T>(a.dx, at.row) + at.column, f, x, gate, dy);
}

/* A block a row, of whose weight it sums the gradient, part by part where several are asked for. dx may be x. */
template <typename T, int N> __global__ void weighted_backward_kernel(const __grid_constant__ mt_activation_backward_args a) {
  int64_t f = a.dy.shape[1], row = blockIdx.x, parts = a.dweights.rank == 2 ? a.dweights.shape[0] : 1, width = f / parts;
  float w = data_of<float>(a.weights)[row];
  for (int64_t part = 0; part < parts; part++) {
    float sum = 0;
    for (int64_t c = part * width + (int64_t)threadIdx.x * N; c < (part + 1) * width; c += SPREAD * N) {
      const T *from = row_of<T>(a.x, row) + c;
      float x[N], gate[N] = {}, dy[N], y[N] = {};
      load(x, from);
      if (gated(a.kind)) load(gate, from + f);
      load(dy, row_of<T>(a.dy, row) + c);
      activate(a.kind, {a.limit, a.offset}, y, x, gate);
      for (int j = 0; j < N; j++) {
        sum += dy[j] * rounded<T>(y[j]);
        dy[j] = rounded<T>(dy[j] * w);
      }
      store_gradient(a.kind, {a.limit, a.offset}, row_of<T>(a.dx, row) + c, f, x, gate, dy);
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) row_of<float>(a.dweights, part)[row] = sum;
  }
}

template <typename T, int N> void launch_backward(cudaStream_t stream, const mt_activation_backward_args &a) {
  if (given(a.weights)) MT_LAUNCH((weighted_backward_kernel<T, N>), (unsigned)a.dy.shape[0], SPREAD, 0, stream, a);
  else MT_LAUNCH((activation_backward_kernel<T, N>), spread_blocks(length(a.dy), N), SPREAD, 0, stream, a);
}

static void activation_backward(mt_context *ctx, const mt_activation_backward_args &a, void *) {
  if (length(a.dy) == 0) return;
  MT_BY_TYPE(a.dy.dtype, {
    const int N = wide<T>::value;
    bool aligned = packs(a.dy, N) && packs(a.x, N) && packs(a.dx, N) && a.dweights.rank < 2; /* parts may be narrower than packs */
    if (aligned) launch_backward<T, N>(stream_of(ctx), a);
    else launch_backward<T, 1>(stream_of(ctx), a);
  })
}

MT_OP(activation_backward, nullptr)
