/* Gradients of LayerNorm and RMSNorm. With x̂ = (x−mean)·rstd and g = dy·gamma:
 * dx = rstd·(g − mean(g) − x̂·mean(g·x̂)), without mean(g) for RMSNorm; dgamma += Σ dy·x̂ and
 * dbeta += Σ dy over the rows, which blocks leave as parts: [blocks, h] of dgamma, then of
 * dbeta. dx may overwrite dy, x or the residual: the thread that writes an element of a row
 * has read it before, and no other reads it afterwards.
 *
 * A block walks several rows, so that its threads keep the sums of their columns in registers,
 * and fetches the next row while it is at one. Rows too long for that, or not aligned, go
 * through two kernels: the sums over rows, then dx. */
#include "line.h"
#include "ptx.h"
#include "sum.h"

namespace {

/* Packs of 16 bytes that a thread may have of a row that a warp's lanes, or a block, share. */
enum { SHORT_PACKS = 4, LONG_PACKS = 2, LONG_THREADS = 512, MOST_PARTS = 512 };

constexpr int short_threads(int packs) { return packs == 1 ? 256 : 128; }

/* How many blocks must fit on an SM, by registers. */
constexpr int blocks_at_least(int packs, int lanes) { return lanes == 0 ? 1 : packs == 4 ? 3 : packs == 1 ? 3 : 4; }

/* The mean or rstd of a row; those of a leaf's rows lie apart. */
__device__ inline float statistic(const mt_tensor &t, int64_t row) { return data_of<float>(t)[row * t.stride[0]]; }

/* What a thread has of a row and of the one that comes after it: packs of x, dy and the
 * residual, each read by no other thread, so that a wait for its own copies is enough. */
template <typename T, int N, int PACKS, int LANES> struct fetched_rows {
  typedef row_threads<LANES> threads;
  pack<T, N> *room; /* [2 rows][x, dy, residual][PACKS][threads] */
  float mean, rstd; /* of the row fetched last */

  __device__ static int column(int p) { return line<T, N, PACKS, LANES>::column(p); }
  __device__ T *at(int turn, int which, int p) const { return room[((turn * 3 + which) * PACKS + p) * blockDim.x + threadIdx.x].v; }

  /* A row that is not there is fetched as nothing. */
  __device__ void fetch(const mt_norm_backward_args &a, int turn, int64_t row, int64_t total, int h) {
    if (row < total) {
      const T *x = row_of<T>(a.x, row), *dy = row_of<T>(a.dy, row), *residual = given(a.residual) ? row_of<T>(a.residual, row) : nullptr;
#pragma unroll
      for (int p = 0; p < PACKS; p++) {
        int c = column(p);
        if (c >= h) continue;
        copy_async(at(turn, 0, p), x + c, 16);
        copy_async(at(turn, 1, p), dy + c, 16);
        if (residual) copy_async(at(turn, 2, p), residual + c, 16);
      }
      rstd = statistic(a.rstd, row);
      mean = a.kind == MT_LAYER_NORM_KIND ? statistic(a.mean, row) : 0;
    }
    copy_commit();
  }
};

/* Shared memory is aligned to 16 bytes. */
template <int N> __device__ inline void store_sums(float *to, const float (&x)[N]) {
#pragma unroll
  for (int j = 0; j < N; j += 4) {
    const float four[4] = {x[j], x[j + 1], x[j + 2], x[j + 3]};
    store(to + j, four);
  }
}

/* Leaves a block's sums of its columns: one thread has them where the block shares a row; else
 * they are added up over the block's rows, in order. `room`: [2][rows][columns]. */
template <int N, int PACKS, int LANES>
__device__ inline void leave_sums(float *to, float *second, int h, float *room, const float (&sum)[PACKS][N], const float (&plain)[PACKS][N]) {
  typedef row_threads<LANES> threads;
  auto column = [](int p) { return (p * threads::count() + threads::place()) * N; };
  if (LANES == 0) {
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
      if (column(p) >= h) continue;
      store_sums(to + column(p), sum[p]);
      if (second) store_sums(second + column(p), plain[p]);
    }
    return;
  }
  const int WIDTH = PACKS * (int)threads::SHARE * N;
  int rows = threads::rows();
  __syncthreads(); /* other threads fetched rows into `room` */
#pragma unroll
  for (int p = 0; p < PACKS; p++) {
    store_sums(room + threads::row() * WIDTH + column(p), sum[p]);
    store_sums(room + (rows + threads::row()) * WIDTH + column(p), plain[p]);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < (second ? 2 : 1) * WIDTH; i += blockDim.x) {
    int c = i % WIDTH, of = i / WIDTH;
    if (c >= h) continue;
    float total = 0;
    for (int r = 0; r < rows; r++) total += room[(of * rows + r) * WIDTH + c];
    (of ? second : to)[c] = total;
  }
}

template <typename T, int N, int PACKS, int LANES>
__global__ void __launch_bounds__(LANES ? short_threads(PACKS) : LONG_THREADS, blocks_at_least(PACKS, LANES))
    norm_backward_kernel(const __grid_constant__ mt_norm_backward_args a, float *parts) {
  typedef row_threads<LANES> threads;
  typedef pack<T, N> packed;
  MT_DYN_SHARED(packed, room);
  fetched_rows<T, N, PACKS, LANES> rows = {room, 0, 0};
  bool layer = a.kind == MT_LAYER_NORM_KIND, rest = given(a.residual);
  int h = (int)last(a.x);
  int64_t total = a.rstd.shape[0], step = (int64_t)gridDim.x * threads::rows(), first = (int64_t)blockIdx.x * threads::rows();
  float weight[PACKS][N] = {}, sum[PACKS][N] = {}, plain[PACKS][N] = {}; /* gamma; sums of dgamma and dbeta */
#pragma unroll
  for (int p = 0; p < PACKS; p++) {
    if (rows.column(p) >= h) continue;
    load(weight[p], data_of<T>(a.gamma) + rows.column(p));
    for (int j = 0; j < N; j++) weight[p][j] += a.one_plus;
  }
  rows.fetch(a, 0, first + threads::row(), total, h);
  for (int turn = 0; first < total; first += step, turn ^= 1) {
    int64_t row = first + threads::row();
    float mean = rows.mean, rstd = rows.rstd, g_sum = 0, gx_sum = 0;
    bool here = row < total;
    rows.fetch(a, turn ^ 1, row + step, total, h);
    copy_wait<1>();
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
      if (!here || rows.column(p) >= h) continue;
      float x[N], d[N];
      load(x, rows.at(turn, 0, p));
      load(d, rows.at(turn, 1, p));
      for (int j = 0; j < N; j++) {
        float unit = (x[j] - mean) * rstd, g = d[j] * weight[p][j];
        g_sum += g;
        gx_sum += g * unit;
        sum[p][j] += d[j] * unit;
        plain[p][j] += d[j];
      }
    }
    threads::sums(g_sum, gx_sum);
    g_sum = layer ? g_sum / h : 0;
    gx_sum /= h;
    if (!here) continue;
    T *dx = row_of<T>(a.dx, row);
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
      if (rows.column(p) >= h) continue;
      float x[N], d[N], r[N] = {}, out[N];
      load(x, rows.at(turn, 0, p));
      load(d, rows.at(turn, 1, p));
      if (rest) load(r, rows.at(turn, 2, p));
      for (int j = 0; j < N; j++) {
        float unit = (x[j] - mean) * rstd, g = d[j] * weight[p][j];
        out[j] = rstd * (g - g_sum - unit * gx_sum) + r[j];
      }
      store(dx + rows.column(p), out);
    }
  }
  float *to = parts + (int64_t)blockIdx.x * h;
  leave_sums<N, PACKS, LANES>(to, given(a.dbeta) ? to + (int64_t)gridDim.x * h : nullptr, h, reinterpret_cast<float *>(room), sum, plain);
}

enum { ROW_THREADS = 8 };

/* The sums over rows of any length: a block has 32·N columns of the rows of its part, which
 * its ROW_THREADS rows of threads take in turn. */
template <typename T, int N> __global__ void norm_weights_kernel(const __grid_constant__ mt_norm_backward_args a, float *parts, int64_t rows_a_part) {
  MT_SHARED(float[2][ROW_THREADS][32 * N], sums);
  int64_t h = last(a.x), c = ((int64_t)blockIdx.x * 32 + threadIdx.x) * N, total = a.rstd.shape[0];
  int64_t from = blockIdx.y * rows_a_part, to = from + rows_a_part < total ? from + rows_a_part : total;
  float sum[2][N] = {};
  /* Rows in turn. */
  if (c < h) {
#pragma unroll 2
    for (int64_t r = from + threadIdx.y; r < to; r += ROW_THREADS) {
      float x[N], d[N], rstd = statistic(a.rstd, r), mean = a.kind == MT_LAYER_NORM_KIND ? statistic(a.mean, r) : 0;
      load(x, row_of<T>(a.x, r) + c);
      load(d, row_of<T>(a.dy, r) + c);
      for (int j = 0; j < N; j++) sum[0][j] += d[j] * ((x[j] - mean) * rstd), sum[1][j] += d[j];
    }
  }
#pragma unroll
  for (int of = 0; of < 2; of++)
    for (int j = 0; j < N; j++) sums[of][threadIdx.y][j * 32 + threadIdx.x] = sum[of][j];
  __syncthreads();
  if (threadIdx.y > 0 || c >= h) return;
  /* The turns' sums, added in their order. */
#pragma unroll
  for (int of = 0; of < 2; of++) {
    if (of == 1 && !given(a.dbeta)) continue;
#pragma unroll
    for (int j = 0; j < N; j++) {
      float all = sum[of][j];
      for (int r = 1; r < ROW_THREADS; r++) all += sums[of][r][j * 32 + threadIdx.x];
      parts[(of * (int64_t)gridDim.y + blockIdx.y) * h + c + j] = all;
    }
  }
}

/* dx of rows of any length, a block a row. */
template <typename T, int N> __global__ void __launch_bounds__(LONG_THREADS) norm_dx_kernel(const __grid_constant__ mt_norm_backward_args a) {
  int64_t row = blockIdx.x, h = last(a.x);
  bool layer = a.kind == MT_LAYER_NORM_KIND;
  float rstd = statistic(a.rstd, row), mean = layer ? statistic(a.mean, row) : 0, g_sum = 0, gx_sum = 0;
  const T *x = row_of<T>(a.x, row), *dy = row_of<T>(a.dy, row), *residual = given(a.residual) ? row_of<T>(a.residual, row) : nullptr;
  T *dx = row_of<T>(a.dx, row);
  /* f(column, x̂, g) of this thread's packs. */
  auto each = [&](auto f) {
    for (int64_t c = (int64_t)threadIdx.x * N; c < h; c += (int64_t)blockDim.x * N) {
      float unit[N], g[N], w[N];
      load(unit, x + c);
      load(g, dy + c);
      load(w, data_of<T>(a.gamma) + c);
      for (int j = 0; j < N; j++) unit[j] = (unit[j] - mean) * rstd, g[j] *= w[j] + a.one_plus;
      f(c, unit, g);
    }
  };
  each([&](int64_t, const float(&unit)[N], const float(&g)[N]) {
    for (int j = 0; j < N; j++) g_sum += g[j], gx_sum += g[j] * unit[j];
  });
  block_sums(g_sum, gx_sum);
  g_sum = layer ? g_sum / h : 0;
  gx_sum /= h;
  each([&](int64_t c, const float(&unit)[N], const float(&g)[N]) {
    float rest[N] = {}, out[N];
    if (residual) load(rest, residual + c);
    for (int j = 0; j < N; j++) out[j] = rstd * (g[j] - g_sum - unit[j] * gx_sum) + rest[j];
    store(dx + c, out);
  });
}

/* Who has a row, and how many packs of it a thread has; parts: who leaves sums. All of it goes
 * by the shape, and by how rows lie. */
struct walk {
  bool aligned; /* to packs of 16 bytes */
  int lanes, packs, threads; /* packs 0: two kernels */
  int64_t parts;
};

int64_t rows_a_part(int64_t rows) { return at_least(64, ceil_div(rows, 128)); }

walk walk_of(const mt_norm_backward_args &a) {
  int64_t n = rows(a.x), v = 16 / element_size(a.x.dtype), moved = last(a.x) / v;
  bool aligned = packs(a.x, v) && packs(a.dx, v) && packs(a.dy, v) && packs(a.gamma, v) && packs(a.residual, v);
  if (!aligned || moved > LONG_PACKS * LONG_THREADS) return {aligned, 0, 0, 0, ceil_div(n, rows_a_part(n))};
  walk w = {aligned, 0, 0, 0, 0};
  if (moved <= 32 * SHORT_PACKS) {
    w.lanes = moved <= 8 ? 8 : moved <= 16 ? 16 : 32;
    w.packs = (int)ceil_div(moved, w.lanes);
    w.threads = short_threads(w.packs);
  } else {
    w.packs = (int)ceil_div(moved, LONG_THREADS);
    w.threads = warps_for(ceil_div(moved, w.packs));
  }
  w.parts = at_most(ceil_div(n, 4 * (w.lanes ? w.threads / w.lanes : 1)), MOST_PARTS);
  return w;
}

template <typename T, int PACKS, int LANES> void walk_rows(cudaStream_t stream, const mt_norm_backward_args &a, float *parts, const walk &w) {
  const int N = wide<T>::value;
  int bytes = 2 * 3 * PACKS * w.threads * 16;
  cudaFuncSetAttribute(norm_backward_kernel<T, N, PACKS, LANES>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  MT_LAUNCH((norm_backward_kernel<T, N, PACKS, LANES>), (unsigned)w.parts, w.threads, bytes, stream, a, parts);
}

template <typename T, int N> void in_two(cudaStream_t stream, const mt_norm_backward_args &a, float *parts, const walk &w) {
  int64_t n = rows(a.x), h = last(a.x);
  MT_LAUNCH((norm_weights_kernel<T, N>), dim3(blocks_for(h, 32 * N), (unsigned)w.parts), dim3(32, ROW_THREADS), 0, stream, a, parts, rows_a_part(n));
  MT_LAUNCH((norm_dx_kernel<T, N>), (unsigned)n, warps_for(at_most(ceil_div(h, N), LONG_THREADS)), 0, stream, a);
}

template <typename T> void backward(cudaStream_t stream, const mt_norm_backward_args &a, float *parts, const walk &w) {
  if (w.packs == 0 && w.aligned) in_two<T, wide<T>::value>(stream, a, parts, w);
  else if (w.packs == 0) in_two<T, 1>(stream, a, parts, w);
  else if (w.lanes == 8) walk_rows<T, 1, 8>(stream, a, parts, w);
  else if (w.lanes == 16) walk_rows<T, 1, 16>(stream, a, parts, w);
  else if (w.lanes == 0 && w.packs == 1) walk_rows<T, 1, 0>(stream, a, parts, w);
  else if (w.lanes == 0) walk_rows<T, 2, 0>(stream, a, parts, w);
  else if (w.packs == 1) walk_rows<T, 1, 32>(stream, a, parts, w);
  else if (w.packs == 2) walk_rows<T, 2, 32>(stream, a, parts, w);
  else if (w.packs == 3) walk_rows<T, 3, 32>(stream, a, parts, w);
  else walk_rows<T, 4, 32>(stream, a, parts, w);
}

} // namespace

static void norm_backward(mt_context *ctx, const mt_norm_backward_args &args, void *scratch) {
  mt_norm_backward_args a = args;
  if (length(a.x) == 0) return;
  if (a.chunk) { /* leaf by leaf */
    mt_tensor mt_norm_backward_args::*const by_row[] = {&mt_norm_backward_args::dx, &mt_norm_backward_args::dy, &mt_norm_backward_args::x,
                                                        &mt_norm_backward_args::residual, &mt_norm_backward_args::mean, &mt_norm_backward_args::rstd};
    for (int64_t leaf = 0; leaf < args.dgamma.shape[0]; leaf++) {
      a = args;
      a.chunk = 0;
      for (auto t : by_row) a.*t = leaf_rows(args.*t, leaf, args.chunk, args.batch);
      a.dgamma = one_row(args.dgamma, leaf), a.dbeta = one_row(args.dbeta, leaf);
      norm_backward(ctx, a, scratch);
    }
    return;
  }
  walk w = walk_of(a);
  float *parts = static_cast<float *>(scratch);
  a.x = merged(a.x), a.dx = merged(a.dx), a.dy = merged(a.dy), a.residual = merged(a.residual);
  MT_BY_TYPE(a.x.dtype, backward<T>(stream_of(ctx), a, parts, w))
  mt_add_parts(stream_of(ctx), data_of<float>(a.dgamma), parts, w.parts, last(a.x), given(a.dbeta) ? data_of<float>(a.dbeta) : nullptr);
}

static int64_t norm_backward_bytes(const void *args) {
  const mt_norm_backward_args &a = *static_cast<const mt_norm_backward_args *>(args);
  return 2 * walk_of(a).parts * last(a.x) * (int64_t)sizeof(float);
}

MT_OP(norm_backward, norm_backward_bytes)
