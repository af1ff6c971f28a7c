/* Attention over blocks of keys and values. A tile is a few rows and one group of heads;
 * rows of one sequence, and heads that share keys, go through its blocks together. What is
 * summed for a row, and in which order, depends on the keys it sees alone. */
#ifndef MT_ISA
#define MT_KERNELS "paged_attention.c"
#include <math.h>
#include <stddef.h>

#include <string.h>

#include "context.h"
#include "functions.h"
#include "tile.h"

enum {
  BLOCK = 16,   /* positions of a block: device.PagedBlock */
  ROWS = 8,     /* of a tile */
  TOGETHER = 4  /* queries that share a reading of keys */
};

/* A query on its way: a head of a row. */
typedef struct { int64_t row, head, from, to; } paged_query; /* sees keys from..to-1 */

typedef struct {
  const mt_paged_attention_args *a;
  int64_t group, d;
  const int32_t *table;           /* blocks of the sequence */
  paged_query query[TOGETHER];
  int64_t first, last;            /* blocks that some query sees: first..last-1 */
  float *q, *out, *scores;        /* [TOGETHER][d], the same, [TOGETHER][keys] */
  int64_t keys;
} paged_call;

static const int32_t *place(const mt_paged_attention_args *a, int64_t row) {
  return (const int32_t *)a->rows.data + row * a->rows.stride[0];
}

/* The values are the keys. */
static int one_side(const mt_paged_attention_args *a) { return a->v.rank == 0; }

/* Keys of a block and group, or (of_v) its values. */
static char *block_at(const mt_paged_attention_args *a, int32_t block, int64_t group, int of_v) {
  return (char *)a->cache.data + (block * a->cache.stride[0] + group * a->cache.stride[1] + of_v * a->cache.stride[2]) * mt_element(a->cache.dtype);
}

static const int32_t *table_of(const mt_paged_attention_args *a, int32_t sequence) {
  return (const int32_t *)a->tables.data + sequence * a->tables.stride[0];
}

static const char *head_row(const mt_tensor *t, int64_t row, int64_t group, int64_t head) {
  return (const char *)t->data + (row * t->stride[0] + group * t->stride[1] + head * t->stride[2]) * mt_element(t->dtype);
}

/* Stores the keys and values of a row in the cache. */
static void keep_row(const mt_paged_attention_args *a, int64_t row) {
  const int32_t *at = place(a, row);
  int32_t block = table_of(a, at[0])[at[1] / BLOCK], inside = at[1] % BLOCK;
  int64_t d = a->k.shape[3], size = mt_element(a->k.dtype);
  for (int64_t group = 0; group < a->k.shape[1]; group++) {
    const char *k = head_row(&a->k, row, group, 0);
    if (one_side(a)) {
      memcpy(block_at(a, block, group, 0) + inside * d * size, k, d * size);
      continue;
    }
    char *to = block_at(a, block, group, 0) + inside * size;
    for (int64_t j = 0; j < d; j++) memcpy(to + j * BLOCK * size, k + j * size, size);
    memcpy(block_at(a, block, group, 1) + inside * d * size, head_row(&a->v, row, group, 0), d * size);
  }
}

#include "isa.h"

static int64_t tiles(const void *args, int32_t phase) {
  const mt_paged_attention_args *a = args;
  if (phase == 0) return mt_row_tiles(a->k.shape[0], 2 * a->k.shape[1] * a->k.shape[3]);
  return phase == 1 ? mt_ceil(a->q.shape[0], ROWS) * a->q.shape[1] : 0;
}

MT_OP(paged_attention, tiles, NULL)

#else

V void K(scores_of)(paged_call *c, int n, int T) {
  enum { VECTORS = BLOCK / LANES };
  for (int64_t b = c->first; b < c->last; b++) {
    const void *keys = block_at(c->a, c->table[b], c->group, 0);
    vf s[TOGETHER][VECTORS];
    for (int u = 0; u < n; u++)
      for (int l = 0; l < VECTORS; l++) s[u][l] = v_set(0);
    for (int64_t j = 0; j < c->d; j++)
      for (int l = 0; l < VECTORS; l++) {
        vf k = v_load(keys, T, j * BLOCK + l * LANES);
        for (int u = 0; u < n; u++) s[u][l] = v_mad(v_set(c->q[u * c->d + j]), k, s[u][l]);
      }
    for (int u = 0; u < n; u++)
      for (int l = 0; l < VECTORS; l++) v_store(c->scores + u * c->keys, MT_F32, (b - c->first) * BLOCK + l * LANES, s[u][l]);
  }
}

/* The same of keys that lie [BLOCK][d]. */
V void K(scores_by_key)(paged_call *c, int n, int T) {
  for (int64_t b = c->first; b < c->last; b++) {
    const void *keys = block_at(c->a, c->table[b], c->group, 0);
    for (int64_t k = 0; k < BLOCK; k++) {
      vf s[TOGETHER];
      for (int u = 0; u < n; u++) s[u] = v_set(0);
      V_EACH(c->d, j, m,
        vf key = v_load_n(keys, T, k * c->d + j, m);
        for (int u = 0; u < n; u++) s[u] = v_mad(v_load_n(c->q + u * c->d, MT_F32, j, m), key, s[u]););
      for (int u = 0; u < n; u++) c->scores[u * c->keys + (b - c->first) * BLOCK + k] = v_sum(s[u]);
    }
  }
}

/* The scores of the keys that query u sees become probabilities, but for a factor: returned.
 * Not part of its callers, which are compiled for each number of queries and each type. */
static __attribute__((noinline)) float K(softmax)(paged_call *c, int u) {
  const paged_query *q = &c->query[u];
  float *x = c->scores + u * c->keys + (q->from - c->first * BLOCK), top = -INFINITY, sum = 0;
  int64_t n = q->to - q->from;
  if (c->a->rule == MT_CAPPED_SCORES) {
    float inner = 2 / c->a->cap, cap = c->a->cap;
    V_EACH(n, i, m,
      vf rest;
      vf s = v_sigmoid_pair(v_load_n(x, MT_F32, i, m) * inner, &rest);
      v_store_n(x, MT_F32, i, m, (s - rest) * cap););
  }
  if (c->a->slopes.rank == 2) {
    const float *bias = (const float *)c->a->slopes.data + (c->group * c->a->q.shape[2] + q->head) * c->a->slopes.stride[0] + q->from;
    for (int64_t i = 0; i < n; i++) x[i] += bias[i];
  } else if (c->a->slopes.rank) {
    float slope = ((const float *)c->a->slopes.data)[c->group * c->a->q.shape[2] + q->head];
    for (int64_t i = 0; i < n; i++) x[i] += slope * (float)(i + 1 - n);
  }
  for (int64_t i = 0; i < n; i++) top = x[i] > top ? x[i] : top;
  float sink = -INFINITY;
  if (c->a->sinks.rank) V_BY_DTYPE(c->a->sinks.dtype, sink = v_load_n(c->a->sinks.data, T, c->group * c->a->q.shape[2] + q->head, 1)[0]);
  top = sink > top ? sink : top;
  vf all = v_set(0);
  V_EACH(n, i, m,
    v_store_n(x, MT_F32, i, m, v_exp(v_load_n(x, MT_F32, i, m) - top));
    all += v_load_n(x, MT_F32, i, m););
  sum = v_sum(all) + (float)mt_exp(sink - top);
  return sum > 0 ? 1 / sum : sum; /* nan stays nan */
}

/* Adds the values of keys from..to-1 to the outputs of n queries from u on. */
V void K(add_values)(paged_call *c, int u, int n, int64_t from, int64_t to, int T) {
  V_EACH(c->d, j, m,
    vf out[TOGETHER];
    for (int i = 0; i < n; i++) out[i] = v_load_n(c->out + (u + i) * c->d, MT_F32, j, m);
    for (int64_t k = from; k < to;) {
      const void *values = block_at(c->a, c->table[k / BLOCK], c->group, !one_side(c->a));
      const float *p = c->scores + u * c->keys - c->first * BLOCK;
      for (int64_t end = mt_min(to, (k / BLOCK + 1) * BLOCK); k < end; k++) {
        vf v = v_load_n(values, T, k % BLOCK * c->d + j, m);
        for (int i = 0; i < n; i++) out[i] = v_mad(v_set(p[i * c->keys + k]), v, out[i]);
      }
    }
    for (int i = 0; i < n; i++) v_store_n(c->out + (u + i) * c->d, MT_F32, j, m, out[i]););
}

/* The same of one query, for keys that the others do not see. */
static __attribute__((noinline)) void K(add_own_values)(paged_call *c, int u, int64_t from, int64_t to) {
  V_BY_DTYPE(c->a->q.dtype, K(add_values)(c, u, 1, from, to, T));
}

V void K(together)(paged_call *c, int n, int T) {
  float factor[TOGETHER];
  int64_t from = 0, to = INT64_MAX; /* keys that all queries see */
  if (one_side(c->a))
    K(scores_by_key)(c, n, T);
  else
    K(scores_of)(c, n, T);
  for (int u = 0; u < n; u++) {
    factor[u] = K(softmax)(c, u);
    from = mt_max(from, c->query[u].from);
    to = mt_min(to, c->query[u].to);
  }
  memset(c->out, 0, n * c->d * sizeof *c->out);
  from = mt_min(from, to);
  for (int u = 0; u < n; u++) K(add_own_values)(c, u, c->query[u].from, mt_max(from, c->query[u].from));
  K(add_values)(c, 0, n, from, to, T);
  for (int u = 0; u < n; u++) {
    const paged_query *q = &c->query[u];
    K(add_own_values)(c, u, mt_max(to, q->from), q->to);
    void *o = (void *)head_row(&c->a->o, q->row, c->group, q->head);
    V_EACH(c->d, j, m, v_store_n(o, T, j, m, v_load_n(c->out + u * c->d, MT_F32, j, m) * factor[u]););
  }
}

V void K(by_number)(paged_call *c, int n, int T) {
  switch (n) {
  case 1: K(together)(c, 1, T); break;
  case 2: K(together)(c, 2, T); break;
  case 3: K(together)(c, 3, T); break;
  case 4: K(together)(c, 4, T); break;
  }
}

/* Queries that are complete: their ranges, their values in f32 times the scale. */
static int32_t K(attend)(mt_context *ctx, paged_call *c, int n) {
  int64_t lowest = INT64_MAX, highest = 0;
  for (int u = 0; u < n; u++) {
    lowest = mt_min(lowest, c->query[u].from);
    highest = mt_max(highest, c->query[u].to);
  }
  c->first = lowest / BLOCK;
  c->last = mt_ceil(highest, BLOCK);
  c->keys = (c->last - c->first) * BLOCK;
  c->q = (float *)mt_cpu_room(ctx, TOGETHER * (2 * c->d + c->keys) * 4);
  if (!c->q) return 1;
  c->out = c->q + TOGETHER * c->d;
  c->scores = c->out + TOGETHER * c->d;
  for (int u = 0; u < n; u++) {
    const void *q = head_row(&c->a->q, c->query[u].row, c->group, c->query[u].head);
    V_BY_DTYPE(c->a->q.dtype, V_EACH(c->d, j, m, v_store_n(c->q + u * c->d, MT_F32, j, m, v_load_n(q, T, j, m) * c->a->scale);););
  }
  V_BY_DTYPE(c->a->q.dtype, K(by_number)(c, n, T));
  return 0;
}

static int32_t K(paged_attention)(mt_context *ctx, const void *args, void *shared, int32_t phase, int64_t tile) {
  const mt_paged_attention_args *a = args;
  int64_t rows = a->q.shape[0];
  (void)shared;
  /* Phase 0: keys and values of the rows go to their blocks. */
  if (phase == 0) {
    int64_t each = mt_tile_rows(rows, 2 * a->k.shape[1] * a->k.shape[3]);
    for (int64_t row = tile * each; row < mt_min(rows, (tile + 1) * each); row++) keep_row(a, row);
    return 0;
  }
  /* Phase 1: queries of one text together, as many as share a pass over its blocks. */
  paged_call c = {.a = a, .group = tile % a->q.shape[1], .d = a->q.shape[3]};
  int n = 0;
  int64_t row = tile / a->q.shape[1] * ROWS, end = mt_min(rows, row + ROWS);
  for (; row < end; row++) {
    const int32_t *at = place(a, row);
    c.table = table_of(a, at[0]);
    for (int64_t head = 0; head < a->q.shape[2]; head++) {
      int64_t to = (int64_t)at[1] + 1;
      int64_t from = a->window < 0 ? 0 : mt_max(0, to - 1 - a->window);
      if (a->chunk > 0) from = mt_max(from, (to - 1) / a->chunk * a->chunk);
      c.query[n++] = (paged_query){row, head, from, to};
      int32_t last = head + 1 == a->q.shape[2] && (row + 1 == end || place(a, row + 1)[0] != at[0]);
      if (n < TOGETHER && !last) continue;
      if (K(attend)(ctx, &c, n)) return 1;
      n = 0;
    }
  }
  return 0;
}
#endif
