/* Tokens' choices sorted by group, and numbers moved between choices and slots. No atomics:
 * a block walks all choices for one group, in their order. */
#include "reduce.h"
#include "spread.h"

namespace {

/* Each choice's group, −1 where it has no slot; clears slots and rows to −1. */
__global__ void groups_kernel(const __grid_constant__ mt_expert_order_args a, int32_t *groups, int64_t n) {
  int64_t i = (int64_t)blockIdx.x * SPREAD + threadIdx.x, k = last(a.experts), count = a.offsets.shape[0] - 1;
  if (i >= n) return;
  const int32_t *experts = data_of<int32_t>(a.experts);
  auto group_of = [&](int64_t at) {
    int64_t from = experts[at] - a.start;
    return from >= 0 && from < count * a.width ? from / a.width : -1;
  };
  int64_t g = group_of(i);
  for (int64_t j = i / k * k; a.once && g >= 0 && j < i; j++)
    if (group_of(j) == g) g = -1;
  groups[i] = (int32_t)g;
  data_of<int32_t>(a.rows)[i] = data_of<int32_t>(a.slots)[i] = -1;
}

__global__ void count_kernel(const int32_t *groups, int32_t *counts, int64_t n) {
  int count = 0;
  for (int64_t i = threadIdx.x; i < n; i += SPREAD) count += groups[i] == (int32_t)blockIdx.x;
  count = block_sum(count);
  if (threadIdx.x == 0) counts[blockIdx.x] = count;
}

/* One thread: there are few groups. */
__global__ void offsets_kernel(int32_t *offsets, const int32_t *counts, int64_t groups) {
  int32_t end = offsets[0] = 0;
  for (int64_t g = 0; g < groups; g++) offsets[g + 1] = end += counts[g];
}

/* Choice number i in the order in which groups have them: that of tokens, by leaves where there are any (op_experts.go). */
__device__ inline int64_t choice_in_order(const mt_expert_order_args &a, int64_t i) {
  if (a.chunk == 0) return i;
  int64_t k = last(a.experts), token = i / k, chunk = a.chunk, within = token % (chunk * a.batch);
  return (token - within + within % chunk * a.batch + within / chunk) * k + i % k;
}

__global__ void place_kernel(const __grid_constant__ mt_expert_order_args a, const int32_t *groups, int64_t n) {
  MT_SHARED(int[SPREAD / 32], counts);
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int64_t k = last(a.experts), next = data_of<int32_t>(a.offsets)[blockIdx.x], end = data_of<int32_t>(a.offsets)[blockIdx.x + 1];
  for (int64_t from = 0; from < n && next < end; from += SPREAD) {
    int64_t i = from + threadIdx.x < n ? choice_in_order(a, from + threadIdx.x) : n;
    bool mine = i < n && groups[i] == (int32_t)blockIdx.x;
    unsigned votes = __ballot_sync(ALL_LANES, mine);
    if (lane == 0) counts[warp] = __popc(votes);
    __syncthreads();
    int64_t place = next + __popc(votes & ((1u << lane) - 1));
    for (int w = 0; w < SPREAD / 32; w++) {
      if (w < warp) place += counts[w];
      next += counts[w];
    }
    if (mine) {
      data_of<int32_t>(a.slots)[i] = (int32_t)place;
      data_of<int32_t>(a.rows)[place] = (int32_t)(i / k);
    }
    __syncthreads(); /* before the counts change */
  }
}

__global__ void empty_kernel(int32_t *placed, int64_t n) {
  int64_t i = (int64_t)blockIdx.x * SPREAD + threadIdx.x;
  if (i < n) placed[i] = 0;
}

/* Numbers of 32 bits, whichever they are. */
__global__ void choices_kernel(const __grid_constant__ mt_place_choices_args a, int64_t n) {
  int64_t i = (int64_t)blockIdx.x * SPREAD + threadIdx.x;
  if (i >= n) return;
  int32_t slot = data_of<int32_t>(a.slots)[i], *placed = data_of<int32_t>(a.placed), *chosen = data_of<int32_t>(a.chosen);
  bool here = slot >= 0 && slot < a.placed.shape[0];
  if (a.back) chosen[i] = here ? placed[slot] : 0;
  else if (here) placed[slot] = chosen[i];
}

} // namespace

static void expert_order(mt_context *ctx, const mt_expert_order_args &a, void *scratch) {
  int64_t n = length(a.experts), count = a.offsets.shape[0] - 1;
  int32_t *groups = static_cast<int32_t *>(scratch), *counts = groups + n;
  cudaStream_t stream = stream_of(ctx);
  if (n > 0) MT_LAUNCH(groups_kernel, blocks_for(n, SPREAD), SPREAD, 0, stream, a, groups, n);
  MT_LAUNCH(count_kernel, (unsigned)count, SPREAD, 0, stream, groups, counts, n);
  MT_LAUNCH(offsets_kernel, 1, 1, 0, stream, data_of<int32_t>(a.offsets), counts, count);
  if (n > 0) MT_LAUNCH(place_kernel, (unsigned)count, SPREAD, 0, stream, a, groups, n);
}

static int64_t order_bytes(const void *args) {
  const mt_expert_order_args &a = *static_cast<const mt_expert_order_args *>(args);
  return (length(a.experts) + a.offsets.shape[0]) * (int64_t)sizeof(int32_t);
}

static void place_choices(mt_context *ctx, const mt_place_choices_args &a, void *) {
  int64_t n = length(a.slots), places = a.placed.shape[0];
  if (!a.back && places > 0) MT_LAUNCH(empty_kernel, blocks_for(places, SPREAD), SPREAD, 0, stream_of(ctx), data_of<int32_t>(a.placed), places);
  if (n > 0) MT_LAUNCH(choices_kernel, blocks_for(n, SPREAD), SPREAD, 0, stream_of(ctx), a, n);
}

MT_OP(expert_order, order_bytes)
MT_OP(place_choices, nullptr)
