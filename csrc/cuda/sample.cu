/* A token for each row of logits, by a block. Weights are integers, so that threads may
 * add them in any order; an id is found by its rank's bits, eight at a time. */
#include "op.h"
#include "reduce.h"

#define MT_SAMPLE_ON __device__
#include "../device/sample.h"

namespace {

enum { THREADS = 512, BINS = 256 };
typedef unsigned long long whole; /* what atomicAdd and the shuffles know */

struct placed {
  float x;
  int id; /* −1: none */

  __device__ bool before(const placed &o) const { return id >= 0 && (o.id < 0 || x > o.x || (x == o.x && id < o.id)); }
};

/* The first in rank of all threads'. */
__device__ inline placed block_first(placed p) {
  MT_SHARED(float[32], xs);
  MT_SHARED(int[32], ids);
  for (int by = 16; by > 0; by /= 2) {
    placed o = {__shfl_xor_sync(ALL_LANES, p.x, by), __shfl_xor_sync(ALL_LANES, p.id, by)};
    if (o.before(p)) p = o;
  }
  if (threadIdx.x % 32 == 0) xs[threadIdx.x / 32] = p.x, ids[threadIdx.x / 32] = p.id;
  __syncthreads();
  for (int w = 0; w < THREADS / 32; w++) {
    placed o = {xs[w], ids[w]};
    if (o.before(p)) p = o;
  }
  __syncthreads();
  return p;
}

/* The first in rank behind another; behind none: of all. */
__device__ inline placed first_behind(const float *x, int n, placed last) {
  placed p = {0, -1};
  for (int i = threadIdx.x; i < n; i += THREADS) {
    placed o = {x[i], i};
    if ((last.id < 0 || last.before(o)) && o.before(p)) p = o;
  }
  return block_first(p);
}

/* A row on its way. */
struct sampled {
  const float *x;
  int n;
  float top;
  double temperature;

  __device__ whole weight(int i) const { return mt_weight(((double)x[i] - top) / temperature); }

  /* What those weigh that weigh so much each. */
  __device__ whole at_least(double least) const {
    whole sum = 0;
    for (int i = threadIdx.x; i < n; i += THREADS) {
      whole w = weight(i);
      if ((double)w >= least) sum += w;
    }
    return block_sum(sum);
  }

  struct found {
    int id;
    whole through; /* the weight of the ids up to it */
  };

  /* The first id in rank that brings the count, or the sum of weights, to a goal that all
   * together reach. */
  __device__ found first(bool counted, whole goal) const;
};

__device__ sampled::found sampled::first(bool counted, whole goal) const {
  MT_SHARED(whole[BINS], counts);
  MT_SHARED(whole[BINS], weights);
  MT_SHARED(whole[2], so_far); /* counted or weighed, as the goal is; weighed */
  MT_SHARED(unsigned, bin);
  MT_SHARED(int[THREADS], before);
  MT_SHARED(found, result);
  unsigned known = 0, mask = 0;
  if (threadIdx.x < 2) so_far[threadIdx.x] = 0;
  for (int shift = 24; shift >= 0; shift -= 8) {
    if (threadIdx.x < BINS) counts[threadIdx.x] = weights[threadIdx.x] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += THREADS) {
      unsigned rank = mt_rank(x[i]);
      if ((rank & mask) != known) continue;
      atomicAdd(&counts[rank >> shift & (BINS - 1)], (whole)1);
      atomicAdd(&weights[rank >> shift & (BINS - 1)], weight(i));
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      unsigned b = BINS - 1;
      for (; b > 0; b--) {
        whole more = counted ? counts[b] : weights[b];
        if (so_far[0] + more >= goal) break;
        so_far[0] += more;
        so_far[1] += weights[b];
      }
      bin = b;
    }
    __syncthreads();
    known |= bin << shift;
    mask |= (unsigned)(BINS - 1) << shift;
  }
  /* What is left has one rank and one weight: which of them in order is known now. */
  int each = (n + THREADS - 1) / THREADS, from = threadIdx.x * each, to = from + each < n ? from + each : n, mine = 0;
  for (int i = from; i < to; i++) mine += mt_rank(x[i]) == known;
  before[threadIdx.x] = mine;
  __syncthreads();
  if (threadIdx.x == 0) {
    int sum = 0;
    for (int t = 0; t < THREADS; t++) {
      int here = before[t];
      before[t] = sum;
      sum += here;
    }
  }
  __syncthreads();
  int at = before[threadIdx.x];
  for (int i = from; i < to; i++) {
    if (mt_rank(x[i]) != known) continue;
    whole one = weight(i), step = counted ? 1 : one, passed = so_far[0] + at * step;
    if (passed < goal && passed + step >= goal) result = {i, so_far[1] + (at + 1) * one};
    at++;
  }
  __syncthreads();
  found f = result;
  __syncthreads();
  return f;
}

__device__ inline int choose(sampled &s, const int32_t *rule, const double *number) {
  placed best = first_behind(s.x, s.n, {0, -1});
  double top_p = number[1], min_p = number[2];
  s.top = best.x;
  s.temperature = number[0];
  if (s.temperature == 0 || isinf(best.x)) return best.id;
  whole all = rule[1] > 0 && rule[1] < s.n ? s.first(true, rule[1]).through : s.at_least(0), left = all;
  if (min_p > 0) {
    whole through = s.at_least(min_p * 0x1p44);
    left = through < left ? through : left;
  }
  if (top_p > 0 && top_p < 1) {
    whole goal = (whole)(top_p * (double)all), through = s.first(false, goal ? goal : 1).through;
    left = through < left ? through : left;
  }
  return s.first(false, mt_share((uint32_t)rule[2], left) + 1).id;
}

/* The row as the choice sees it: its copy, where it has edits. */
__device__ inline const float *edited(const mt_sample_args &a, int64_t row, const float *raw, float *copies) {
  if (!given(a.edit_ids)) return raw;
  const int32_t *rule = data_of<int32_t>(a.rules) + 4 * row, *id = data_of<int32_t>(a.edit_ids);
  const float *value = data_of<float>(a.edit_values);
  int64_t to = row + 1 < a.rules.shape[0] ? rule[7] : a.edit_ids.shape[0];
  if (rule[3] == to) return raw;
  float *copy = copies + row * a.columns;
  for (int i = threadIdx.x; i < a.columns; i += THREADS) copy[i] = raw[i];
  __syncthreads();
  for (int64_t i = rule[3] + threadIdx.x; i < to; i += THREADS)
    copy[id[i]] = mt_edited(raw[id[i]], value[2 * i], value[2 * i + 1]);
  __syncthreads();
  return copy;
}

__global__ void sample_kernel(const __grid_constant__ mt_sample_args a, float *copies) {
  int64_t row = blockIdx.x;
  const float *raw = row_of<float>(a.logits, row);
  const int32_t *rule = data_of<int32_t>(a.rules) + 4 * row;
  int32_t *id = data_of<int32_t>(a.ids) + row;
  int n = (int)a.columns, odd = 0;
  /* A row with NaN or infinity has no token. */
  for (int i = threadIdx.x; i < n; i += THREADS) odd += !(raw[i] - raw[i] == 0);
  if (block_sum(odd)) {
    if (threadIdx.x == 0) *id = -1;
    return;
  }
  /* The likeliest tokens, and what log-probabilities are made of, from the row as it is. */
  sampled s = {raw, n, 0, 1};
  placed last = {0, -1};
  for (int64_t k = 0, most = given(a.best) ? a.best.shape[1] : 0; k < most; k++) {
    if (k < n) last = first_behind(raw, n, last);
    if (threadIdx.x > 0) continue;
    data_of<int32_t>(a.best)[row * most + k] = k < n ? last.id : -1;
    data_of<float>(a.best_logits)[row * most + k] = k < n ? last.x : 0;
  }
  if (given(a.max)) {
    s.top = first_behind(raw, n, {0, -1}).x;
    whole sum = s.at_least(0);
    if (threadIdx.x == 0) data_of<float>(a.max)[row] = s.top, data_of<uint64_t>(a.sum)[row] = sum;
  }
  /* The rule's token, or one drawn after penalties and biases. */
  int taken = rule[0];
  if (taken < 0) {
    s.x = edited(a, row, raw, copies);
    taken = choose(s, rule, data_of<double>(a.numbers) + 3 * row);
  }
  if (threadIdx.x == 0) *id = taken, data_of<float>(a.chosen)[row] = raw[taken];
}

} // namespace

static int64_t sample_bytes(const void *args) {
  const mt_sample_args *a = static_cast<const mt_sample_args *>(args);
  return given(a->edit_ids) ? a->logits.shape[0] * a->columns * 4 : 0;
}

static void sample(mt_context *ctx, const mt_sample_args &a, void *scratch) {
  unsigned rows = (unsigned)a.logits.shape[0];
  if (rows > 0) MT_LAUNCH(sample_kernel, rows, THREADS, 0, stream_of(ctx), a, (float *)scratch);
}

MT_OP(sample, sample_bytes)
