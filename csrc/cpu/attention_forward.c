/* Attention forward in the way of FlashAttention (Dao et al., arXiv 2205.14135):
 * a tile is a block of queries of one head; blocks of keys pass by with a running
 * maximum and sum, so scores exist 64 x 64 at a time. Keys (transposed) and values
 * are packed to f32 once per sample and group before. */
#ifndef MT_ISA
#define MT_KERNELS "attention_forward.c"
#include "isa.h"
#include "attention.h"

/* Phase 0: a tile is a (sample, group), packed. Phase 1: a tile is (query block,
 * sample, head), the blocks with most keys first. */
static int64_t tiles(const void *args, int32_t phase) {
  mt_attention t = mt_attention_of(args);
  if (t.sq * t.d == 0) return 0;
  return phase == 0 ? t.b * t.groups : phase == 1 ? t.blocks_q * t.b * t.heads : 0;
}

static int64_t scratch(const void *args) {
  mt_attention t = mt_attention_of(args);
  return t.b * t.groups * 2 * mt_packed(&t) * (int64_t)sizeof(float);
}

MT_OP(attention_forward, tiles, scratch)
#else
#include "philox.h"
#include "attention.h"

static void K(pack)(const mt_attention *t, float *kt, float *v, int64_t b, int64_t g, float *block) {
  for (int64_t j = 0; j < t->blocks_k; j++) {
    int64_t at = j * MT_BLOCK * t->width;
    v_pack(t, block, &t->a->k, j * MT_BLOCK, t->sk, b, g, 0, 1);
    v_pack_transposed(t, kt + at, block);
    v_pack(t, v + at, &t->a->v, j * MT_BLOCK, t->sk, b, g, 0, 1);
  }
}

/* One query's share of a block: turns its scores into probabilities relative to the
 * running maximum, and scales down what was gathered so far. */
V void K(soften)(float *s, float *o, int64_t width, float *top, float *sum) {
  vf high = v_load(s, MT_F32, 0), total = {0};
  for (int64_t k = LANES; k < MT_BLOCK; k += LANES) high = v_max(high, v_load(s, MT_F32, k));
  float was = *top, is = fmaxf(was, v_largest(high));
  if (is == -INFINITY) { /* nothing seen yet */
    memset(s, 0, MT_BLOCK * sizeof *s);
    return;
  }
  for (int64_t k = 0; k < MT_BLOCK; k += LANES) {
    vf p = v_exp(v_load(s, MT_F32, k) - is);
    total += p;
    v_store(s, MT_F32, k, p);
  }
  if (is != was) {
    vf shrink = v_exp(v_set(was - is));
    *sum *= shrink[0];
    for (int64_t c = 0; c < width; c += LANES) v_store(o, MT_F32, c, v_load(o, MT_F32, c) * shrink);
    *top = is;
  }
  *sum += v_sum(total);
}

typedef struct { float *q, *o, *s, *top, *sum; } K(room);

static void K(key_block)(const mt_attention *t, const K(room) *r, const float *kt, const float *v, int64_t j, int64_t q0, int64_t rows, int64_t b, int64_t head, uint64_t key) {
  float slope = mt_given(&t->a->slopes) ? ((const float *)t->a->slopes.data)[head] : 0, keep[MT_BLOCK];
  int64_t padded = mt_ceil(rows, 4) * 4, at = j * MT_BLOCK * t->width;
  memset(r->s, 0, MT_BLOCK * MT_BLOCK * sizeof *r->s);
  v_gemm(r->s, MT_BLOCK, r->q, t->width, 1, kt + at, MT_BLOCK, padded, MT_BLOCK, t->width);
  for (int64_t i = 0; i < rows; i++) {
    float *s = r->s + i * MT_BLOCK;
    v_scores(s, j * MT_BLOCK, mt_sees(t, b, q0 + i), slope);
    K(soften)(s, r->o + i * t->width, t->width, r->top + i, r->sum + i);
    if (t->a->drop.rate == 0) continue;
    v_keep(t, key, j * MT_BLOCK, q0 + i, b, head, keep);
    for (int64_t k = 0; k < MT_BLOCK; k += LANES) v_store(s, MT_F32, k, v_load(s, MT_F32, k) * v_load(keep, MT_F32, k));
  }
  v_gemm(r->o, t->width, r->s, MT_BLOCK, 1, v + at, t->width, padded, t->width, MT_BLOCK);
}

static void K(finish)(const mt_attention *t, const K(room) *r, int64_t q0, int64_t rows, int64_t b, int64_t g, int64_t j) {
  float *lse = (float *)t->a->lse.data + (b * t->heads + g * t->per_group + j) * t->sq + q0;
  for (int64_t i = 0; i < rows; i++) {
    lse[i] = r->top[i] + logf(r->sum[i]);
    void *out = mt_head(t, &t->a->o, q0 + i, b, g, j);
    const float *o = r->o + i * t->width;
    float by = 1 / r->sum[i];
    V_BY_DTYPE(t->a->o.dtype, V_EACH(t->d, c, m, v_store_n(out, T, c, m, v_load_n(o, MT_F32, c, m) * by);););
  }
}

static int32_t K(attention_forward)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  mt_attention t = mt_attention_of(args);
  float *room = ctx->workspace, *packed = scratch;
  if ((2 * t.width + MT_BLOCK + 2) * MT_BLOCK * (int64_t)sizeof(float) > ctx->workspace_bytes) return MT_TOO_WIDE(ctx, t.d);
  if (phase == 0) {
    float *at = packed + tile * 2 * mt_packed(&t);
    K(pack)(&t, at, at + mt_packed(&t), tile / t.groups, tile % t.groups, room);
    return 0;
  }
  int64_t block = t.blocks_q - 1 - tile / (t.b * t.heads), b = tile / t.heads % t.b, head = tile % t.heads;
  int64_t g = head / t.per_group, q0 = block * MT_BLOCK, rows = mt_min(MT_BLOCK, t.sq - q0);
  K(room) r = {.q = room, .o = room + MT_BLOCK * t.width, .s = room + 2 * MT_BLOCK * t.width};
  r.top = r.s + MT_BLOCK * MT_BLOCK;
  r.sum = r.top + MT_BLOCK;
  v_pack(&t, r.q, &t.a->q, q0, t.sq, b, g, head % t.per_group, t.a->scale);
  memset(r.o, 0, MT_BLOCK * t.width * sizeof *r.o);
  int64_t first = t.sk;
  for (int64_t i = 0; i < rows; i++) {
    r.top[i] = -INFINITY;
    r.sum[i] = 0;
    first = mt_min(first, mt_sees(&t, b, q0 + i).from);
  }
  uint64_t key = t.a->drop.rate != 0 ? mt_step_key(t.a->drop.stream, &t.a->drop.step) : 0;
  const float *kt = packed + (b * t.groups + g) * 2 * mt_packed(&t);
  for (int64_t j = first / MT_BLOCK; j * MT_BLOCK <= t.a->q_offset + q0 + rows - 1; j++)
    K(key_block)(&t, &r, kt, kt + mt_packed(&t), j, q0, rows, b, head, key);
  K(finish)(&t, &r, q0, rows, b, g, head % t.per_group);
  return 0;
}
#endif
