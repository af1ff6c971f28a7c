/* The causal convolution of each channel by itself, with SiLU, and gates. */
#include "documents.h"
#include "reduce.h"
#include "spread.h"

namespace {

enum { TAPS = 16, CHANNELS = 32, SLICES = 8 }; /* most taps; channels and slices of rows of a block that makes the taps' gradients */

__device__ inline float sigmoid(float x) { return 1 / (1 + expf(-x)); }

/* The bias of channel c; none: 0. */
template <typename T> __device__ inline float conv_bias(const mt_tensor &bias, int64_t c) { return given(bias) ? to_float(data_of<T>(bias)[c]) : 0; }

/* The sum of bias and taps of channel c at position t of a sample. */
template <typename T> __device__ inline float conv_sum(const mt_tensor &x, const mt_tensor &w, const mt_tensor &bias, int64_t first, int64_t batch, int64_t sample, int64_t t, int64_t c) {
  int64_t kernel = last(w);
  float z = conv_bias<T>(bias, c);
  for (int64_t j = 0; j < kernel; j++) {
    int64_t from = t - kernel + 1 + j;
    if (from >= first) z += to_float(data_of<T>(w)[c * kernel + j]) * to_float(row_of<T>(x, from * batch + sample)[c]);
  }
  return z;
}

template <typename T> __global__ void causal_conv_forward_kernel(const __grid_constant__ mt_causal_conv_forward_args a) {
  cell at = cell_of<1>(a.x.shape[0], last(a.x));
  if (!at.here) return;
  int64_t sample = at.row % a.batch, t = at.row / a.batch;
  float z = conv_sum<T>(a.x, a.w, a.bias, doc_first(a.doc_start, sample, t), a.batch, sample, t, at.column);
  row_of<T>(a.y, at.row)[at.column] = from_float<T>(a.plain ? z : z * sigmoid(z));
}

/* The gradient of the sum at position t. */
template <typename T> __device__ inline float conv_slope(const mt_causal_conv_backward_args &a, int64_t first, int64_t sample, int64_t t, int64_t c) {
  float z = conv_sum<T>(a.x, a.w, a.bias, first, a.batch, sample, t, c), s = sigmoid(z);
  return to_float(row_of<T>(a.dy, t * a.batch + sample)[c]) * (a.plain ? 1 : s + z * s * (1 - s));
}

template <typename T> __global__ void conv_input_kernel(const __grid_constant__ mt_causal_conv_backward_args a) {
  cell at = cell_of<1>(a.x.shape[0], last(a.x));
  if (!at.here) return;
  int64_t sample = at.row % a.batch, t = at.row / a.batch, kernel = last(a.w), s = a.x.shape[0] / a.batch;
  float dx = 0;
  for (int64_t by = 0; by < kernel && t + by < s; by++) {
    int64_t first = doc_first(a.doc_start, sample, t + by);
    if (first <= t) dx += conv_slope<T>(a, first, sample, t + by, at.column) * to_float(data_of<T>(a.w)[at.column * kernel + kernel - 1 - by]);
  }
  row_of<T>(a.dx, at.row)[at.column] = from_float<T>(dx);
}

/* A lane a channel; the slices' sums are added in order. After the taps comes the bias. */
template <typename T> __global__ void conv_taps_kernel(const __grid_constant__ mt_causal_conv_backward_args a) {
  MT_SHARED(float[SLICES][CHANNELS], parts);
  int lane = threadIdx.x % CHANNELS, slice = threadIdx.x / CHANNELS;
  int64_t c = (int64_t)blockIdx.x * CHANNELS + lane, kernel = last(a.w);
  float sums[TAPS] = {}, bias = 0;
  /* A slice has every SLICES-th row. */
  if (c < last(a.x))
    for (int64_t row = slice; row < a.x.shape[0]; row += SLICES) {
      int64_t sample = row % a.batch, t = row / a.batch, first = doc_first(a.doc_start, sample, t);
      float dz = conv_slope<T>(a, first, sample, t, c);
      bias += dz;
#pragma unroll
      for (int j = 0; j < TAPS; j++) {
        int64_t from = t - kernel + 1 + j;
        if (j < kernel && from >= first) sums[j] += dz * to_float(row_of<T>(a.x, from * a.batch + sample)[c]);
      }
    }
#pragma unroll
  for (int j = 0; j < TAPS; j++) {
    if (j >= kernel) break;
    parts[slice][lane] = sums[j];
    __syncthreads();
    if (slice == 0 && c < last(a.x)) {
      float sum = 0;
      for (int i = 0; i < SLICES; i++) sum += parts[i][lane];
      data_of<float>(a.dw)[c * kernel + j] += sum;
    }
    __syncthreads();
  }
  if (!given(a.dbias)) return;
  parts[slice][lane] = bias;
  __syncthreads();
  if (slice > 0 || c >= last(a.x)) return;
  float sum = 0;
  for (int i = 0; i < SLICES; i++) sum += parts[i][lane];
  data_of<float>(a.dbias)[c] += sum;
}

__device__ inline float *conv_input(const mt_paged_causal_conv_args &a, int64_t row, int64_t position) {
  return data_of<float>(a.inputs) + doc_block(a.tables, a.rows, row, position) * a.inputs.stride[0] + position % PAGED_BLOCK * a.inputs.stride[1];
}

template <typename T> __global__ void keep_inputs_kernel(const __grid_constant__ mt_paged_causal_conv_args a) {
  cell at = cell_of<1>(a.x.shape[0], last(a.x));
  if (at.here) conv_input(a, at.row, doc_position(a.rows, at.row))[at.column] = to_float(row_of<T>(a.x, at.row)[at.column]);
}

template <typename T> __global__ void paged_causal_conv_kernel(const __grid_constant__ mt_paged_causal_conv_args a) {
  cell at = cell_of<1>(a.x.shape[0], last(a.x));
  if (!at.here) return;
  int64_t t = doc_position(a.rows, at.row), kernel = last(a.w);
  float z = conv_bias<T>(a.bias, at.column);
  for (int64_t j = 0; j < kernel; j++) {
    int64_t from = t - kernel + 1 + j;
    if (from >= 0) z += to_float(data_of<T>(a.w)[at.column * kernel + j]) * conv_input(a, at.row, from)[at.column];
  }
  row_of<T>(a.y, at.row)[at.column] = from_float<T>(a.plain ? z : z * sigmoid(z));
}

/* What a gate multiplies by, and its slope. */
__device__ inline float gate_factor(float g, int silu, int plain, float *slope) {
  if (plain) {
    *slope = 1;
    return g;
  }
  float s = sigmoid(g), d = s * (1 - s);
  *slope = silu ? s + g * d : d;
  return silu ? g * s : s;
}

template <typename T> __global__ void gate_forward_kernel(const __grid_constant__ mt_gate_forward_args a) {
  cell at = cell_of<1>(rows(a.x), last(a.x));
  if (!at.here) return;
  float slope, factor = gate_factor(to_float(row_of<T>(a.g, at.row)[at.column]), a.silu, a.plain, &slope);
  row_of<T>(a.y, at.row)[at.column] = from_float<T>(to_float(row_of<T>(a.x, at.row)[at.column]) * factor);
}

template <typename T> __global__ void gate_backward_kernel(const __grid_constant__ mt_gate_backward_args a) {
  cell at = cell_of<1>(rows(a.x), last(a.x));
  if (!at.here) return;
  float slope, factor = gate_factor(to_float(row_of<T>(a.g, at.row)[at.column]), a.silu, a.plain, &slope), d = to_float(row_of<T>(a.dy, at.row)[at.column]);
  row_of<T>(a.dg, at.row)[at.column] = from_float<T>(d * to_float(row_of<T>(a.x, at.row)[at.column]) * slope);
  row_of<T>(a.dx, at.row)[at.column] = from_float<T>(d * factor);
}

} // namespace

static void causal_conv_forward(mt_context *ctx, const mt_causal_conv_forward_args &a, void *) {
  int64_t n = length(a.x);
  if (n > 0) MT_BY_TYPE(a.x.dtype, MT_LAUNCH(causal_conv_forward_kernel<T>, spread_blocks(n, 1), SPREAD, 0, stream_of(ctx), a))
}

static void causal_conv_backward(mt_context *ctx, const mt_causal_conv_backward_args &a, void *) {
  int64_t n = length(a.x);
  if (n == 0) return;
  MT_BY_TYPE(a.x.dtype, {
    MT_LAUNCH(conv_input_kernel<T>, spread_blocks(n, 1), SPREAD, 0, stream_of(ctx), a);
    MT_LAUNCH(conv_taps_kernel<T>, blocks_for(last(a.x), CHANNELS), CHANNELS * SLICES, 0, stream_of(ctx), a);
  })
}

static void paged_causal_conv(mt_context *ctx, const mt_paged_causal_conv_args &a, void *) {
  int64_t n = length(a.x);
  if (n == 0) return;
  MT_BY_TYPE(a.x.dtype, {
    MT_LAUNCH(keep_inputs_kernel<T>, spread_blocks(n, 1), SPREAD, 0, stream_of(ctx), a);
    MT_LAUNCH(paged_causal_conv_kernel<T>, spread_blocks(n, 1), SPREAD, 0, stream_of(ctx), a);
  })
}

static void gate_forward(mt_context *ctx, const mt_gate_forward_args &a, void *) {
  int64_t n = length(a.x);
  if (n > 0) MT_BY_TYPE(a.x.dtype, MT_LAUNCH(gate_forward_kernel<T>, spread_blocks(n, 1), SPREAD, 0, stream_of(ctx), a))
}

static void gate_backward(mt_context *ctx, const mt_gate_backward_args &a, void *) {
  int64_t n = length(a.x);
  if (n > 0) MT_BY_TYPE(a.x.dtype, MT_LAUNCH(gate_backward_kernel<T>, spread_blocks(n, 1), SPREAD, 0, stream_of(ctx), a))
}

MT_OP(causal_conv_forward, nullptr)
MT_OP(causal_conv_backward, nullptr)
MT_OP(paged_causal_conv, nullptr)
MT_OP(gate_forward, nullptr)
MT_OP(gate_backward, nullptr)
