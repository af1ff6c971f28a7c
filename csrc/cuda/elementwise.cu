/* Sums of two, copies and conversions, constants, uniform numbers. */
#include "philox.h"
#include "spread.h"

MT_KNOWN(values, MT_VALUES)
MT_KNOWN(dtypes, MT_VALUES | MT_BIT(MT_I32) | MT_BIT(MT_I64) | MT_BIT(MT_U16) | MT_BIT(MT_U8) | MT_BIT(MT_F64))

/* N adjacent elements of a value dtype that is known at run time. */
template <int N> __device__ inline void load_as(float (&out)[N], const mt_tensor &t, int64_t at) {
  MT_BY_TYPE(t.dtype, load(out, data_of<T>(t) + at))
}
template <int N> __device__ inline void store_as(const mt_tensor &t, int64_t at, const float (&in)[N]) {
  MT_BY_TYPE(t.dtype, store(data_of<T>(t) + at, in))
}

template <int N> __global__ void add_kernel(const __grid_constant__ mt_add_args a) {
  flat<N>(length(a.out), [&](int64_t i, auto size) {
    const int M = decltype(size)::value;
    float x[M] = {}, y[M] = {};
    load_as(x, a.a, i);
    load_as(y, a.b, i);
    for (int j = 0; j < M; j++) x[j] += y[j];
    store_as(a.out, i, x);
  });
}

static void add(mt_context *ctx, const mt_add_args &a, void *) {
  int64_t n = length(a.out);
  if (n == 0) return;
  if (starts(a.out, 8) && starts(a.a, 8) && starts(a.b, 8)) MT_LAUNCH(add_kernel<8>, spread_blocks(n, 8), SPREAD, 0, stream_of(ctx), a);
  else MT_LAUNCH(add_kernel<1>, spread_blocks(n, 1), SPREAD, 0, stream_of(ctx), a);
}

MT_OP(add, nullptr)

/* Equal dtypes keep their bits. */
template <typename U, int N> __global__ void move_kernel(const __grid_constant__ mt_copy_args a) {
  cell at = cell_of<N>(rows(a.dst), last(a.dst));
  if (!at.here) return;
  *reinterpret_cast<pack<U, N> *>(row_of<U>(a.dst, at.row) + at.column) = *reinterpret_cast<const pack<U, N> *>(row_of<U>(a.src, at.row) + at.column);
}

template <int N> __global__ void convert_kernel(const __grid_constant__ mt_copy_args a) {
  cell at = cell_of<N>(rows(a.dst), last(a.dst));
  if (!at.here) return;
  float x[N];
  load_as(x, a.src, row_at(a.src, at.row) + at.column);
  store_as(a.dst, row_at(a.dst, at.row) + at.column, x);
}

/* Any strides and any pair of dtypes, an element a thread. */
__device__ inline double element(const mt_tensor &t, int64_t at) {
  switch (t.dtype) {
  case MT_F64: return data_of<double>(t)[at];
  case MT_I32: return data_of<int32_t>(t)[at];
  case MT_I64: return (double)data_of<int64_t>(t)[at];
  case MT_U16: return data_of<uint16_t>(t)[at];
  case MT_U8: return data_of<uint8_t>(t)[at];
  case MT_BF16: return to_float(data_of<bf16>(t)[at]);
  case MT_F16: return to_float(data_of<f16>(t)[at]);
  case MT_F32: return data_of<float>(t)[at];
  }
  return 0;
}
__device__ inline void set_element(const mt_tensor &t, int64_t at, double x) {
  switch (t.dtype) {
  case MT_F64: data_of<double>(t)[at] = x; break;
  case MT_I32: data_of<int32_t>(t)[at] = (int32_t)x; break;
  case MT_I64: data_of<int64_t>(t)[at] = (int64_t)x; break;
  case MT_U16: data_of<uint16_t>(t)[at] = (uint16_t)x; break;
  case MT_U8: data_of<uint8_t>(t)[at] = (uint8_t)x; break;
  case MT_BF16: data_of<bf16>(t)[at] = from_float<bf16>((float)x); break;
  case MT_F16: data_of<f16>(t)[at] = from_float<f16>((float)x); break;
  case MT_F32: data_of<float>(t)[at] = (float)x; break;
  }
}
__global__ void copy_any_kernel(const __grid_constant__ mt_copy_args a, int size) {
  cell at = cell_of<1>(rows(a.dst), last(a.dst));
  if (!at.here) return;
  int64_t to = row_at(a.dst, at.row) + at.column * a.dst.stride[a.dst.rank - 1], from = row_at(a.src, at.row) + at.column * a.src.stride[a.src.rank - 1];
  if (a.dst.dtype != a.src.dtype) set_element(a.dst, to, element(a.src, from));
  else if (size == 1) data_of<uint8_t>(a.dst)[to] = data_of<uint8_t>(a.src)[from];
  else if (size == 2) data_of<uint16_t>(a.dst)[to] = data_of<uint16_t>(a.src)[from];
  else if (size == 4) data_of<uint32_t>(a.dst)[to] = data_of<uint32_t>(a.src)[from];
  else data_of<uint64_t>(a.dst)[to] = data_of<uint64_t>(a.src)[from];
}

/* A contiguous tensor is one row. */
static mt_tensor flattened(mt_tensor t) {
  if (!contiguous(t)) return t;
  mt_tensor f = {t.data, t.dtype, 1, {length(t)}, {1}};
  return f;
}

static bool value_type(const mt_tensor &t) { return t.dtype == MT_F32 || t.dtype == MT_BF16 || t.dtype == MT_F16; }
static bool adjacent(const mt_tensor &t) { return t.stride[t.rank - 1] == 1 || last(t) == 1; }

static void copy(mt_context *ctx, const mt_copy_args &asked, void *) {
  mt_copy_args a = asked;
  if (contiguous(a.dst) && contiguous(a.src)) a.dst = flattened(a.dst), a.src = flattened(a.src);
  int64_t n = length(a.dst), size = element_size(a.dst.dtype);
  if (n == 0) return;
  cudaStream_t s = stream_of(ctx);
  bool lines = adjacent(a.dst) && adjacent(a.src);
  if (a.dst.dtype == a.src.dtype && lines) {
    int wide = (int)(16 / size);
    bool aligned = packs_bits(a.dst, wide) && packs_bits(a.src, wide);
    if (size == 1 && aligned) MT_LAUNCH((move_kernel<uint8_t, 16>), spread_blocks(n, 16), SPREAD, 0, s, a);
    else if (size == 1) MT_LAUNCH((move_kernel<uint8_t, 1>), spread_blocks(n, 1), SPREAD, 0, s, a);
    else if (size == 2 && aligned) MT_LAUNCH((move_kernel<uint16_t, 8>), spread_blocks(n, 8), SPREAD, 0, s, a);
    else if (size == 2) MT_LAUNCH((move_kernel<uint16_t, 1>), spread_blocks(n, 1), SPREAD, 0, s, a);
    else if (size == 4 && aligned) MT_LAUNCH((move_kernel<uint32_t, 4>), spread_blocks(n, 4), SPREAD, 0, s, a);
    else if (size == 4) MT_LAUNCH((move_kernel<uint32_t, 1>), spread_blocks(n, 1), SPREAD, 0, s, a);
    else MT_LAUNCH((move_kernel<uint64_t, 1>), spread_blocks(n, 1), SPREAD, 0, s, a);
  } else if (lines && value_type(a.dst) && value_type(a.src) && packs_bits(a.dst, 8) && packs_bits(a.src, 8)) {
    MT_LAUNCH(convert_kernel<8>, spread_blocks(n, 8), SPREAD, 0, s, a);
  } else {
    MT_LAUNCH(copy_any_kernel, spread_blocks(n, 1), SPREAD, 0, s, a, (int)size);
  }
}

MT_OP(copy, nullptr)

template <typename U, int N> __global__ void fill_kernel(U *out, int64_t n, U value) {
  flat<N>(n, [&](int64_t i, auto size) {
    pack<U, decltype(size)::value> p;
    for (U &x : p.v) x = value;
    *reinterpret_cast<pack<U, decltype(size)::value> *>(out + i) = p;
  });
}

template <typename U> static void fill_with(mt_context *ctx, const mt_tensor &t, U bits) {
  const int N = 16 / sizeof(U);
  int64_t n = length(t);
  if (starts(t, N)) MT_LAUNCH((fill_kernel<U, N>), spread_blocks(n, N), SPREAD, 0, stream_of(ctx), data_of<U>(t), n, bits);
  else MT_LAUNCH((fill_kernel<U, 1>), spread_blocks(n, 1), SPREAD, 0, stream_of(ctx), data_of<U>(t), n, bits);
}

template <typename U, typename T> static U bits_of(T x) {
  U bits;
  static_assert(sizeof bits == sizeof x, "an element and its bits");
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

static void fill(mt_context *ctx, const mt_fill_args &a, void *) {
  if (length(a.out) == 0) return;
  switch (a.out.dtype) {
  case MT_F32: fill_with(ctx, a.out, bits_of<uint32_t>((float)a.value)); break;
  case MT_BF16: fill_with(ctx, a.out, bits_of<uint16_t>(from_float<bf16>((float)a.value))); break;
  case MT_F16: fill_with(ctx, a.out, bits_of<uint16_t>(from_float<f16>((float)a.value))); break;
  case MT_I32: fill_with(ctx, a.out, (uint32_t)(int32_t)a.value); break;
  case MT_I64: fill_with(ctx, a.out, (uint64_t)(int64_t)a.value); break;
  case MT_U16: fill_with(ctx, a.out, (uint16_t)a.value); break;
  case MT_U8: fill_with(ctx, a.out, (uint8_t)a.value); break;
  case MT_F64: fill_with(ctx, a.out, bits_of<uint64_t>(a.value)); break;
  }
}

MT_OP(fill, nullptr)

/* A thread makes the four numbers of one counter: a word's top 24 bits. */
__global__ void uniform_kernel(const __grid_constant__ mt_uniform_args a) {
  uint64_t key = step_key(a.stream, a.step), counter = (uint64_t)blockIdx.x * SPREAD + threadIdx.x;
  int64_t n = length(a.out), from = (int64_t)counter * 4;
  if (from >= n) return;
  words w = philox(key, (uint32_t)counter, (uint32_t)(counter >> 32), 0, 0);
  for (int j = 0; j < 4 && from + j < n; j++) data_of<float>(a.out)[from + j] = (float)(w.w[j] >> 8) * 0x1p-24f;
}

static void uniform(mt_context *ctx, const mt_uniform_args &a, void *) {
  int64_t n = length(a.out);
  if (n > 0) MT_LAUNCH(uniform_kernel, spread_blocks(n, 4), SPREAD, 0, stream_of(ctx), a);
}

MT_OP(uniform, nullptr)
