/* A capacity for every expert: choices beyond it are dropped. Choices are sorted by expert,
 * then, where an expert has too many, by weight. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cpu.h"
#include "tile.h"

typedef struct { float weight; int32_t at; } choice;

/* Largest weight first, NaN last; ties in their order. */
static int before(const void *x, const void *y) {
  const choice *a = x, *b = y;
  if (a->weight > b->weight || (isnan(b->weight) && !isnan(a->weight))) return -1;
  if (a->weight < b->weight || (isnan(a->weight) && !isnan(b->weight))) return 1;
  return a->at < b->at ? -1 : a->at > b->at;
}

static int64_t one_tile(const void *args, int32_t phase) { return phase == 0; }

static int64_t scratch_bytes(const void *args) {
  const mt_router_drop_args *a = args;
  return mt_len(&a->experts) * (int64_t)sizeof(choice) + (a->num_experts + 1) * (int64_t)sizeof(int64_t);
}

static int32_t drop(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_router_drop_args *a = args;
  const int32_t *experts = a->experts.data;
  const float *weights = a->weights.data;
  int32_t *kept = a->kept.data;
  int64_t n = mt_len(&a->experts), *ends = scratch; /* of each expert's choices, which follow one another */
  choice *sorted = (choice *)(ends + a->num_experts + 1);
  memset(ends, 0, (a->num_experts + 1) * sizeof *ends);
  for (int64_t i = 0; i < n; i++)
    if (experts[i] >= 0) ends[experts[i] + 1]++;
  for (int64_t e = 0; e < a->num_experts; e++) ends[e + 1] += ends[e];
  for (int64_t i = 0; i < n; i++) {
    kept[i] = experts[i];
    if (experts[i] >= 0) sorted[ends[experts[i]]++] = (choice){weights[i], (int32_t)i};
  }
  for (int64_t e = 0, from = 0; e < a->num_experts; from = ends[e++]) {
    if (ends[e] - from <= a->capacity) continue;
    if (!a->by_position) qsort(sorted + from, ends[e] - from, sizeof *sorted, before);
    for (int64_t i = from + a->capacity; i < ends[e]; i++) kept[sorted[i].at] = -1;
  }
  return 0;
}

const mt_op mt_cpu_router_drop = {one_tile, scratch_bytes, drop};
