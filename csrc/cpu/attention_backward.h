/* Backward, for any form of packed blocks. Read under MT_ISA, after the blocks.
 * With p = e^(s−lse) and z its mask over 1−rate: dV = (pz)ᵀ·dO, dP = z·(dO·Vᵀ),
 * dS = p·(dP − D), D = dO·O, dQ = scale·dS·K, dK = scale·dSᵀ·Q. */

typedef struct {
  const attention_call *c;
  attention_head head;
  K(masks) masks;
  /* of a stretch of queries, in blocks of ATT_BQUERIES where they are columns */
  int64_t first, queries;              /* first: among all; queries: padded to ATT_BQUERIES */
  K(value) *q_columns, *do_columns;    /* [blocks, padded, 128] right operands over channels */
  K(value) *q_rows, *do_rows;          /* [queries, padded] right operands over queries */
  float *dq;                           /* [blocks, padded, 128] */
  float *lse, *through;                /* [queries]: times log2(e); D */
  int32_t *from, *width;
  /* of a block of keys */
  K(value) *k_rows, *v_rows, *k_channels; /* [64, padded] twice, [padded, 64]: left operands */
  float *dk, *dv;                      /* [64, padded], of the sums of all keys */
  float *all_dk, *all_dv;              /* [keys, padded]: of the stretches so far */
  float *scores, *dp;                  /* [64, 128] */
  K(value) *p, *ds, *ds_right;         /* [64, 128]: left operands, a right one */
  float *rows;                         /* [128, padded] */
} K(backward_state);

static void K(lay_out_backward)(K(backward_state) *s, char *room) {
  const int64_t queries = att_stretch(s->c), padded = s->c->padded, all = queries * padded, block = ATT_BKEYS * padded;
  enum { PAIRS = ATT_BKEYS * ATT_BQUERIES };
  s->q_columns = (K(value) *)room;
  s->do_columns = s->q_columns + all;
  s->q_rows = s->do_columns + all;
  s->do_rows = s->q_rows + all;
  s->k_rows = s->do_rows + all;
  s->v_rows = s->k_rows + block;
  s->k_channels = s->v_rows + block;
  s->p = s->k_channels + block;
  s->ds = s->p + PAIRS;
  s->ds_right = s->ds + PAIRS;
  s->dq = (float *)(s->ds_right + PAIRS);
  s->all_dk = s->dq + all;
  s->all_dv = s->all_dk + mt_up(s->c->sk, ATT_BKEYS) * padded;
  s->scores = s->all_dv + mt_up(s->c->sk, ATT_BKEYS) * padded;
  s->dp = s->scores + PAIRS;
  s->rows = s->dp + PAIRS;
  s->lse = s->rows + ATT_BQUERIES * padded;
  s->through = s->lse + queries;
  s->from = (int32_t *)(s->through + queries);
  s->width = s->from + queries;
}

static void K(pack_queries)(K(backward_state) *s) {
  const attention_call *c = s->c;
  const mt_tensor *q = &c->f->q, *d_o = &c->g->d_o;
  const int64_t padded = c->padded;
  for (int64_t i = 0; i < s->queries; i += ATT_BQUERIES) {
    int64_t n = mt_min(ATT_BQUERIES, c->sq - s->first - i);
    const void *from_q = att_row(c, q, s->head, s->first + i), *from_do = att_row(c, d_o, s->head, s->first + i);
    K(pack_right_channels)(s->q_columns + i * padded, ATT_BQUERIES, padded, from_q, q->dtype, att_step(c, q), n, c->d);
    K(pack_right_channels)(s->do_columns + i * padded, ATT_BQUERIES, padded, from_do, d_o->dtype, att_step(c, d_o), n, c->d);
    K(pack_right_rows)(s->q_rows + i * padded, padded, from_q, q->dtype, att_step(c, q), n, c->d);
    K(pack_right_rows)(s->do_rows + i * padded, padded, from_do, d_o->dtype, att_step(c, d_o), n, c->d);
  }
}

static void K(query_numbers)(K(backward_state) *s) {
  const attention_call *c = s->c;
  const float *lse = att_lse(c, s->head);
  for (int64_t i = 0; i < s->queries; i++) {
    int64_t row = s->first + i;
    K(visible)(c, s->head.sample, row, &s->from[i], &s->width[i]);
    s->lse[i] = 1e30f;
    s->through[i] = 0;
    if (row >= c->sq) continue;
    float *o = s->rows, *d_o = s->rows + c->padded;
    K(fetch_rows)(c, &c->f->o, s->head, row + ATT_AHEAD, 1, c->sq);
    K(fetch_rows)(c, &c->g->d_o, s->head, row + ATT_AHEAD, 1, c->sq);
    K(load_row)(o, att_row(c, &c->f->o, s->head, row), c->f->o.dtype, c->d);
    K(load_row)(d_o, att_row(c, &c->g->d_o, s->head, row), c->g->d_o.dtype, c->d);
    s->through[i] = mt_attention_dot(o, d_o, c->d);
    s->lse[i] = lse[row * c->f->lse.stride[2]] * ATT_LOG2E;
  }
}

/* p and dS of 64 keys from k on by n queries from the i-th of the stretch on. `open` as in forward. */
V void K(gradients_if)(K(backward_state) *s, int64_t k, int64_t i, int64_t n, int open) {
  const K(masks) *m = &s->masks;
  /* A vector of queries against four keys at a time. */
  for (int64_t j = 0; j < n; j += LANES) {
    vf lse = v_load(s->lse + i + j, MT_F32, 0), through = v_load(s->through + i + j, MT_F32, 0);
    vu from, width;
    memcpy(&from, s->from + i + j, sizeof from);
    memcpy(&width, s->width + i + j, sizeof width);
    for (int64_t r = 0; r < ATT_BKEYS; r += 4) {
      vu word[4];
      vf p[4], ds[4];
      if (m->drop) K(words)(m, k + r, s->first + i + j, word);
      else memset(word, 0, sizeof word);
      for (int q = 0; q < 4; q++) {
        vf x = v_load(s->scores + j, MT_F32, (r + q) * ATT_BQUERIES), dp = v_load(s->dp + j, MT_F32, (r + q) * ATT_BQUERIES);
        vf slope = v_set(1);
        /* Probabilities from the scores and the rows' sums. */
        p[q] = open ? K(power)(v_mad(x, v_set(m->scale), -lse)) : K(power)(K(score)(m, x, &slope) + K(offset)(m, lse, k + r + q, s->first + i + j));
        if (!open) p[q] = v_select(K(sees)(from, width, k + r + q), p[q], v_set(0));
        /* Dropped ones count in dS by p alone, kept ones are scaled. */
        vf kept = p[q];
        if (m->drop) {
          vm dropped = v_below(word[q], v_iota() * 0u + m->threshold);
          kept = v_select(dropped, v_set(0), kept * m->keep);
          dp = v_select(dropped, v_set(0), dp * m->keep);
        }
        ds[q] = p[q] * (dp - through);
        if (!open) ds[q] *= slope;
        p[q] = kept;
      }
      /* Where the products take them: p and dS by keys, dS by queries too. */
      for (int q = 0; q < 4; q += 2) {
        K(put_left)(s->p, ATT_BQUERIES, r + q, j, p[q], p[q + 1]);
        K(put_left)(s->ds, ATT_BQUERIES, r + q, j, ds[q], ds[q + 1]);
        if (sizeof(K(value)) == 2) K(put_right)(s->ds_right, ATT_BQUERIES, r + q, j, ds[q], ds[q + 1]);
      }
    }
  }
}

static void K(gradients)(K(backward_state) *s, int64_t k, int64_t i, int64_t n) { K(gradients_if)(s, k, i, n, 0); }

static void K(gradients_open)(K(backward_state) *s, int64_t k, int64_t i, int64_t n) { K(gradients_if)(s, k, i, n, 1); }

/* Queries i..i+n-1 of the stretch, within one block of ATT_BQUERIES, against 64 keys from k on. */
static void K(block)(K(backward_state) *s, int64_t k, int64_t i, int64_t n) {
  enum { Q = ATT_BQUERIES, N = ATT_BKEYS };
  const int64_t padded = s->c->padded, at = i / Q * Q * padded + i % Q;
  const int64_t right = i / Q * Q * padded + (i % Q) * (sizeof(K(value)) == 2 ? 2 : 1);
  int64_t lowest = ATT_NOBODY, highest = 0;
  for (int64_t q = i; q < i + n; q++) {
    lowest = mt_min(lowest, s->from[q]);
    if (s->first + q < s->c->sq) highest = mt_max(highest, s->from[q]);
  }
  if (lowest >= k + N) return;
  K(product)(N, n, padded, s->k_rows, padded, s->q_columns + right, Q, s->scores, Q, 0);
  K(product)(N, n, padded, s->v_rows, padded, s->do_columns + right, Q, s->dp, Q, 0);
  if (highest <= k && k + N <= mt_min(s->c->seen, s->masks.offset + s->first + i + 1) && K(plain)(&s->masks)) K(gradients_open)(s, k, i, n);
  else K(gradients)(s, k, i, n);
  K(product)(N, padded, n, s->p, Q, s->do_rows + i * padded, padded, s->dv, padded, 1);
  K(product)(N, padded, n, s->ds, Q, s->q_rows + i * padded, padded, s->dk, padded, 1);
  K(product)(padded, n, N, s->k_channels, N, sizeof(K(value)) == 2 ? s->ds_right : s->ds, Q, s->dq + at, Q, 1);
}

/* dK and dV of all keys: to the tensors, or to this head's part of a sum. */
static void K(write_keys)(K(backward_state) *s, float *partial) {
  const attention_call *c = s->c;
  const mt_tensor *dk = &c->g->dk, *dv = &c->g->dv;
  for (int64_t k = 0; k < c->sk; k++) {
    if (!partial) {
      K(fetch_rows)(c, dk, s->head, k + ATT_AHEAD, 1, c->sk);
      K(fetch_rows)(c, dv, s->head, k + ATT_AHEAD, 1, c->sk);
    }
    float *part = partial ? partial + k * c->d : NULL;
    void *to_k = part ? (void *)part : att_row(c, dk, s->head, k), *to_v = part ? (void *)(part + c->sk * c->d) : att_row(c, dv, s->head, k);
    K(store_row)(to_k, part ? MT_F32 : dk->dtype, s->all_dk + k * c->padded, c->f->scale, c->d);
    K(store_row)(to_v, part ? MT_F32 : dv->dtype, s->all_dv + k * c->padded, 1, c->d);
  }
}

static void K(write_queries)(K(backward_state) *s) {
  const attention_call *c = s->c;
  for (int64_t i = 0; i < s->queries; i += ATT_BQUERIES) {
    K(transpose)(s->rows, c->padded, c->padded, s->dq + i * c->padded, MT_F32, ATT_BQUERIES, c->padded, ATT_BQUERIES);
    int64_t row = s->first + i;
    for (int64_t q = row; q < mt_min(c->sq, row + ATT_BQUERIES); q++) {
      K(fetch_rows)(c, &c->g->dq, s->head, q + ATT_AHEAD, 1, c->sq);
      K(store_row)(att_row(c, &c->g->dq, s->head, q), c->g->dq.dtype, s->rows + (q - row) * c->padded, c->f->scale, c->d);
    }
  }
}

/* A block of keys against the queries of the stretch that may see it. */
static void K(keys)(K(backward_state) *s, int64_t k) {
  const attention_call *c = s->c;
  const mt_attention_forward_args *f = c->f;
  int64_t seen = mt_min(ATT_BKEYS, mt_min(c->sk, c->seen) - k);
  int64_t i = mt_max(0, k - c->ahead - s->first) / ATT_PAD * ATT_PAD, end = mt_up(mt_min(s->queries, c->sq - s->first), ATT_PAD);
  if (f->window >= 0) end = mt_min(end, mt_up(mt_max(0, k + ATT_BKEYS + f->window - c->ahead - s->first), ATT_PAD));
  if (seen <= 0 || i >= end) return;
  const void *from_k = att_row(c, &f->k, s->head, k), *from_v = att_row(c, &f->v, s->head, k);
  s->dk = s->all_dk + k * c->padded;
  s->dv = s->all_dv + k * c->padded;
  memset(s->k_rows, 0, ATT_BKEYS * c->padded * 3 * sizeof *s->k_rows);
  K(pack_rows)(s->k_rows, c->padded, from_k, f->k.dtype, att_step(c, &f->k), seen, c->d);
  K(pack_rows)(s->v_rows, c->padded, from_v, f->v.dtype, att_step(c, &f->v), seen, c->d);
  K(pack_channels)(s->k_channels, ATT_BKEYS, c->padded, from_k, f->k.dtype, att_step(c, &f->k), seen, c->d);
  while (i < end) {
    int64_t next = mt_min(end, (i / ATT_BQUERIES + 1) * ATT_BQUERIES);
    K(block)(s, k, i, next - i);
    i = next;
  }
}

/* Queries from `first` on, as many as stay in a core's cache, against all keys: each sum continues in the order
 * of queries, and of keys, as if there were one stretch. */
static void K(stretch)(K(backward_state) *s, int64_t first) {
  const attention_call *c = s->c;
  s->first = first;
  s->queries = mt_up(mt_min(att_stretch(c), c->sq - first), ATT_BQUERIES);
  K(pack_queries)(s);
  K(query_numbers)(s);
  memset(s->dq, 0, s->queries * c->padded * sizeof *s->dq);
  K(begin)();
  for (int64_t k = 0; k < c->sk; k += ATT_BKEYS) K(keys)(s, k);
  K(end)();
  K(write_queries)(s);
}

static void K(backward)(const attention_call *c, attention_head h, float *partial, char *room) {
  K(backward_state) s = {.c = c, .head = h, .masks = K(masks_of)(c, h)};
  K(lay_out_backward)(&s, room);
  memset(s.all_dk, 0, mt_up(c->sk, ATT_BKEYS) * c->padded * 2 * sizeof *s.all_dk); /* dV follows dK */
  for (int64_t first = 0; first < c->sq; first += att_stretch(c)) K(stretch)(&s, first);
  K(write_keys)(&s, partial);
}

/* dK and dV of a group: the parts of its heads, added in their order. */
static void K(sum)(const attention_call *c, int64_t sample, int64_t group, float *partial) {
  const int64_t part = c->sk * c->d;
  attention_head h = {sample, group, group * c->per_group};
  float *first = partial + (sample * c->heads + h.head) * 2 * part; /* becomes the sum */
  for (int64_t q = 1; q < c->per_group; q++)
    V_EACH(2 * part, j, m, v_store_n(first, MT_F32, j, m, v_load_n(first, MT_F32, j, m) + v_load_n(first + q * 2 * part, MT_F32, j, m)););
  for (int64_t k = 0; k < c->sk; k++) {
    K(store_row)(att_row(c, &c->g->dk, h, k), c->g->dk.dtype, first + k * c->d, 1, c->d);
    K(store_row)(att_row(c, &c->g->dv, h, k), c->g->dv.dtype, first + part + k * c->d, 1, c->d);
  }
}
