/* Rows of heads; who sees whom, the dropout masks and ALiBi of a block. Read under MT_ISA, after
 * simd.h and philox.h. */
/* A row of any dtype to f32; a row of f32, times factor, to any dtype. */
static void K(load_row)(float *to, const void *from, int32_t dtype, int64_t d) {
  V_BY_DTYPE(dtype, V_EACH(d, j, m, v_store_n(to, MT_F32, j, m, v_load_n(from, T, j, m));););
}

/* Rows lie pages apart, too far for hardware prefetch. */
V void K(fetch_rows)(const attention_call *c, const mt_tensor *t, attention_head h, int64_t i, int64_t n, int64_t rows) {
  for (int64_t end = mt_min(i + n, rows); i < end; i++)
    for (int64_t at = 0; at < c->d * mt_element(t->dtype); at += 64) __builtin_prefetch(att_row(c, t, h, i) + at, 1);
}

static void K(store_row)(void *to, int32_t dtype, const float *from, float factor, int64_t d) {
  V_BY_DTYPE(dtype, V_EACH(d, j, m, v_store_n(to, T, j, m, v_load_n(from, MT_F32, j, m) * factor);););
}

#define ATT_NOBODY INT32_MAX
#define ATT_LOG2E 1.44269504088896341f
#define ATT_LN2 0.693147180559945309f

/* Query i sees `width` keys from `from` on. */
static void K(visible)(const attention_call *c, int64_t sample, int64_t i, int32_t *from, int32_t *width) {
  const mt_attention_forward_args *f = c->f;
  if (i >= c->sq) {
    *from = ATT_NOBODY;
    *width = 0;
    return;
  }
  int64_t position = c->ahead + i, first = 0, end = mt_min(c->sk, position + 1);
  if (f->doc_start.rank) first = ((const int32_t *)f->doc_start.data)[sample * f->doc_start.stride[0] + i] - f->k_offset;
  if (f->window >= 0) first = mt_max(first, position - f->window);
  if (f->chunk > 0) first = mt_max(first, (position + f->k_offset) / f->chunk * f->chunk - f->k_offset);
  first = mt_max(first, 0);
  *from = first < end ? (int32_t)first : ATT_NOBODY;
  *width = first < end ? (int32_t)(end - first) : 0;
}

/* What masks the scores of one head in addition to causality. */
typedef struct {
  float scale, slope; /* times log2(e): scores are exponents of 2 */
  float keep;         /* what a kept probability is multiplied by */
  float cap, inner;   /* of capped scores cap·tanh(inner·x), cap times log2(e); 0: plain */
  const float *bias;  /* by key, of `biases` keys, where ALiBi is not a slope */
  int64_t biases;
  int32_t alibi, drop;
  uint64_t key;
  uint32_t threshold, sample, head, position; /* position: of query 0, for the mask's counter */
  int32_t offset;                             /* position of query 0 among the keys */
  uint32_t keys;                              /* position of key 0, for the mask's counter */
} K(masks);

static K(masks) K(masks_of)(const attention_call *c, attention_head h) {
  const mt_attention_forward_args *f = c->f;
  K(masks) m = {.scale = f->scale * ATT_LOG2E, .keep = 1, .alibi = f->slopes.rank > 0, .drop = f->drop.rate > 0, .offset = (int32_t)c->ahead, .keys = (uint32_t)f->k_offset};
  if (f->rule == MT_CAPPED_SCORES) {
    m.cap = f->cap * ATT_LOG2E;
    m.inner = f->scale / f->cap;
  }
  if (f->slopes.rank == 2) {
    m.bias = (const float *)f->slopes.data + h.head * f->slopes.stride[0] + f->k_offset;
    m.biases = f->slopes.shape[1] - f->k_offset;
  }
  if (m.alibi && !m.bias) m.slope = ((const float *)f->slopes.data)[h.head] * ATT_LOG2E;
  if (!m.drop) return m;
  m.keep = 1 / (1 - f->drop.rate);
  m.key = mt_step_key(f->drop.stream, &f->drop.step);
  m.threshold = mt_drop_threshold(f->drop.rate);
  m.sample = (uint32_t)((const int32_t *)f->drop.samples.data)[h.sample];
  m.head = (uint32_t)(f->drop.channel + h.head);
  m.position = (uint32_t)f->drop.position;
  return m;
}

/* Random words of keys k..k+3 (k a multiple of 4) for LANES queries from i on:
 * word[r] is key k+r's. */
static void K(words)(const K(masks) *m, int64_t k, int64_t i, vu *word) {
  const uint32_t key = m->keys + (uint32_t)k, into = key % 4;
  const vu zero = {0};
  vu all[8];
  for (uint32_t next = 0; next <= (into > 0); next++) { /* four keys may begin between two calls' */
    vu *w = all + 4 * next;
    w[0] = zero + (key / 4 + next);
    w[1] = v_iota() + (m->position + (uint32_t)i);
    w[2] = zero + m->sample;
    w[3] = zero + m->head;
    v_philox(m->key, w);
  }
  memcpy(word, all + into, 4 * sizeof *word);
}

/* What is added to scale·s: slope·(key − query) − base. */
V vf K(offset)(const K(masks) *m, vf base, int64_t k, int64_t i) {
  if (!m->alibi) return -base;
  if (m->bias) return v_set(k < m->biases ? m->bias[k] * ATT_LOG2E : 0) - base;
  return m->slope * __builtin_convertvector((vi)(v_iota() * -1u + (uint32_t)(k - m->offset - i)), vf) - base;
}

/* 2^y to 1e-7 of it for y <= 0, not below 2^-126; nan of nan. The polynomial is a
 * minimax fit of 2^f on |f| <= 1/2. Shorter than v_exp: this is half the time of
 * attention. */
V vf K(power)(vf y) {
  y = v_max(v_set(-126), y);
  vf t = y + 12582912.f, f = y - (t - 12582912.f); /* the nearest integer is in the low bits of t */
  vf p = v_set(0.0013264722656458616f);
  p = v_step(p, f, 0.009671512991189957f);
  p = v_step(p, f, 0.05550733581185341f);
  p = v_step(p, f, 0.24022242426872253f);
  p = v_step(p, f, 0.6931470036506653f);
  p = v_step(p, f, 1.f);
  return (vf)((vi)p + ((vi)t << 23));
}

/* The exponent of a product of queries and keys, and its derivative by scale·x. */
V vf K(score)(const K(masks) *m, vf x, vf *slope) {
  *slope = v_set(1);
  if (m->cap == 0) return x * m->scale;
  vf rest, s = v_sigmoid_pair(x * (2 * m->inner), &rest);
  *slope = s * rest * 4.f;
  return (s - rest) * m->cap;
}

/* Scores that are more than products times the scale are never `open`. */
V int K(plain)(const K(masks) *m) { return !m->alibi && m->cap == 0; }

V vm K(sees)(vu from, vu width, int64_t k) { return v_below((uint32_t)k - from, width); }
