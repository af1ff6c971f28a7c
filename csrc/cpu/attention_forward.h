/* Forward, for any form of packed blocks. Read under MT_ISA, after the blocks. */

static void K(pack)(const attention_call *c, int64_t sample, int64_t group, int64_t chunk, char *shared) {
  const mt_attention_forward_args *f = c->f;
  attention_head h = {sample, group, 0};
  K(value) *keys = (K(value) *)shared, *values = keys + mt_up(c->seen, ATT_KEYS) * c->padded;
  int64_t to = mt_min(c->seen, (chunk + 1) * ATT_CHUNK);
  for (int64_t k = chunk * ATT_CHUNK; k < to; k += ATT_KEYS) {
    int64_t n = mt_min(ATT_KEYS, to - k);
    K(pack_rows)(keys + k * c->padded, c->padded, att_row(c, &f->k, h, k), f->k.dtype, att_step(c, &f->k), n, c->d);
    K(pack_channels)(values + k * c->padded, ATT_KEYS, c->padded, att_row(c, &f->v, h, k), f->v.dtype, att_step(c, &f->v), n, c->d);
  }
}

typedef struct {
  const attention_call *c;
  K(masks) masks;
  int64_t first;                 /* query */
  int64_t key, end;              /* the next of its keys; behind the last */
  int64_t all_from, all_to;      /* keys that all its queries see */
  K(value) *q, *p;               /* [padded, 64], [128, 64] as right operands */
  float *scores, *out, *rows;    /* [128, 64], [padded, 64], [64, padded] */
  float *top, *sum, *factor;     /* [64]: highest score and sum so far; what to rescale by */
  int32_t *from, *width;         /* [64] */
} K(forward_state);

/* The largest of n scores from key k on, and of the one before. Where not every
 * query sees every key (`open`), scores are masked in place. */
V vf K(highest)(K(forward_state) *s, int64_t k, int64_t n, int64_t j, vu from, vu width, int open) {
  const K(masks) *m = &s->masks;
  float *x = s->scores + j;
  vf top[4] = {v_set(-INFINITY), v_set(-INFINITY), v_set(-INFINITY), v_set(-INFINITY)};
  for (int64_t r = 0; r < n; r += 4)
    for (int q = 0; q < 4; q++) {
      vf v = v_load(x, MT_F32, (r + q) * ATT_QUERIES);
      if (!open) {
        vf slope;
        v = K(score)(m, v, &slope) + K(offset)(m, v_set(0), k + r + q, s->first + j);
        v = v_select(K(sees)(from, width, k + r + q), v, v_set(-INFINITY));
        v_store(x, MT_F32, (r + q) * ATT_QUERIES, v);
      }
      top[q] = v_max(v, top[q]);
    }
  vf all = v_max(v_max(top[0], top[1]), v_max(top[2], top[3]));
  return v_max(open ? all * m->scale : all, v_load(s->top + j, MT_F32, 0));
}

/* Scores of n keys from k on to probabilities, all relative to the highest so far. */
V void K(softmax_if)(K(forward_state) *s, int64_t k, int64_t n, int open) {
  const K(masks) *m = &s->masks;
  for (int64_t j = 0; j < ATT_QUERIES; j += LANES) {
    vu from, width;
    memcpy(&from, s->from + j, sizeof from);
    memcpy(&width, s->width + j, sizeof width);
    /* The highest score so far; what was summed before shrinks with it. */
    vf top = K(highest)(s, k, n, j, from, width, open), factor = K(power)(v_load(s->top + j, MT_F32, 0) - top);
    vf sum = v_load(s->sum + j, MT_F32, 0) * factor;
    /* Four keys at a time: probabilities, their sum, dropout. */
    for (int64_t r = 0; r < n; r += 4) {
      vf p[4];
      for (int q = 0; q < 4; q++) {
        vf x = v_load(s->scores + j, MT_F32, (r + q) * ATT_QUERIES);
        p[q] = K(power)(open ? v_mad(x, v_set(m->scale), -top) : x - top);
        if (!open) p[q] = v_select(K(sees)(from, width, k + r + q), p[q], v_set(0));
      }
      sum += (p[0] + p[1]) + (p[2] + p[3]);
      if (m->drop) {
        vu word[4];
        K(words)(m, k + r, s->first + j, word);
        for (int q = 0; q < 4; q++) p[q] = v_select(v_below(word[q], v_iota() * 0u + m->threshold), v_set(0), p[q]);
      }
      K(put_right)(s->p, ATT_QUERIES, r, j, p[0], p[1]);
      K(put_right)(s->p, ATT_QUERIES, r + 2, j, p[2], p[3]);
    }
    v_store(s->top + j, MT_F32, 0, top);
    v_store(s->sum + j, MT_F32, 0, sum);
    v_store(s->factor + j, MT_F32, 0, factor);
  }
}

static void K(softmax)(K(forward_state) *s, int64_t k, int64_t n) { K(softmax_if)(s, k, n, 0); }

static void K(softmax_open)(K(forward_state) *s, int64_t k, int64_t n) { K(softmax_if)(s, k, n, 1); }

/* The sums so far are relative to an older maximum. */
static void K(rescale)(K(forward_state) *s) {
  for (int64_t j = 0; j < ATT_QUERIES; j += LANES) {
    vf factor = v_load(s->factor + j, MT_F32, 0);
    if (v_count(v_eq(factor, v_set(1)), LANES) == LANES) continue;
    for (int64_t r = 0; r < s->c->padded; r++) v_store(s->out + j, MT_F32, r * ATT_QUERIES, v_load(s->out + j, MT_F32, r * ATT_QUERIES) * factor);
  }
}

/* Blocks that are computed together each have their own sums, and share the space for scores. */
static void K(lay_out)(K(forward_state) *s, char *own, char *common) {
  const int64_t padded = s->c->padded;
  s->q = (K(value) *)own;
  s->out = (float *)(s->q + padded * ATT_QUERIES);
  s->top = s->out + padded * ATT_QUERIES;
  s->sum = s->top + ATT_QUERIES;
  s->factor = s->sum + ATT_QUERIES;
  s->from = (int32_t *)(s->factor + ATT_QUERIES);
  s->width = s->from + ATT_QUERIES;
  s->p = (K(value) *)common;
  s->scores = (float *)(s->p + ATT_KEYS * ATT_QUERIES);
  s->rows = s->scores + ATT_KEYS * ATT_QUERIES;
}

/* O = out/sum, a row a query; LSE = log(2^top·sum). */
static void K(write_out)(K(forward_state) *s, attention_head h) {
  const attention_call *c = s->c;
  const mt_tensor *o = &c->f->o;
  float *lse = att_lse(c, h);
  int64_t n = mt_min(ATT_QUERIES, c->sq - s->first), step = c->f->lse.stride[2];
  K(transpose)(s->rows, c->padded, c->padded, s->out, MT_F32, ATT_QUERIES, c->padded, ATT_QUERIES);
  for (int64_t i = 0; i < n; i++) {
    float sum = s->sum[i], factor = sum > 0 ? s->masks.keep / sum : sum; /* nan stays nan */
    K(fetch_rows)(c, o, h, s->first + i + ATT_AHEAD, 1, c->sq);
    K(store_row)(att_row(c, o, h, s->first + i), o->dtype, s->rows + i * c->padded, factor, c->d);
    lse[(s->first + i) * step] = s->top[i] * ATT_LN2 + (float)mt_log(sum);
  }
}

/* A block of queries that have seen no keys yet. */
static void K(start)(K(forward_state) *s, attention_head h) {
  const attention_call *c = s->c;
  const mt_tensor *q = &c->f->q;
  int64_t queries = mt_min(ATT_QUERIES, c->sq - s->first), lowest = ATT_NOBODY, position = c->ahead + s->first;
  for (int64_t i = 0; i < ATT_QUERIES; i++) {
    K(visible)(c, h.sample, s->first + i, &s->from[i], &s->width[i]);
    lowest = mt_min(lowest, s->from[i]);
    if (i < queries) s->all_from = mt_max(s->all_from, s->from[i]);
    s->top[i] = -1e30f;
    s->sum[i] = 0;
  }
  s->key = lowest / ATT_PAD * ATT_PAD;
  s->end = mt_up(mt_min(c->seen, position + queries), ATT_PAD);
  s->all_to = mt_min(c->seen, position + 1);
  memset(s->out, 0, c->padded * ATT_QUERIES * sizeof *s->out);
  K(pack_right_channels)(s->q, ATT_QUERIES, c->padded, att_row(c, q, h, s->first), q->dtype, att_step(c, q), queries, c->d);
}

/* The block of keys that `key` lies in. */
static void K(attend)(K(forward_state) *s, const K(value) *keys, const K(value) *values) {
  int64_t padded = s->c->padded, k = s->key, n = mt_min(s->end, (k / ATT_KEYS + 1) * ATT_KEYS) - k;
  K(product)(n, ATT_QUERIES, padded, keys + k * padded, padded, s->q, ATT_QUERIES, s->scores, ATT_QUERIES, 0);
  if (k >= s->all_from && k + n <= s->all_to && K(plain)(&s->masks)) K(softmax_open)(s, k, n);
  else K(softmax)(s, k, n);
  K(rescale)(s);
  K(product)(padded, ATT_QUERIES, n, values + k / ATT_KEYS * ATT_KEYS * padded + k % ATT_KEYS, ATT_KEYS, s->p, ATT_QUERIES, s->out, ATT_QUERIES, 1);
  s->key = k + n;
}

/* Blocks of queries go through the keys side by side: a block of keys is fetched once for
 * all of them. */
static void K(forward)(const attention_call *c, attention_head h, int64_t block, const char *shared, char *room) {
  const K(value) *keys = (const K(value) *)shared, *values = keys + mt_up(c->seen, ATT_KEYS) * c->padded;
  K(forward_state) s[ATT_TOGETHER];
  int64_t n = mt_min(att_together(c), att_blocks(c) - block), k = c->seen, end = 0;
  for (int64_t i = 0; i < n; i++) {
    s[i] = (K(forward_state)){.c = c, .masks = K(masks_of)(c, h), .first = (block + i) * ATT_QUERIES};
    K(lay_out)(&s[i], room + att_common_room(c) + i * att_own_room(c), room);
    K(start)(&s[i], h);
    k = mt_min(k, s[i].key);
    end = mt_max(end, s[i].end);
  }
  K(begin)();
  for (k = k / ATT_KEYS * ATT_KEYS; k < end; k += ATT_KEYS)
    for (int64_t i = 0; i < n; i++)
      if (s[i].key < mt_min(s[i].end, k + ATT_KEYS)) K(attend)(&s[i], keys, values);
  K(end)();
  for (int64_t i = 0; i < n; i++) K(write_out)(&s[i], h);
}
