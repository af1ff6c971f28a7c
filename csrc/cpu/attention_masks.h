/* Who sees whom, the dropout masks and ALiBi of a block. Read under MT_ISA, after
 * simd.h and philox.h. */
#define ATT_NOBODY INT32_MAX

/* Query i sees `width` keys from `from` on. */
static void K(visible)(const attention_call *c, int64_t sample, int64_t i, int32_t *from, int32_t *width) {
  const mt_attention_forward_args *f = c->f;
  if (i >= c->sq) {
    *from = ATT_NOBODY;
    *width = 0;
    return;
  }
  int64_t position = f->q_offset + i, first = 0;
  if (f->doc_start.rank) first = ((const int32_t *)f->doc_start.data)[sample * f->doc_start.stride[0] + i];
  if (f->window >= 0) first = mt_max(first, position - f->window);
  *from = (int32_t)mt_max(first, 0);
  *width = (int32_t)mt_max(position + 1 - *from, 0);
}

/* What masks the scores of one head besides causality. */
typedef struct {
  float scale, slope, keep; /* keep: what a kept probability is multiplied by */
  int32_t alibi, drop;
  uint64_t key;
  uint32_t threshold, sample, head, position; /* position: of query 0, for the mask's counter */
  int32_t offset;                             /* position of query 0 among the keys */
} K(masks);

static K(masks) K(masks_of)(const attention_call *c, attention_head h) {
  const mt_attention_forward_args *f = c->f;
  K(masks) m = {.scale = f->scale, .keep = 1, .alibi = f->slopes.rank > 0, .drop = f->drop.rate > 0, .offset = f->q_offset};
  if (m.alibi) m.slope = ((const float *)f->slopes.data)[h.head];
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
  const vu zero = {0};
  word[0] = zero + (uint32_t)(k / 4);
  word[1] = v_iota() + (m->position + (uint32_t)i);
  word[2] = zero + m->sample;
  word[3] = zero + m->head;
  v_philox(m->key, word);
}

/* scale·s + slope·(key − query) */
V vf K(score)(const K(masks) *m, vf s, int64_t k, int64_t i) {
  s *= m->scale;
  if (m->alibi) s += m->slope * __builtin_convertvector((vi)(v_iota() * -1u + (uint32_t)(k - m->offset - i)), vf);
  return s;
}

V vm K(sees)(vu from, vu width, int64_t k) { return v_below((uint32_t)k - from, width); }
