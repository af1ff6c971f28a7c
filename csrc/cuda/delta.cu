/* The gated delta rule, and Mamba-2's scan, as the recurrence they are. A block has a value head of a sample; a thread has a
 * column of its state in registers, DK rows of it, as columns depend on each other in nothing. */
#include "documents.h"
#include "op.h"
#include "reduce.h"

namespace {

enum { CHUNK = 64, MOST = 256 }; /* device.DeltaChunk; most channels of a key head */

/* A value head of a sample. */
struct delta_head {
  int64_t sample, head, heads, keys, batch, s, dk, dv;
  float rate, bias, skip; /* -e^ALog, DtBias, Skip */
  bool space;             /* StateSpace */
};

template <typename T> __device__ inline delta_head head_of(const mt_delta_rule_forward_args &a, int64_t tile) {
  delta_head h;
  h.heads = a.v.shape[1], h.keys = a.q.shape[1], h.batch = a.batch, h.s = a.q.shape[0] / a.batch, h.dk = last(a.q), h.dv = last(a.v);
  h.sample = tile / h.heads, h.head = tile % h.heads;
  h.rate = -expf(to_float(data_of<T>(a.a_log)[h.head]));
  h.bias = to_float(data_of<T>(a.dt_bias)[h.head]);
  h.space = a.state_space != 0;
  h.skip = h.space ? to_float(data_of<T>(a.skip)[h.head]) : 0;
  return h;
}

/* Whether States has what was before position t, behind its document's first, and where. */
__device__ inline bool saves(const mt_delta_rule_forward_args &a, const delta_head &h, int64_t t) {
  int64_t behind = t - doc_first(a.doc_start, h.sample, t);
  return behind > 0 && behind % CHUNK == 0;
}
__device__ inline float *saved(const mt_delta_rule_forward_args &a, const delta_head &h, int64_t t) {
  return data_of<float>(a.states) + ((h.sample * h.heads + h.head) * a.states.shape[1] + t / CHUNK) * h.dk * h.dv;
}

/* A position's numbers; keep is e^g, 0 where a document begins. In a state space beta is Δ, and `held` says whether a
 * limit clamps it. */
struct delta_step {
  float a, g, keep, beta;
  bool held, space;
};

/* Brings the queries and keys of a token, divided by their lengths but in a state space, into shared memory,
 * zeros behind them, and the token's numbers. Every thread of the block takes part. */
template <typename T, int DK> __device__ inline delta_step step_of(const mt_delta_rule_forward_args &a, const delta_head &h, int64_t token, bool fresh, float *q, float *k) {
  const T *from_q = row_of<T>(a.q, token * h.keys + h.head * h.keys / h.heads), *from_k = row_of<T>(a.k, token * h.keys + h.head * h.keys / h.heads);
  float qq = 0, kk = 0;
  __syncthreads(); /* the last position's have been read */
  for (int i = threadIdx.x; i < DK; i += blockDim.x) {
    q[i] = i < h.dk ? to_float(from_q[i]) : 0, k[i] = i < h.dk ? to_float(from_k[i]) : 0;
    qq += q[i] * q[i], kk += k[i] * k[i];
  }
  delta_step x;
  x.space = h.space, x.held = false;
  x.a = to_float(row_of<T>(a.a, token)[h.head]) + h.bias;
  float dt = fmaxf(x.a, 0) + log1pf(expf(-fabsf(x.a))); /* softplus */
  if (h.space) {
    x.beta = fmaxf(dt, a.dt_min);
    if (a.dt_max > 0) x.beta = fminf(x.beta, a.dt_max);
    x.held = x.beta != dt, dt = x.beta;
  } else {
    block_sums(qq, kk);
    float k_scale = 1 / sqrtf(kk + 1e-6f), q_scale = 1 / sqrtf(qq + 1e-6f) / sqrtf((float)h.dk);
    for (int i = threadIdx.x; i < DK; i += blockDim.x) q[i] *= q_scale, k[i] *= k_scale;
    x.beta = 1 / (1 + expf(-to_float(row_of<T>(a.b, token)[h.head])));
  }
  x.g = h.rate * dt;
  x.keep = fresh ? 0 : expf(x.g);
  __syncthreads();
  return x;
}

/* A column of the state moves over a position; it returns what the rule has not known of v, in a state space v. */
template <int DK> __device__ inline float move(float (&state)[DK], const float *k, const delta_step &x, float v) {
  float known = 0;
  if (x.keep == 0) { /* nothing passes a document's beginning, not even infinity */
#pragma unroll
    for (int i = 0; i < DK; i++) state[i] = 0;
  }
  if (!x.space) {
#pragma unroll
    for (int i = 0; i < DK; i++) known += k[i] * state[i];
  }
  float rest = v - x.keep * known, delta = x.beta * rest;
#pragma unroll
  for (int i = 0; i < DK; i++) state[i] = state[i] * x.keep + k[i] * delta;
  return rest;
}

template <typename T, int DK> __global__ void __launch_bounds__(MOST) delta_rule_forward_kernel(const __grid_constant__ mt_delta_rule_forward_args a) {
  MT_SHARED(float[DK], q);
  MT_SHARED(float[DK], k);
  delta_head h = head_of<T>(a, blockIdx.x);
  int64_t c = (int64_t)blockIdx.y * blockDim.x + threadIdx.x;
  float state[DK] = {};
  for (int64_t t = 0; t < h.s; t++) {
    int64_t token = t * h.batch + h.sample, row = token * h.heads + h.head;
    delta_step x = step_of<T, DK>(a, h, token, t == doc_first(a.doc_start, h.sample, t), q, k);
    if (c >= h.dv) continue;
    if (given(a.states) && saves(a, h, t)) {
      float *to = saved(a, h, t) + c;
#pragma unroll
      for (int i = 0; i < DK; i++)
        if (i < h.dk) to[i * h.dv] = state[i];
    }
    float v = to_float(row_of<T>(a.v, row)[c]), o = h.skip * v;
    move<DK>(state, k, x, v);
#pragma unroll
    for (int i = 0; i < DK; i++) o += q[i] * state[i];
    row_of<T>(a.o, row)[c] = from_float<T>(o);
  }
}

template <typename T, int DK> __global__ void __launch_bounds__(MOST) paged_delta_rule_kernel(const __grid_constant__ mt_paged_delta_rule_args p, const __grid_constant__ mt_delta_rule_forward_args a) {
  MT_SHARED(float[DK], q);
  MT_SHARED(float[DK], k);
  delta_head h = head_of<T>(a, blockIdx.x);
  int64_t c = (int64_t)blockIdx.y * blockDim.x + threadIdx.x, columns = last(p.states);
  float *states = data_of<float>(p.states) + h.head * p.states.stride[1] + c;
  for (int64_t row = 0; row < h.s; row++) {
    int64_t t = doc_position(p.rows, row);
    delta_step x = step_of<T, DK>(a, h, row, t == 0, q, k);
    if (c >= h.dv) continue;
    const float *from = states + (t == 0 ? 0 : doc_block(p.tables, p.rows, row, t - 1) * p.states.stride[0]);
    float *to = states + doc_block(p.tables, p.rows, row, t) * p.states.stride[0], state[DK];
    float v = to_float(row_of<T>(a.v, row * h.heads + h.head)[c]), o = h.skip * v;
#pragma unroll
    for (int i = 0; i < DK; i++) state[i] = t > 0 && i < h.dk ? from[i * columns] : 0;
    move<DK>(state, k, x, v);
#pragma unroll
    for (int i = 0; i < DK; i++) {
      o += q[i] * state[i];
      if (i < h.dk) to[i * columns] = state[i];
    }
    row_of<T>(a.o, row * h.heads + h.head)[c] = from_float<T>(o);
  }
}

/* ---- backward ---- */

/* Scratch: the sums of ALog, DtBias and Skip by tile [SUMS]; by tile and position the gradients of the normed
 * queries and of the keys [s, dk]; by tile the states of a chunk, before its positions and behind the
 * last, and its rests [CHUNK + 1, DK + 1, threads]. */
enum { SUMS = 3 };
struct delta_room {
  double *sums;
  float *dq, *dk, *states;
};

__host__ __device__ inline int64_t tiles_of(const mt_delta_rule_forward_args &a) { return a.batch * a.v.shape[1]; }
__host__ __device__ inline int64_t columns_of(const mt_delta_rule_forward_args &a) { return (last(a.v) + 31) / 32 * 32; }
__host__ __device__ inline int64_t gradients_of(const mt_delta_rule_forward_args &a) { return tiles_of(a) * (a.q.shape[0] / a.batch) * last(a.q); }

__host__ __device__ inline delta_room room_of(const mt_delta_rule_forward_args &a, void *scratch) {
  delta_room r;
  r.sums = static_cast<double *>(scratch);
  r.dq = reinterpret_cast<float *>(r.sums + SUMS * tiles_of(a));
  r.dk = r.dq + gradients_of(a);
  r.states = r.dk + gradients_of(a);
  return r;
}

inline int rows_of_state(int64_t dk) { return dk <= 16 ? 16 : dk <= 64 ? 64 : dk <= 128 ? 128 : MOST; }

/* The states of a chunk again. */
template <typename T, int DK> __device__ inline void chunk_again(const mt_delta_rule_forward_args &a, const delta_head &h, float *states, int64_t from, int64_t to, float *q, float *k) {
  int64_t n = blockDim.x, c = threadIdx.x;
  float state[DK];
  bool kept = saves(a, h, from);
#pragma unroll
  for (int i = 0; i < DK; i++) state[i] = kept && c < h.dv && i < h.dk ? saved(a, h, from)[i * h.dv + c] : 0;
  for (int64_t t = from; t <= to; t++) {
    float *at = states + (t - from) * (DK + 1) * n + c;
#pragma unroll
    for (int i = 0; i < DK; i++) at[i * n] = state[i];
    if (t == to) break;
    int64_t token = t * h.batch + h.sample;
    delta_step x = step_of<T, DK>(a, h, token, t == doc_first(a.doc_start, h.sample, t), q, k);
    at[DK * n] = move<DK>(state, k, x, c < h.dv ? to_float(row_of<T>(a.v, token * h.heads + h.head)[c]) : 0);
  }
}

/* One position: ds, the column of the gradient of the state behind it, becomes that of the state
 * before. parts [warps][2][DK] is shared; after it the block has dq and dk of the position in part 0. */
template <typename T, int DK>
__device__ inline void back(const mt_delta_rule_backward_args &a, const delta_head &h, const delta_step &x, const float *states, float (&ds)[DK], const float *q, const float *k, float *parts, int64_t token, float *beta_sum, float *keep_sum, float *skip_sum) {
  int64_t n = blockDim.x, c = threadIdx.x, row = token * h.heads + h.head;
  const float *before = states + c, *behind = before + (DK + 1) * n;
  float d_o = c < h.dv ? to_float(row_of<T>(a.d_o, row)[c]) : 0, rest = before[DK * n], drest = 0, dkeep = 0;
#pragma unroll
  for (int i = 0; i < DK; i++) {
    ds[i] += q[i] * d_o;
    drest += k[i] * ds[i];
  }
  *beta_sum = drest * rest, *skip_sum = d_o * rest; /* in a state space rest is v */
  drest *= x.beta;
  if (c < h.dv) row_of<T>(a.dv, row)[c] = from_float<T>(drest + h.skip * d_o);
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (int i = 0; i < DK; i++) {
    float old = x.keep == 0 ? 0 : before[i * n];
    float known = x.space ? 0 : old; /* a state space takes nothing from v */
    float to_q = warp_sum(behind[i * n] * d_o), to_k = warp_sum(x.beta * ds[i] * rest - x.keep * known * drest);
    if (lane == 0) parts[warp * 2 * DK + i] = to_q, parts[warp * 2 * DK + DK + i] = to_k;
    float moved = x.keep == 0 ? 0 : x.space ? ds[i] : ds[i] - k[i] * drest;
    dkeep += moved * old;
    ds[i] = moved * x.keep;
  }
  *keep_sum = dkeep;
}

template <typename T, int DK> __global__ void __launch_bounds__(MOST) delta_rule_backward_kernel(const __grid_constant__ mt_delta_rule_backward_args a, delta_room r) {
  // A block is one head of one sample; a thread is one value channel, with its column of the state [dk, dv].
  MT_SHARED(float[DK], q);
  MT_SHARED(float[DK], k);
  MT_SHARED(float[MOST / 32 * 2 * DK], parts);
  const mt_delta_rule_forward_args &f = a.forward;
  delta_head h = head_of<T>(f, blockIdx.x);
  // ds: the column's gradient. states: those of a chunk, and of each of its positions what the rule adds.
  float ds[DK] = {}, *states = r.states + (int64_t)blockIdx.x * (CHUNK + 1) * (DK + 1) * blockDim.x;
  double log_sum = 0, bias_sum = 0, skip_total = 0;
  // Chunks from last to first, as forward kept states at their starts only; inside, positions from last to first.
  for (int64_t to = h.s, from; to > 0; to = from) {
    from = to - 1 - (to - 1 - doc_first(f.doc_start, h.sample, to - 1)) % CHUNK;
    chunk_again<T, DK>(f, h, states, from, to, q, k);
    for (int64_t t = to - 1; t >= from; t--) {
      int64_t token = t * h.batch + h.sample;
      float dbeta, dkeep, dskip;
      delta_step x = step_of<T, DK>(f, h, token, t == doc_first(f.doc_start, h.sample, t), q, k);
      back<T, DK>(a, h, x, states + (t - from) * (DK + 1) * blockDim.x, ds, q, k, parts, token, &dbeta, &dkeep, &dskip);
      block_sums(dbeta, dkeep);
      if (h.space) dskip = block_sum(dskip);
      // dq and dk [dk] of this value head, summed over warps; a later kernel sums over the value heads of a key head.
      int64_t at = ((int64_t)blockIdx.x * h.s + t) * h.dk;
      for (int i = threadIdx.x; i < h.dk; i += blockDim.x) {
        float dq = 0, dk = 0;
        for (int w = 0; w < (int)blockDim.x / 32; w++) dq += parts[w * 2 * DK + i], dk += parts[w * 2 * DK + DK + i];
        r.dq[at + i] = dq, r.dk[at + i] = dk;
      }
      // keep = exp(g), g = -exp(A_log)·Δ, Δ = softplus(a + dt_bias); beta = sigmoid(b), in a state space Δ.
      float dg = dkeep * x.keep, ddt = dg * h.rate;
      if (h.space) ddt = x.held ? 0 : ddt + dbeta;
      float da = ddt / (1 + expf(-x.a));
      log_sum += dg * x.g, bias_sum += da, skip_total += dskip;
      if (threadIdx.x == 0) {
        row_of<T>(a.da, token)[h.head] = from_float<T>(da);
        if (!h.space) row_of<T>(a.db, token)[h.head] = from_float<T>(dbeta * x.beta * (1 - x.beta));
      }
    }
  }
  double *sums = r.sums + SUMS * blockIdx.x;
  if (threadIdx.x == 0) sums[0] = log_sum, sums[1] = bias_sum, sums[2] = skip_total;
}

/* dx of a row from the gradients of x/|x| of several heads, step apart, times scale; in a state space of those of x.
 * A warp. */
template <typename T> __device__ inline void unit_back(T *dx, const T *x, const float *from, int64_t step, int64_t heads, int64_t n, float scale, bool space) {
  float squares = 0, along = 0;
  for (int64_t i = threadIdx.x; i < n; i += 32) {
    float d = 0, v = to_float(x[i]);
    for (int64_t j = 0; j < heads; j++) d += from[j * step + i];
    squares += v * v, along += d * v;
  }
  squares = warp_sum(squares), along = warp_sum(along);
  float inverse = 1 / sqrtf(squares + 1e-6f);
  if (space) inverse = scale = 1, along = 0;
  for (int64_t i = threadIdx.x; i < n; i += 32) {
    float d = 0;
    for (int64_t j = 0; j < heads; j++) d += from[j * step + i];
    dx[i] = from_float<T>((d - along * inverse * inverse * to_float(x[i])) * inverse * scale);
  }
}

/* A warp a row of queries and keys: sums over the value heads that share it. */
template <typename T> __global__ void delta_keys_kernel(const __grid_constant__ mt_delta_rule_backward_args a, delta_room r) {
  const mt_delta_rule_forward_args &f = a.forward;
  int64_t keys = f.q.shape[1], heads = f.v.shape[1] / keys, s = f.q.shape[0] / f.batch, dk = last(f.q), row = blockIdx.x;
  int64_t key = row % keys, sample = row / keys % f.batch, t = row / keys / f.batch, step = s * dk;
  int64_t at = ((sample * f.v.shape[1] + key * heads) * s + t) * dk;
  unit_back<T>(row_of<T>(a.dq, row), row_of<T>(f.q, row), r.dq + at, step, heads, dk, 1 / sqrtf((float)dk), f.state_space != 0);
  unit_back<T>(row_of<T>(a.dk, row), row_of<T>(f.k, row), r.dk + at, step, heads, dk, 1, f.state_space != 0);
}

/* Sums over samples, a thread a head. */
__global__ void delta_sums_kernel(const __grid_constant__ mt_delta_rule_backward_args a, delta_room r) {
  int64_t heads = a.forward.v.shape[1], h = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (h >= heads) return;
  double log_sum = 0, bias_sum = 0, skip_sum = 0;
  for (int64_t sample = 0; sample < a.forward.batch; sample++) {
    const double *sums = r.sums + SUMS * (sample * heads + h);
    log_sum += sums[0], bias_sum += sums[1], skip_sum += sums[2];
  }
  data_of<float>(a.da_log)[h] += (float)log_sum;
  data_of<float>(a.ddt_bias)[h] += (float)bias_sum;
  if (a.forward.state_space) data_of<float>(a.dskip)[h] += (float)skip_sum;
}

/* Whether the kernels have the shape; else ctx->error says so. */
bool fits(mt_context *ctx, const mt_delta_rule_forward_args &a, bool one_block) {
  if (last(a.q) <= MOST && (!one_block || last(a.v) <= MOST)) return true;
  snprintf(ctx->error, sizeof ctx->error, "delta_rule: heads of %lld and %lld channels are too wide for --device cuda, which has kernels for %d; use --device cpu", (long long)last(a.q), (long long)last(a.v), (int)MOST);
  return false;
}

} // namespace

/* Runs a statement with DK constant. */
#define BY_ROWS(dk, ...)                                          \
  switch (rows_of_state(dk)) {                                    \
  case 16: { const int DK = 16; __VA_ARGS__; break; }             \
  case 64: { const int DK = 64; __VA_ARGS__; break; }             \
  case 128: { const int DK = 128; __VA_ARGS__; break; }           \
  default: { const int DK = MOST; __VA_ARGS__; }                  \
  }

static void delta_rule_forward(mt_context *ctx, const mt_delta_rule_forward_args &a, void *) {
  if (length(a.v) == 0 || !fits(ctx, a, false)) return;
  int64_t threads = at_most(columns_of(a), 64);
  dim3 grid((unsigned)tiles_of(a), (unsigned)ceil_div(last(a.v), threads));
  MT_BY_TYPE(a.q.dtype, BY_ROWS(last(a.q), MT_LAUNCH((delta_rule_forward_kernel<T, DK>), grid, (unsigned)threads, 0, stream_of(ctx), a)))
}

static void paged_delta_rule(mt_context *ctx, const mt_paged_delta_rule_args &p, void *) {
  mt_delta_rule_forward_args a = {};
  a.o = p.o, a.q = p.q, a.k = p.k, a.v = p.v, a.a = p.a, a.b = p.b, a.a_log = p.a_log, a.dt_bias = p.dt_bias, a.skip = p.skip, a.batch = 1, a.state_space = p.state_space, a.dt_min = p.dt_min, a.dt_max = p.dt_max;
  if (length(a.v) == 0 || !fits(ctx, a, false)) return;
  int64_t threads = at_most(columns_of(a), 64);
  dim3 grid((unsigned)tiles_of(a), (unsigned)ceil_div(last(a.v), threads));
  MT_BY_TYPE(a.q.dtype, BY_ROWS(last(a.q), MT_LAUNCH((paged_delta_rule_kernel<T, DK>), grid, (unsigned)threads, 0, stream_of(ctx), p, a)))
}

static int64_t backward_bytes(const void *args) {
  const mt_delta_rule_forward_args &a = static_cast<const mt_delta_rule_backward_args *>(args)->forward;
  int64_t states = (CHUNK + 1) * (rows_of_state(last(a.q)) + 1) * columns_of(a);
  return tiles_of(a) * SUMS * (int64_t)sizeof(double) + (2 * gradients_of(a) + tiles_of(a) * states) * (int64_t)sizeof(float);
}

static void delta_rule_backward(mt_context *ctx, const mt_delta_rule_backward_args &a, void *scratch) {
  const mt_delta_rule_forward_args &f = a.forward;
  if (length(f.v) == 0 || !fits(ctx, f, true)) return;
  delta_room r = room_of(f, scratch);
  MT_BY_TYPE(f.q.dtype, {
    BY_ROWS(last(f.q), MT_LAUNCH((delta_rule_backward_kernel<T, DK>), (unsigned)tiles_of(f), (unsigned)columns_of(f), 0, stream_of(ctx), a, r))
    MT_LAUNCH(delta_keys_kernel<T>, (unsigned)rows(f.q), 32, 0, stream_of(ctx), a, r);
  })
  MT_LAUNCH(delta_sums_kernel, blocks_for(f.v.shape[1], 128), 128, 0, stream_of(ctx), a, r);
}

MT_OP(delta_rule_forward, nullptr)
MT_OP(paged_delta_rule, nullptr)
MT_OP(delta_rule_backward, backward_bytes)
