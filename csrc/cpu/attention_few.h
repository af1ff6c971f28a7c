/* Forward of a few queries against many keys, as generation has it: keys and
 * values are read once, where they lie. Read under MT_ISA, after the masks. */

typedef struct {
  float *q, *out, *score; /* [padded], [padded], [ATT_CHUNK] */
  float top, sum;
} K(few_state);

/* score[r] of keys k..k+n-1 */
V void K(few_scores)(const attention_call *c, const K(masks) *m, K(few_state) *s, attention_head h, int64_t i, int64_t k, int64_t n, int T) {
  const void *keys = att_row(c, &c->f->k, h, k);
  int64_t step = att_step(c, &c->f->k);
  for (int64_t r = 0; r < n; r++) {
    vf dot = {0};
    V_EACH(c->d, j, w, dot += v_load_n(s->q, MT_F32, j, w) * v_load_n(keys, T, r * step + j, w););
    s->score[r] = v_sum(dot) * m->scale;
    if (m->alibi) s->score[r] += m->slope * (float)(k + r - m->offset - i);
  }
}

/* Scores to probabilities against the maximum so far; the output is rescaled. */
V void K(few_softmax)(const attention_call *c, K(few_state) *s, int64_t n) {
  float old = s->top;
  for (int64_t r = 0; r < n; r++) s->top = s->score[r] > s->top ? s->score[r] : s->top;
  vf sum = {0}, factor = K(power)(v_set(old - s->top));
  V_EACH(n, r, m,
    v_store_n(s->score, MT_F32, r, m, K(power)(v_load_n(s->score, MT_F32, r, m) - s->top));
    sum += v_load_n(s->score, MT_F32, r, m););
  s->sum = s->sum * factor[0] + v_sum(sum);
  V_EACH(c->d, j, m, v_store_n(s->out, MT_F32, j, m, v_load_n(s->out, MT_F32, j, m) * factor););
}

static void K(few_drop)(const K(masks) *m, K(few_state) *s, int64_t i, int64_t k, int64_t n) {
  for (int64_t r = -(k % 4); r < n; r += 4) {
    vu word[4];
    K(words)(m, k + r, i, word);
    for (int64_t q = r < 0 ? -r : 0; q < 4 && r + q < n; q++)
      if (word[q][0] < m->threshold) s->score[r + q] = 0;
  }
}

V void K(few_values)(const attention_call *c, K(few_state) *s, attention_head h, int64_t k, int64_t n, int T) {
  const void *values = att_row(c, &c->f->v, h, k);
  int64_t step = att_step(c, &c->f->v);
  for (int64_t r = 0; r < n; r++)
    V_EACH(c->d, j, m, v_store_n(s->out, MT_F32, j, m, v_load_n(s->out, MT_F32, j, m) + s->score[r] * v_load_n(values, T, r * step + j, m)););
}

V void K(few_query)(const attention_call *c, const K(masks) *m, K(few_state) *s, attention_head h, int64_t i, int T) {
  int32_t from, width;
  const void *q = att_row(c, &c->f->q, h, i);
  K(visible)(c, h.sample, i, &from, &width);
  V_EACH(c->d, j, w,
    v_store_n(s->q, MT_F32, j, w, v_load_n(q, T, j, w));
    v_store_n(s->out, MT_F32, j, w, v_set(0)););
  s->top = -1e30f;
  s->sum = 0;
  for (int64_t k = from, to = (int64_t)from + width; k < to; k += ATT_CHUNK) {
    int64_t n = mt_min(ATT_CHUNK, to - k);
    K(few_scores)(c, m, s, h, i, k, n, T);
    K(few_softmax)(c, s, n);
    if (m->drop) K(few_drop)(m, s, i, k, n);
    K(few_values)(c, s, h, k, n, T);
  }
  void *o = att_row(c, &c->f->o, h, i);
  float factor = s->sum > 0 ? m->keep / s->sum : s->sum;
  K(store_row)(o, c->f->o.dtype, s->out, factor, c->d);
  att_lse(c, h)[i * c->f->lse.stride[2]] = s->top * ATT_LN2 + logf(s->sum);
}

static void K(few)(const attention_call *c, attention_head h, char *room) {
  K(masks) m = K(masks_of)(c, h);
  K(few_state) s = {.q = (float *)room};
  s.out = s.q + c->padded;
  s.score = s.out + c->padded;
  for (int64_t i = 0; i < c->sq; i++) V_BY_DTYPE(c->f->q.dtype, K(few_query)(c, &m, &s, h, i, T));
}
