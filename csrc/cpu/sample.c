/* A token for each row of logits. A row is a tile's; ids are ranked no further than the choice
 * asks for: those of one stretch of ranks are found by their upper bits, then among these. */
#ifndef MT_ISA
#define MT_KERNELS "sample.c"
#include <math.h>

#include "../device/sample.h"
#include "context.h"
#include "isa.h"

static int64_t tiles(const void *args, int32_t phase) {
  const mt_sample_args *a = args;
  return phase == 0 ? a->logits.shape[0] : 0;
}

MT_OP(sample, tiles, NULL)
#else

enum { K(BINS) = 2048, K(LEVELS) = 3 }; /* of 11, 11 and 10 bits */

/* A row on its way. */
typedef struct {
  const float *x;
  int64_t n;
  uint64_t *weight;  /* [n] */
  int32_t *found;    /* [n]: ids whose rank begins with the bits that are known */
  struct { uint64_t count, weight; } bin[K(BINS)];
} K(sampled);

static int64_t K(highest)(const float *x, int64_t n) {
  int64_t whole = n - n % LANES, i = 0;
  vf most = v_set(-INFINITY);
  for (; i < whole; i += LANES) most = v_max(v_load(x, MT_F32, i), most);
  float top = v_largest(most);
  for (; i < n; i++) top = x[i] > top ? x[i] : top;
  for (i = 0; x[i] != top; i++) {}
  return i;
}

/* Infinity and nan times 0 are nan. */
static int32_t K(finite)(const float *x, int64_t n) {
  vf sum = {0};
  V_EACH(n, i, m, sum += v_load_n(x, MT_F32, i, m) * 0;);
  return v_sum(sum) == 0;
}

/* Sets the weights and returns their sum. */
static uint64_t K(weigh)(const K(sampled) *s, float top, double temperature) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < s->n; i++) {
    s->weight[i] = mt_weight(((double)s->x[i] - top) / temperature);
    sum += s->weight[i];
  }
  return sum;
}

/* What those weigh that weigh so much each. */
static uint64_t K(at_least)(const K(sampled) *s, double least) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < s->n; i++) sum += (double)s->weight[i] >= least ? s->weight[i] : 0;
  return sum;
}

/* The first id in rank that brings the count, or the sum of weights, to a goal that all
 * together reach; and the weight of the ids up to it. */
static int64_t K(first)(K(sampled) *s, int32_t counted, uint64_t goal, uint64_t *through) {
  uint64_t so_far = 0, weight = 0;
  int64_t left = s->n;
  for (int level = 0; level < K(LEVELS); level++) {
    int shift = level == 0 ? 21 : level == 1 ? 10 : 0;
    uint32_t bits = level == 2 ? 1023 : 2047;
    memset(s->bin, 0, sizeof s->bin);
    for (int64_t i = 0; i < left; i++) {
      int64_t id = level ? s->found[i] : i;
      uint32_t b = mt_rank(s->x[id]) >> shift & bits;
      s->bin[b].count++;
      s->bin[b].weight += s->weight[id];
    }
    uint32_t b = bits;
    for (;; b--) {
      uint64_t more = counted ? s->bin[b].count : s->bin[b].weight;
      if (b == 0 || so_far + more >= goal) break;
      so_far += more;
      weight += s->bin[b].weight;
    }
    int64_t kept = 0;
    for (int64_t i = 0; i < left; i++) {
      int32_t id = level ? s->found[i] : (int32_t)i;
      s->found[kept] = id;
      kept += (mt_rank(s->x[id]) >> shift & bits) == b;
    }
    left = kept;
  }
  int64_t i = 0; /* what is left has one rank and one weight */
  for (;; i++) {
    so_far += counted ? 1 : s->weight[s->found[i]];
    weight += s->weight[s->found[i]];
    if (i + 1 == left || so_far >= goal) break;
  }
  *through = weight;
  return s->found[i];
}

static int64_t K(choose)(K(sampled) *s, const int32_t *rule, const double *number) {
  int64_t best = K(highest)(s->x, s->n);
  double temperature = number[0], top_p = number[1], min_p = number[2];
  uint64_t left, through, all;
  if (temperature == 0 || isinf(s->x[best])) return best;
  all = K(weigh)(s, s->x[best], temperature);
  if (rule[1] > 0 && rule[1] < s->n) K(first)(s, 1, rule[1], &all);
  left = all;
  if (min_p > 0) {
    through = K(at_least)(s, min_p * 0x1p44);
    left = through < left ? through : left;
  }
  if (top_p > 0 && top_p < 1) {
    uint64_t goal = (uint64_t)(top_p * (double)all);
    K(first)(s, 0, goal ? goal : 1, &through);
    left = through < left ? through : left;
  }
  return K(first)(s, 0, mt_share((uint32_t)rule[2], left) + 1, &through);
}

/* The row as the choice sees it. */
static const float *K(edited)(const mt_sample_args *a, int64_t row, const float *raw, float *room) {
  if (!mt_given(&a->edit_ids)) return raw;
  const int32_t *rule = (const int32_t *)a->rules.data + 4 * row, *id = a->edit_ids.data;
  const float *value = a->edit_values.data;
  int64_t to = row + 1 < a->rules.shape[0] ? rule[7] : a->edit_ids.shape[0];
  if (rule[3] == to) return raw;
  memcpy(room, raw, a->columns * sizeof *room);
  for (int64_t i = rule[3]; i < to; i++) {
    room[id[i]] = mt_edited(raw[id[i]], value[2 * i], value[2 * i + 1]);
  }
  return room;
}

static void K(best)(const mt_sample_args *a, int64_t row, const float *x) {
  int64_t most = a->best.shape[1], n = 0;
  int32_t *id = (int32_t *)a->best.data + row * most;
  float *logit = (float *)a->best_logits.data + row * most;
  for (int64_t i = 0; i < a->columns && most > 0; i++) {
    int64_t at = n;
    if (n == most && !(x[i] > logit[n - 1])) continue;
    if (n == most) at = n - 1;
    else n++;
    for (; at > 0 && x[i] > logit[at - 1]; at--) {
      id[at] = id[at - 1];
      logit[at] = logit[at - 1];
    }
    id[at] = (int32_t)i;
    logit[at] = x[i];
  }
  for (; n < most; n++) id[n] = -1, logit[n] = 0;
}

static int32_t K(sample)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t row) {
  const mt_sample_args *a = args;
  const float *raw = mt_row(&a->logits, row);
  const int32_t *rule = (const int32_t *)a->rules.data + 4 * row;
  int32_t *chosen = (int32_t *)a->ids.data + row;
  *chosen = -1;
  if (!K(finite)(raw, a->columns)) return 0;
  /* Space for a weight and an id of each column, and for an edited copy. */
  K(sampled) *s = (K(sampled) *)mt_cpu_room(ctx, sizeof *s + a->columns * 16);
  if (!s) return 1;
  s->x = raw;
  s->n = a->columns;
  s->weight = (uint64_t *)(s + 1);
  s->found = (int32_t *)(s->weight + s->n);
  /* The likeliest tokens, and what log-probabilities are made of, from the row as it is. */
  if (mt_given(&a->best)) K(best)(a, row, raw);
  if (mt_given(&a->max)) {
    float top = raw[K(highest)(raw, s->n)];
    ((float *)a->max.data)[row] = top;
    ((uint64_t *)a->sum.data)[row] = K(weigh)(s, top, 1);
  }
  /* The rule's token, or one drawn after penalties and biases. */
  if (rule[0] < 0) {
    s->x = K(edited)(a, row, raw, (float *)(s->found + s->n));
    *chosen = (int32_t)K(choose)(s, rule, (const double *)a->numbers.data + 3 * row);
  } else {
    *chosen = rule[0];
  }
  ((float *)a->chosen.data)[row] = raw[*chosen];
  return 0;
}
#endif
