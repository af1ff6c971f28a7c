/* Tokens' choices sorted by group, and numbers moved between choices and slots: linear
 * passes over integers, in their order. */
#include <string.h>

#include "cpu.h"
#include "tile.h"

static int64_t one_tile(const void *args, int32_t phase) { return phase == 0; }

static int64_t order_scratch(const void *args) { return ((const mt_expert_order_args *)args)->offsets.shape[0] * (int64_t)sizeof(int32_t); }

/* The group of a token's choice j; −1: it has no slot. earlier: the groups of those before it. */
static int32_t group_of(const mt_expert_order_args *a, int32_t expert, const int32_t *earlier, int64_t j) {
  int64_t from = expert - a->start, groups = a->offsets.shape[0] - 1;
  if (from < 0 || from >= groups * a->width) return -1;
  int32_t g = (int32_t)(a->width == 1 ? from : from / a->width);
  for (int64_t i = 0; a->once && i < j; i++)
    if (earlier[i] == g) return -1;
  return g;
}

/* Leaves each choice's group in slots, and how many there are behind each group's number in
 * offsets. */
static void count_groups(const mt_expert_order_args *a) {
  const int32_t *experts = a->experts.data;
  int32_t *slots = a->slots.data, *offsets = a->offsets.data;
  int64_t n = mt_len(&a->experts), k = mt_last(&a->experts);
  memset(offsets, 0, a->offsets.shape[0] * sizeof *offsets);
  for (int64_t t = 0; t < n; t += k)
    for (int64_t j = 0; j < k; j++) {
      int32_t g = slots[t + j] = group_of(a, experts[t + j], slots + t, j);
      if (g >= 0) offsets[g + 1]++;
    }
}

/* The row of a token by its position: of a chunk of all samples sample by sample. */
static int64_t row_of(const mt_expert_order_args *a, int64_t token) {
  if (!a->chunk) return token;
  int64_t within = token % ((int64_t)a->chunk * a->batch);
  return token - within + within % a->chunk * a->batch + within / a->chunk;
}

static int32_t order(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_expert_order_args *a = args;
  int32_t *slots = a->slots.data, *rows = a->rows.data, *offsets = a->offsets.data, *next = scratch;
  int64_t n = mt_len(&a->experts), k = mt_last(&a->experts), groups = a->offsets.shape[0] - 1;
  count_groups(a);
  for (int64_t g = 0; g < groups; g++) offsets[g + 1] += offsets[g];
  memcpy(next, offsets, groups * sizeof *next);
  memset(rows + offsets[groups], -1, (n - offsets[groups]) * sizeof *rows);
  for (int64_t token = 0; token * k < n; token++) {
    const int64_t row = row_of(a, token);
    for (int64_t i = row * k; i < row * k + k; i++) {
      if (slots[i] < 0) continue;
      slots[i] = next[slots[i]]++;
      rows[slots[i]] = (int32_t)row;
    }
  }
  return 0;
}

const mt_op mt_cpu_expert_order = {one_tile, order_scratch, order};

/* Numbers of 32 bits, whichever they are. */
static int32_t place(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_place_choices_args *a = args;
  const int32_t *slots = a->slots.data;
  int32_t *placed = a->placed.data, *chosen = a->chosen.data;
  int64_t n = mt_len(&a->slots), places = a->placed.shape[0];
  if (!a->back) memset(placed, 0, places * sizeof *placed);
  for (int64_t i = 0; i < n; i++) {
    int here = slots[i] >= 0 && slots[i] < places;
    if (a->back) chosen[i] = here ? placed[slots[i]] : 0;
    else if (here) placed[slots[i]] = chosen[i];
  }
  return 0;
}

const mt_op mt_cpu_place_choices = {one_tile, NULL, place};
