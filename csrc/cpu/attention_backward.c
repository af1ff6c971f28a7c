/* Attention backward: probabilities are made again from the saved log-sum-exp. A
 * tile is a head of a sample; it walks its query blocks and, for each, the key
 * blocks it sees, so that dQ is complete when a query block is, and dK and dV
 * gather in scratch. A last phase adds the heads of a group in order. */
#ifndef MT_ISA
enum { PACKED = 3 }; /* of a (sample, group): keys, keys and values transposed */

#define MT_KERNELS "attention_backward.c"
#include "isa.h"
#include "attention.h"

static int64_t tiles(const void *args, int32_t phase) {
  mt_attention t = mt_attention_of(&((const mt_attention_backward_args *)args)->forward);
  if (t.sq * t.d == 0) return 0;
  switch (phase) {
  case 0: return t.b * t.groups; /* pack */
  case 1: return t.b * t.heads;
  case 2: return t.b * t.groups; /* gather heads */
  }
  return 0;
}

static int64_t scratch(const void *args) {
  mt_attention t = mt_attention_of(&((const mt_attention_backward_args *)args)->forward);
  return t.b * (PACKED * t.groups + 2 * t.heads) * mt_packed(&t) * (int64_t)sizeof(float);
}

MT_OP(attention_backward, tiles, scratch)
#else
#include "philox.h"
#include "attention.h"

typedef struct {
  const mt_attention_backward_args *a;
  mt_attention t;
  int64_t b, head;
  uint64_t key; /* of dropout */
  float slope;
  float *k, *kt, *vt;             /* packed */
  float *dk, *dv;                 /* of this head, [keys, width] */
  float *q, *d_o, *dq, *p, *ds;   /* of the query block and the pair of blocks */
  float *delta, *lse;             /* of the queries */
} K(head);

static void K(pack_keys)(const mt_attention *t, float *k, float *kt, int64_t b, int64_t g) {
  for (int64_t j = 0; j < t->blocks_k; j++) {
    int64_t at = j * MT_BLOCK * t->width;
    v_pack(t, k + at, &t->a->k, j * MT_BLOCK, t->sk, b, g, 0, 1);
    v_pack_transposed(t, kt + at, k + at);
  }
}

static void K(pack_values)(const mt_attention *t, float *vt, int64_t b, int64_t g, float *block) {
  for (int64_t j = 0; j < t->blocks_k; j++) {
    v_pack(t, block, &t->a->v, j * MT_BLOCK, t->sk, b, g, 0, 1);
    v_pack_transposed(t, vt + j * MT_BLOCK * t->width, block);
  }
}

/* What the queries of a block need: q scaled, dO, delta = Σ dO·O, lse. */
static void K(load_queries)(K(head) *h, int64_t q0, int64_t rows) {
  const mt_attention *t = &h->t;
  int64_t g = h->head / t->per_group, j = h->head % t->per_group;
  v_pack(t, h->q, &t->a->q, q0, t->sq, h->b, g, j, t->a->scale);
  v_pack(t, h->d_o, &h->a->d_o, q0, t->sq, h->b, g, j, 1);
  memset(h->dq, 0, MT_BLOCK * t->width * sizeof *h->dq);
  const float *lse = (const float *)t->a->lse.data + (h->b * t->heads + h->head) * t->sq + q0;
  for (int64_t i = 0; i < MT_BLOCK; i++) {
    h->delta[i] = 0;
    h->lse[i] = i < rows ? lse[i] : INFINITY; /* a row beyond the end weighs nothing */
    if (i >= rows) continue;
    const void *o = mt_head(t, &t->a->o, q0 + i, h->b, g, j);
    vf sum = {0};
    V_BY_DTYPE(t->a->o.dtype, V_EACH(t->d, c, m, sum += v_load_n(o, T, c, m) * v_load_n(h->d_o, MT_F32, i * t->width + c, m);););
    h->delta[i] = v_sum(sum);
  }
}

/* One query against one block of keys: scores become p (dropped), dP becomes dS. */
V void K(soften_back)(const K(head) *h, int64_t i, int64_t q0, int64_t k0) {
  const mt_attention *t = &h->t;
  float *p = h->p + i * MT_BLOCK, *ds = h->ds + i * MT_BLOCK, keep[MT_BLOCK] = {0};
  v_scores(p, k0, mt_sees(t, h->b, q0 + i), h->slope);
  if (t->a->drop.rate != 0) v_keep(t, h->key, k0, q0 + i, h->b, h->head, keep);
  for (int64_t k = 0; k < MT_BLOCK; k += LANES) {
    vf x = v_exp(v_load(p, MT_F32, k) - h->lse[i]), dp = v_load(ds, MT_F32, k);
    if (t->a->drop.rate != 0) {
      vf f = v_load(keep, MT_F32, k);
      dp *= f;
      v_store(p, MT_F32, k, x * f);
    } else {
      v_store(p, MT_F32, k, x);
    }
    v_store(ds, MT_F32, k, x * (dp - h->delta[i]));
  }
}

static void K(pair)(K(head) *h, int64_t q0, int64_t rows, int64_t j) {
  const mt_attention *t = &h->t;
  int64_t w = t->width, at = j * MT_BLOCK * w, padded = mt_ceil(rows, 4) * 4;
  memset(h->p, 0, MT_BLOCK * MT_BLOCK * sizeof *h->p);
  memset(h->ds, 0, MT_BLOCK * MT_BLOCK * sizeof *h->ds);
  v_gemm(h->p, MT_BLOCK, h->q, w, 1, h->kt + at, MT_BLOCK, padded, MT_BLOCK, w);
  v_gemm(h->ds, MT_BLOCK, h->d_o, w, 1, h->vt + at, MT_BLOCK, padded, MT_BLOCK, w);
  for (int64_t i = 0; i < rows; i++) K(soften_back)(h, i, q0, j * MT_BLOCK);
  memset(h->p + rows * MT_BLOCK, 0, (padded - rows) * MT_BLOCK * sizeof *h->p);
  memset(h->ds + rows * MT_BLOCK, 0, (padded - rows) * MT_BLOCK * sizeof *h->ds);
  v_gemm(h->dv + at, w, h->p, 1, MT_BLOCK, h->d_o, w, MT_BLOCK, w, rows);
  v_gemm(h->dk + at, w, h->ds, 1, MT_BLOCK, h->q, w, MT_BLOCK, w, rows); /* q carries the scale */
  v_gemm(h->dq, w, h->ds, MT_BLOCK, 1, h->k + at, w, padded, w, MT_BLOCK);
}

static void K(store_rows)(const mt_attention *t, const mt_tensor *x, const float *rows, int64_t from, int64_t n, int64_t b, int64_t g, int64_t j, float factor) {
  for (int64_t i = 0; i < n; i++) {
    void *out = mt_head(t, x, from + i, b, g, j);
    V_BY_DTYPE(x->dtype, V_EACH(t->d, c, m, v_store_n(out, T, c, m, v_load_n(rows + i * t->width, MT_F32, c, m) * factor);););
  }
}

static void K(walk)(K(head) *h) {
  const mt_attention *t = &h->t;
  memset(h->dk, 0, mt_packed(t) * sizeof *h->dk);
  memset(h->dv, 0, mt_packed(t) * sizeof *h->dv);
  for (int64_t q0 = 0; q0 < t->sq; q0 += MT_BLOCK) {
    int64_t rows = mt_min(MT_BLOCK, t->sq - q0), first = t->sk;
    for (int64_t i = 0; i < rows; i++) first = mt_min(first, mt_sees(t, h->b, q0 + i).from);
    K(load_queries)(h, q0, rows);
    for (int64_t j = first / MT_BLOCK; j * MT_BLOCK <= t->a->q_offset + q0 + rows - 1; j++) K(pair)(h, q0, rows, j);
    K(store_rows)(t, &h->a->dq, h->dq, q0, rows, h->b, h->head / t->per_group, h->head % t->per_group, t->a->scale);
  }
}

/* dK or dV of a group: its heads' sums added in order; 0 for keys nobody sees. */
static void K(gather)(const mt_attention *t, const mt_tensor *out, float *heads, int64_t step, int64_t b, int64_t g) {
  int64_t n = mt_packed(t), keys = t->a->k.shape[0] / t->b;
  for (int64_t j = 1; j < t->per_group; j++)
    for (int64_t i = 0; i < n; i += LANES) v_store(heads, MT_F32, i, v_load(heads, MT_F32, i) + v_load(heads + j * step, MT_F32, i));
  K(store_rows)(t, out, heads, 0, t->sk, b, g, 0, 1);
  for (int64_t i = t->sk; i < keys; i++) memset(mt_head(t, out, i, b, g, 0), 0, t->d * mt_element(out->dtype));
}

static int32_t K(attention_backward)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_attention_backward_args *a = args;
  mt_attention t = mt_attention_of(&a->forward);
  int64_t n = mt_packed(&t), block = MT_BLOCK * t.width;
  float *room = ctx->workspace, *packed = scratch, *sums = packed + t.b * t.groups * PACKED * n;
  if ((3 * t.width + 2 * MT_BLOCK + 2) * MT_BLOCK * (int64_t)sizeof(float) > ctx->workspace_bytes) return MT_TOO_WIDE(ctx, t.d);
  if (phase == 0) {
    float *at = packed + tile * PACKED * n;
    K(pack_keys)(&t, at, at + n, tile / t.groups, tile % t.groups);
    K(pack_values)(&t, at + 2 * n, tile / t.groups, tile % t.groups, room);
  } else if (phase == 1) {
    int64_t b = tile / t.heads, head = tile % t.heads;
    float *keys = packed + (b * t.groups + head / t.per_group) * PACKED * n;
    K(head) h = {.a = a, .t = t, .b = b, .head = head, .k = keys, .kt = keys + n, .vt = keys + 2 * n, .dk = sums + tile * 2 * n, .dv = sums + (tile * 2 + 1) * n,
                 .q = room, .d_o = room + block, .dq = room + 2 * block, .p = room + 3 * block};
    h.ds = h.p + MT_BLOCK * MT_BLOCK;
    h.delta = h.ds + MT_BLOCK * MT_BLOCK;
    h.lse = h.delta + MT_BLOCK;
    h.slope = mt_given(&t.a->slopes) ? ((const float *)t.a->slopes.data)[head] : 0;
    h.key = t.a->drop.rate != 0 ? mt_step_key(t.a->drop.stream, &t.a->drop.step) : 0;
    K(walk)(&h);
  } else {
    int64_t b = tile / t.groups, g = tile % t.groups;
    float *first = sums + (b * t.heads + g * t.per_group) * 2 * n;
    K(gather)(&t, &a->dk, first, 2 * n, b, g);
    K(gather)(&t, &a->dv, first + n, 2 * n, b, g);
  }
  return 0;
}
#endif
