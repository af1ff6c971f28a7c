/* The gated delta rule, and Mamba-2's scan, as the recurrence they are: the columns of a state depend on each other in
 * nothing, so a block of them stays in the first cache while positions pass, which needs about half
 * the operations of the form in products of chunks. Backward goes chunk by chunk from the last: it
 * makes the states of a chunk again from the one that forward kept. */
#ifndef MT_ISA
#define MT_KERNELS "delta.c"
#include "cpu.h"
#include "documents.h"
#include "functions.h"

enum {
  DELTA_CHUNK = 64, /* device.DeltaChunk */
  DELTA_BACK = 32,  /* columns of a block in backward */
  DELTA_SLOTS = 32  /* pieces of scratch in backward, whatever the number of key heads */
};

/* Floats of a position's vectors, as they lie in scratch. */
static int64_t delta_width(int64_t n) { return mt_up(n, 16); }

/* Forward, of a tile: the state, and a window of queries and keys. */
static int64_t delta_forward_floats(const mt_delta_rule_forward_args *a) {
  int64_t dk = mt_last(&a->q);
  return dk * delta_width(mt_last(&a->v)) + 2 * DELTA_CHUNK * delta_width(dk);
}

/* Backward, of a slot: gradients of the states of the key head's value heads; queries, keys; a
 * block's states before and behind each position, and its rests; by position and channel a vector of
 * gradients of queries and of keys, whose lanes are added up last. */
static int64_t delta_backward_floats(const mt_delta_rule_backward_args *a) {
  const mt_delta_rule_forward_args *f = &a->forward;
  int64_t dk = mt_last(&f->q), per_key = f->v.shape[1] / f->q.shape[1];
  return per_key * dk * mt_up(mt_last(&f->v), DELTA_BACK) + 2 * DELTA_CHUNK * delta_width(dk) + (DELTA_CHUNK + 1) * dk * DELTA_BACK + DELTA_CHUNK * DELTA_BACK +
         2 * DELTA_CHUNK * dk * 16;
}

/* Slots take key heads in turn; sums are those of ALog, DtBias and Skip, by sample and head. */
enum { DELTA_SUMS = 3 };
static int64_t delta_slots(const mt_delta_rule_backward_args *a) { return mt_min(DELTA_SLOTS, a->forward.batch * a->forward.q.shape[1]); }
static int64_t delta_sums(const mt_delta_rule_backward_args *a) { return DELTA_SUMS * a->forward.batch * a->forward.v.shape[1]; } /* doubles */

#include "isa.h"

static int64_t delta_forward_tiles(const void *args, int32_t phase) {
  const mt_delta_rule_forward_args *a = args;
  return phase == 0 && a->q.shape[0] > 0 ? a->batch * a->v.shape[1] : 0;
}
static int64_t delta_forward_scratch(const void *args) {
  const mt_delta_rule_forward_args *a = args;
  return delta_forward_tiles(args, 0) * delta_forward_floats(a) * (int64_t)sizeof(float);
}

/* Phase 1 adds up over samples. */
static int64_t delta_backward_tiles(const void *args, int32_t phase) {
  const mt_delta_rule_backward_args *a = args;
  if (a->forward.q.shape[0] == 0) return 0;
  return phase == 0 ? delta_slots(a) : phase == 1;
}
static int64_t delta_backward_scratch(const void *args) {
  const mt_delta_rule_backward_args *a = args;
  return delta_sums(a) * (int64_t)sizeof(double) + delta_slots(a) * delta_backward_floats(a) * (int64_t)sizeof(float);
}

MT_OP(delta_rule_forward, delta_forward_tiles, delta_forward_scratch)
static int64_t paged_delta_tiles(const void *args, int32_t phase) {
  const mt_paged_delta_rule_args *a = args;
  return phase == 0 && a->q.shape[0] > 0 ? a->v.shape[1] : 0;
}
static int64_t paged_delta_scratch(const void *args) {
  const mt_paged_delta_rule_args *a = args;
  return a->v.shape[1] * 2 * delta_width(mt_last(&a->q)) * (int64_t)sizeof(float);
}

MT_OP(paged_delta_rule, paged_delta_tiles, paged_delta_scratch)
MT_OP(delta_rule_backward, delta_backward_tiles, delta_backward_scratch)
#else

/* A value head of a sample. */
typedef struct {
  const mt_delta_rule_forward_args *a;
  int64_t sample, head, key, heads, keys, batch, s, dk, dv;
  float rate, bias, skip; /* -e^ALog, DtBias, Skip */
  int space;              /* StateSpace */
} K(delta_head);

V float K(delta_value)(const mt_tensor *t, int64_t at) {
  float x = 0;
  V_BY_DTYPE(t->dtype, x = v_load_n(t->data, T, at, 1)[0]);
  return x;
}

V void K(delta_store)(const mt_tensor *t, int64_t at, float x) { V_BY_DTYPE(t->dtype, v_store_n(t->data, T, at, 1, v_set(x))); }

V K(delta_head) K(delta_head_of)(const mt_delta_rule_forward_args *a, int64_t sample, int64_t head) {
  K(delta_head) h = {.a = a, .sample = sample, .head = head, .heads = a->v.shape[1], .keys = a->q.shape[1], .batch = a->batch, .s = a->q.shape[0] / a->batch, .dk = mt_last(&a->q), .dv = mt_last(&a->v)};
  h.key = head * h.keys / h.heads;
  h.rate = -(float)mt_exp(K(delta_value)(&a->a_log, head));
  h.bias = K(delta_value)(&a->dt_bias, head);
  h.space = a->state_space != 0;
  if (h.space) h.skip = K(delta_value)(&a->skip, head);
  return h;
}

V int64_t K(delta_token)(const K(delta_head) *h, int64_t t) { return t * h->batch + h->sample; }
V int64_t K(delta_first)(const K(delta_head) *h, int64_t t) { return doc_first(&h->a->doc_start, h->sample, t); }

/* Whether States has what was before position t, and where. */
V int K(delta_saves)(const K(delta_head) *h, int64_t t) {
  int64_t behind = t - K(delta_first)(h, t);
  return behind > 0 && behind % DELTA_CHUNK == 0;
}
V float *K(delta_saved)(const K(delta_head) *h, int64_t t) {
  return (float *)h->a->states.data + ((h->sample * h->heads + h->head) * h->a->states.shape[1] + t / DELTA_CHUNK) * h->dk * h->dv;
}

/* y = x of a row times scale/|x|, |x| = √(Σx² + 1e-6); it returns 1/|x|. In a state space y = x. */
V float K(delta_unit)(const K(delta_head) *h, float *y, const mt_tensor *x, int64_t row, float scale) {
  const void *from = mt_row(x, row);
  int64_t n = mt_last(x);
  vf sum = {0};
  V_BY_DTYPE(x->dtype, V_EACH(n, i, m, vf e = v_load_n(from, T, i, m); sum = v_mad(e, e, sum); v_store_n(y, MT_F32, i, m, e);));
  if (h->space) return 1;
  float inverse = 1 / sqrtf(v_sum(sum) + 1e-6f);
  V_EACH(n, i, m, v_store_n(y, MT_F32, i, m, v_load_n(y, MT_F32, i, m) * (inverse * scale)););
  return inverse;
}

/* A position's numbers of a value head; keep is e^g, 0 where a document begins. In a state space beta is Δ,
 * and `held` says whether a limit clamps it. */
typedef struct {
  float a, g, keep, beta;
  int held, space;
} K(delta_step);

V K(delta_step) K(delta_step_of)(const K(delta_head) *h, int64_t token, int fresh) {
  const mt_delta_rule_forward_args *a = h->a;
  K(delta_step) x = {.a = K(delta_value)(&a->a, mt_row_offset(&a->a, token) + h->head) + h->bias};
  float dt = (x.a > 0 ? x.a : 0) + (float)mt_log1p(mt_exp(-fabsf(x.a))); /* softplus */
  if (h->space) {
    float low = dt < a->dt_min ? a->dt_min : dt, high = a->dt_max > 0 && low > a->dt_max ? a->dt_max : low;
    x.space = 1, x.held = high != dt, x.beta = dt = high;
  } else {
    x.beta = 1 / (1 + (float)mt_exp(-K(delta_value)(&a->b, mt_row_offset(&a->b, token) + h->head)));
  }
  x.g = h->rate * dt;
  x.keep = fresh ? 0 : (float)mt_exp(x.g);
  return x;
}

V K(delta_step) K(delta_step_at)(const K(delta_head) *h, int64_t t) { return K(delta_step_of)(h, K(delta_token)(h, t), t == K(delta_first)(h, t)); }

/* The state of `nv` vectors of columns, rows `step` floats apart, moves over a position: next, which
 * may be the state itself, and rest. Sums are of 4 rows at a time, so that they need not wait. */
V void K(delta_move)(int nv, float *next, const float *state, int64_t step, int64_t dk, const float *k, const vf *v, K(delta_step) x, vf *rest) {
  vf sum[4][4] = {0};
  if (x.keep != 0 && !x.space)
    for (int64_t i = 0; i < dk; i++)
      for (int c = 0; c < nv; c++) sum[i % 4][c] = v_mad(v_set(k[i]), v_load(state + i * step, MT_F32, c * LANES), sum[i % 4][c]);
  vf delta[4];
  for (int c = 0; c < nv; c++) {
    rest[c] = x.space ? v[c] : v[c] - x.keep * ((sum[0][c] + sum[1][c]) + (sum[2][c] + sum[3][c]));
    delta[c] = x.beta * rest[c];
  }
  for (int64_t i = 0; i < dk; i++)
    for (int c = 0; c < nv; c++) {
      vf old = {0}; /* nothing passes a document's beginning, not even infinity */
      if (x.keep != 0) old = v_load(state + i * step, MT_F32, c * LANES) * x.keep;
      v_store(next + i * step, MT_F32, c * LANES, v_mad(v_set(k[i]), delta[c], old));
    }
}

/* ---- forward ---- */

/* Positions from..to of nv vectors of columns from c on. */
V void K(delta_columns)(int nv, const K(delta_head) *h, float *state, int64_t step, const float *q, const float *k, const K(delta_step) *x, int64_t c, int64_t from, int64_t to) {
  const mt_delta_rule_forward_args *a = h->a;
  int64_t wide = delta_width(h->dk), n = mt_min(nv * LANES, h->dv - c);
  for (int64_t t = from; t < to; t++) {
    int64_t row = K(delta_token)(h, t) * h->heads + h->head;
    const void *in = mt_row(&a->v, row);
    void *out = mt_row(&a->o, row);
    if (mt_given(&a->states) && K(delta_saves)(h, t))
      for (int64_t i = 0; i < h->dk; i++) memcpy(K(delta_saved)(h, t) + i * h->dv + c, state + i * step, n * sizeof(float));
    vf v[4] = {0}, rest[4], o[4] = {0};
    for (int j = 0; j < nv; j++) V_BY_DTYPE(a->v.dtype, if (j * LANES < n) v[j] = v_load_n(in, T, c + j * LANES, mt_min(LANES, n - j * LANES)));
    K(delta_move)(nv, state, state, step, h->dk, k + (t - from) * wide, v, x[t - from], rest);
    for (int64_t i = 0; i < h->dk; i++)
      for (int j = 0; j < nv; j++) o[j] = v_mad(v_set(q[(t - from) * wide + i]), v_load(state + i * step, MT_F32, j * LANES), o[j]);
    if (h->space)
      for (int j = 0; j < nv; j++) o[j] += h->skip * v[j];
    for (int j = 0; j < nv; j++) V_BY_DTYPE(a->o.dtype, if (j * LANES < n) v_store_n(out, T, c + j * LANES, mt_min(LANES, n - j * LANES), o[j]));
  }
}

static int32_t K(delta_rule_forward)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_delta_rule_forward_args *a = args;
  K(delta_head) h = K(delta_head_of)(a, tile / a->v.shape[1], tile % a->v.shape[1]);
  int64_t step = delta_width(h.dv), wide = delta_width(h.dk);
  float *state = (float *)scratch + tile * delta_forward_floats(a), *q = state + h.dk * step, *k = q + DELTA_CHUNK * wide, scale = 1 / sqrtf(h.dk);
  memset(state, 0, h.dk * step * sizeof(float));
  for (int64_t from = 0; from < h.s; from += DELTA_CHUNK) {
    int64_t to = mt_min(h.s, from + DELTA_CHUNK);
    K(delta_step) x[DELTA_CHUNK];
    for (int64_t t = from; t < to; t++) {
      int64_t row = K(delta_token)(&h, t) * h.keys + h.key;
      K(delta_unit)(&h, q + (t - from) * wide, &a->q, row, scale);
      K(delta_unit)(&h, k + (t - from) * wide, &a->k, row, 1);
      x[t - from] = K(delta_step_at)(&h, t);
    }
    int64_t c = 0;
    for (; c + 4 * LANES <= step; c += 4 * LANES) K(delta_columns)(4, &h, state + c, step, q, k, x, c, from, to);
    for (; c < h.dv; c += LANES) K(delta_columns)(1, &h, state + c, step, q, k, x, c, from, to);
  }
  return 0;
}

/* ---- rows of several sequences ---- */

/* Columns from c on of one row: the state behind goes to next. */
V void K(delta_row)(int nv, const K(delta_head) *h, float *next, const float *state, int64_t step, const float *q, const float *k, K(delta_step) x, int64_t c, int64_t row) {
  int64_t at = row * h->heads + h->head, n = mt_min(nv * LANES, h->dv - c);
  const void *in = mt_row(&h->a->v, at);
  void *out = mt_row(&h->a->o, at);
  vf v[4] = {0}, rest[4], o[4] = {0};
  for (int j = 0; j < nv; j++) V_BY_DTYPE(h->a->v.dtype, if (j * LANES < n) v[j] = v_load_n(in, T, c + j * LANES, mt_min(LANES, n - j * LANES)));
  K(delta_move)(nv, next + c, state + c, step, h->dk, k, v, x, rest);
  for (int64_t i = 0; i < h->dk; i++)
    for (int j = 0; j < nv; j++) o[j] = v_mad(v_set(q[i]), v_load(next + c + i * step, MT_F32, j * LANES), o[j]);
  if (h->space)
    for (int j = 0; j < nv; j++) o[j] += h->skip * v[j];
  for (int j = 0; j < nv; j++) V_BY_DTYPE(h->a->o.dtype, if (j * LANES < n) v_store_n(out, T, c + j * LANES, mt_min(LANES, n - j * LANES), o[j]));
}

static int32_t K(paged_delta_rule)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_paged_delta_rule_args *a = args;
  mt_delta_rule_forward_args f = {.o = a->o, .q = a->q, .k = a->k, .v = a->v, .a = a->a, .b = a->b, .a_log = a->a_log, .dt_bias = a->dt_bias, .skip = a->skip, .batch = 1, .state_space = a->state_space, .dt_min = a->dt_min, .dt_max = a->dt_max};
  K(delta_head) h = K(delta_head_of)(&f, 0, tile);
  int64_t wide = delta_width(h.dk), step = mt_last(&a->states);
  float *q = (float *)scratch + tile * 2 * wide, *k = q + wide, scale = 1 / sqrtf(h.dk);
  for (int64_t row = 0; row < a->q.shape[0]; row++) {
    int64_t t = doc_position(&a->rows, row);
    float *states = (float *)a->states.data + tile * a->states.stride[1];
    float *next = states + doc_block(&a->tables, &a->rows, row, t) * a->states.stride[0];
    const float *state = t == 0 ? next : states + doc_block(&a->tables, &a->rows, row, t - 1) * a->states.stride[0];
    K(delta_unit)(&h, q, &a->q, row * h.keys + h.key, scale);
    K(delta_unit)(&h, k, &a->k, row * h.keys + h.key, 1);
    K(delta_step) x = K(delta_step_of)(&h, row, t == 0);
    int64_t c = 0;
    for (; c + 4 * LANES <= step; c += 4 * LANES) K(delta_row)(4, &h, next, state, step, q, k, x, c, row);
    for (; c < h.dv; c += LANES) K(delta_row)(1, &h, next, state, step, q, k, x, c, row);
  }
  return 0;
}

/* ---- backward ---- */

enum { K(BACK_VECTORS) = DELTA_BACK / LANES };

/* What a slot works in; see delta_backward_floats. */
typedef struct {
  float *dstates, *q, *k, *states, *rests, *dq, *dk;
  int64_t wide, width; /* floats between positions of q and k; between rows of dstates */
  float q_inverse[DELTA_CHUNK], k_inverse[DELTA_CHUNK]; /* 1/|q|, 1/|k| */
} K(delta_room);

V K(delta_room) K(delta_room_of)(const mt_delta_rule_backward_args *a, float *at) {
  const mt_delta_rule_forward_args *f = &a->forward;
  int64_t dk = mt_last(&f->q);
  K(delta_room) r = {.wide = delta_width(dk), .width = mt_up(mt_last(&f->v), DELTA_BACK), .dstates = at};
  r.q = r.dstates + f->v.shape[1] / f->q.shape[1] * dk * r.width;
  r.k = r.q + DELTA_CHUNK * r.wide;
  r.states = r.k + DELTA_CHUNK * r.wide;
  r.rests = r.states + (DELTA_CHUNK + 1) * dk * DELTA_BACK;
  r.dq = r.rests + DELTA_CHUNK * DELTA_BACK;
  r.dk = r.dq + DELTA_CHUNK * dk * 16;
  return r;
}

V void K(delta_load)(vf *to, const mt_tensor *t, int64_t row, int64_t c, int64_t n) {
  const void *from = mt_row(t, row);
  for (int j = 0; j < K(BACK_VECTORS); j++) {
    to[j] = (vf){0};
    V_BY_DTYPE(t->dtype, if (j * LANES < n) to[j] = v_load_n(from, T, c + j * LANES, mt_min(LANES, n - j * LANES)));
  }
}

/* The states of a block of n columns from c on, before and behind each position of a chunk, and its rests. */
V void K(delta_again)(const K(delta_head) *h, K(delta_room) *r, const K(delta_step) *x, int64_t c, int64_t n, int64_t from, int64_t to) {
  int64_t size = h->dk * DELTA_BACK;
  memset(r->states, 0, size * sizeof(float));
  if (K(delta_saves)(h, from))
    for (int64_t i = 0; i < h->dk; i++) memcpy(r->states + i * DELTA_BACK, K(delta_saved)(h, from) + i * h->dv + c, n * sizeof(float));
  for (int64_t t = from; t < to; t++) {
    vf v[K(BACK_VECTORS)], rest[K(BACK_VECTORS)];
    float *state = r->states + (t - from) * size;
    K(delta_load)(v, &h->a->v, K(delta_token)(h, t) * h->heads + h->head, c, n);
    for (int j = 0; j < K(BACK_VECTORS); j += 2) {
      int nv = K(BACK_VECTORS) - j < 2 ? 1 : 2;
      K(delta_move)(nv, state + size + j * LANES, state + j * LANES, DELTA_BACK, h->dk, r->k + (t - from) * r->wide, v + j, x[t - from], rest + j);
    }
    for (int j = 0; j < K(BACK_VECTORS); j++) v_store(r->rests + (t - from) * DELTA_BACK, MT_F32, j * LANES, rest[j]);
  }
}

/* The gradients of one position, of a block of columns; dstate, rows r->width apart, becomes that
 * of the state before. It adds to those of beta and keep. */
V void K(delta_back)(const mt_delta_rule_backward_args *a, const K(delta_head) *h, K(delta_room) *r, K(delta_step) x, float *dstate, int64_t c, int64_t n, int64_t t, int64_t at, float *dbeta, float *dkeep, float *dskip) {
  enum { NV = K(BACK_VECTORS) };
  int64_t row = K(delta_token)(h, t) * h->heads + h->head, size = h->dk * DELTA_BACK;
  const float *before = r->states + at * size, *behind = before + size, *q = r->q + at * r->wide, *k = r->k + at * r->wide;
  float *dq = r->dq + at * h->dk * LANES, *dk = r->dk + at * h->dk * LANES;
  /* dS += q·do; dq = state after · do; the gradient of v's remainder, and of k through the update. */
  vf d_o[NV], rest[NV], drest[NV] = {0}, keep_sum = {0}, beta_sum = {0}, skip_sum = {0};
  K(delta_load)(d_o, &a->d_o, row, c, n);
  for (int j = 0; j < NV; j++) rest[j] = v_load(r->rests + at * DELTA_BACK, MT_F32, j * LANES);
  for (int64_t i = 0; i < h->dk; i++) {
    vf to_q = {0}, to_k = {0};
    for (int j = 0; j < NV; j++) {
      float *d = dstate + i * r->width + j * LANES;
      vf ds = v_mad(v_set(q[i]), d_o[j], v_load(d, MT_F32, 0));
      to_q = v_mad(v_load(behind + i * DELTA_BACK, MT_F32, j * LANES), d_o[j], to_q);
      drest[j] = v_mad(v_set(k[i]), ds, drest[j]);
      to_k = v_mad(ds, rest[j], to_k);
      v_store(d, MT_F32, 0, ds);
    }
    v_store(dq, MT_F32, i * LANES, v_load(dq, MT_F32, i * LANES) + to_q);
    v_store(dk, MT_F32, i * LANES, v_mad(v_set(x.beta), to_k, v_load(dk, MT_F32, i * LANES)));
  }
  /* Through beta: v and beta. */
  for (int j = 0; j < NV; j++) {
    beta_sum += drest[j] * rest[j];
    drest[j] *= x.beta;
  }
  void *dv = mt_row(&a->dv, row);
  for (int j = 0; j < NV; j++) {
    vf d = h->space ? drest[j] + h->skip * d_o[j] : drest[j];
    skip_sum += d_o[j] * rest[j];
    V_BY_DTYPE(a->dv.dtype, if (j * LANES < n) v_store_n(dv, T, c + j * LANES, mt_min(LANES, n - j * LANES), d));
  }
  *dbeta += v_sum(beta_sum);
  *dskip += v_sum(skip_sum); /* in a state space rest is v */
  /* Through what the state before gave for k: k, keep, and the state before itself. */
  for (int64_t i = 0; i < h->dk; i++) {
    vf to_k = {0};
    for (int j = 0; j < NV; j++) {
      float *d = dstate + i * r->width + j * LANES;
      vf ds = {0};
      if (x.keep != 0) {
        vf old = v_load(before + i * DELTA_BACK, MT_F32, j * LANES);
        ds = v_load(d, MT_F32, 0);
        if (!h->space) {
          ds = v_mad(v_set(-k[i]), drest[j], ds);
          to_k = v_mad(old, drest[j], to_k);
        }
        keep_sum = v_mad(ds, old, keep_sum);
      }
      v_store(d, MT_F32, 0, ds * x.keep);
    }
    v_store(dk, MT_F32, i * LANES, v_mad(v_set(-x.keep), to_k, v_load(dk, MT_F32, i * LANES)));
  }
  *dkeep += v_sum(keep_sum);
}

/* One value head over a chunk; sums gets what ALog, DtBias and Skip do. */
V void K(delta_head_back)(const mt_delta_rule_backward_args *a, const K(delta_head) *h, K(delta_room) *r, float *dstate, int64_t from, int64_t to, double *sums) {
  K(delta_step) x[DELTA_CHUNK];
  float dbeta[DELTA_CHUNK] = {0}, dkeep[DELTA_CHUNK] = {0}, dskip[DELTA_CHUNK] = {0};
  for (int64_t t = from; t < to; t++) x[t - from] = K(delta_step_at)(h, t);
  for (int64_t c = 0; c < h->dv; c += DELTA_BACK) {
    int64_t n = mt_min(DELTA_BACK, h->dv - c);
    K(delta_again)(h, r, x, c, n, from, to);
    for (int64_t t = to - 1; t >= from; t--) K(delta_back)(a, h, r, x[t - from], dstate + c, c, n, t, t - from, &dbeta[t - from], &dkeep[t - from], &dskip[t - from]);
  }
  for (int64_t t = to - 1; t >= from; t--) {
    K(delta_step) y = x[t - from];
    int64_t token = K(delta_token)(h, t);
    float dg = dkeep[t - from] * y.keep, ddt = dg * h->rate;
    if (h->space)
      ddt = y.held ? 0 : ddt + dbeta[t - from];
    else
      K(delta_store)(&a->db, mt_row_offset(&a->db, token) + h->head, dbeta[t - from] * y.beta * (1 - y.beta));
    float da = ddt / (1 + (float)mt_exp(-y.a));
    K(delta_store)(&a->da, mt_row_offset(&a->da, token) + h->head, da);
    sums[0] += dg * y.g;
    sums[1] += da;
    sums[2] += dskip[t - from];
  }
}

/* dx of a row from the lanes of the gradient of y = x·inverse, times scale; of y = x in a state space. */
V void K(delta_unit_back)(const K(delta_head) *h, const mt_tensor *dx, int64_t row, const float *lanes, const float *y, float inverse, float scale) {
  int64_t n = mt_last(dx);
  void *to = mt_row(dx, row);
  float d[16], along = 0;
  for (int64_t i = 0; i < n && !h->space; i++) along += v_sum(v_load(lanes, MT_F32, i * LANES)) * scale * y[i];
  for (int64_t i = 0; i < n; i += LANES) {
    int64_t m = mt_min(LANES, n - i);
    for (int64_t j = 0; j < m; j++) d[j] = (v_sum(v_load(lanes, MT_F32, (i + j) * LANES)) * scale - along * y[i + j]) * inverse;
    V_BY_DTYPE(dx->dtype, v_store_n(to, T, i, m, v_load_n(d, MT_F32, 0, m)));
  }
}

/* A key head of a sample, chunk by chunk from the last. */
V void K(delta_key_back)(const mt_delta_rule_backward_args *a, K(delta_room) *r, int64_t sample, int64_t key, double *sums) {
  const mt_delta_rule_forward_args *f = &a->forward;
  int64_t per_key = f->v.shape[1] / f->q.shape[1];
  K(delta_head) h = K(delta_head_of)(f, sample, key * per_key);
  /* From the last chunk to the first: queries and keys of length 1, all value heads of the key, then back
   * through the length. */
  float root = h.space ? 1 : sqrtf(h.dk);
  memset(r->dstates, 0, per_key * h.dk * r->width * sizeof(float));
  for (int64_t to = h.s, from; to > 0; to = from) {
    from = to - 1 - (to - 1 - K(delta_first)(&h, to - 1)) % DELTA_CHUNK;
    for (int64_t t = from; t < to; t++) {
      int64_t row = K(delta_token)(&h, t) * h.keys + key;
      r->q_inverse[t - from] = K(delta_unit)(&h, r->q + (t - from) * r->wide, &f->q, row, 1 / root);
      r->k_inverse[t - from] = K(delta_unit)(&h, r->k + (t - from) * r->wide, &f->k, row, 1);
    }
    memset(r->dq, 0, (to - from) * h.dk * LANES * sizeof(float));
    memset(r->dk, 0, (to - from) * h.dk * LANES * sizeof(float));
    for (int64_t i = 0; i < per_key; i++) {
      K(delta_head) value = K(delta_head_of)(f, sample, key * per_key + i);
      K(delta_head_back)(a, &value, r, r->dstates + i * h.dk * r->width, from, to, sums + DELTA_SUMS * (sample * h.heads + value.head));
    }
    for (int64_t t = from; t < to; t++) {
      int64_t row = K(delta_token)(&h, t) * h.keys + key, at = (t - from) * h.dk * LANES;
      float *q = r->q + (t - from) * r->wide;
      for (int64_t i = 0; i < h.dk; i++) q[i] *= root;
      K(delta_unit_back)(&h, &a->dq, row, r->dq + at, q, r->q_inverse[t - from], 1 / root);
      K(delta_unit_back)(&h, &a->dk, row, r->dk + at, r->k + (t - from) * r->wide, r->k_inverse[t - from], 1);
    }
  }
}

static int32_t K(delta_rule_backward)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_delta_rule_backward_args *a = args;
  int64_t heads = a->forward.v.shape[1], keys = a->forward.q.shape[1], batch = a->forward.batch;
  double *sums = scratch;
  if (phase == 1) {
    for (int64_t h = 0; h < heads; h++) {
      double log = 0, bias = 0, skip = 0;
      for (int64_t sample = 0; sample < batch; sample++) {
        const double *own = sums + DELTA_SUMS * (sample * heads + h);
        log += own[0], bias += own[1], skip += own[2];
      }
      ((float *)a->da_log.data)[h] += (float)log;
      ((float *)a->ddt_bias.data)[h] += (float)bias;
      if (a->forward.state_space) ((float *)a->dskip.data)[h] += (float)skip;
    }
    return 0;
  }
  K(delta_room) r = K(delta_room_of)(a, (float *)(sums + delta_sums(a)) + tile * delta_backward_floats(a));
  for (int64_t i = tile; i < batch * keys; i += delta_slots(a)) {
    int64_t sample = i / keys, key = i % keys, per_key = heads / keys;
    memset(sums + DELTA_SUMS * (sample * heads + key * per_key), 0, DELTA_SUMS * per_key * sizeof(double));
    K(delta_key_back)(a, &r, sample, key, sums);
  }
  return 0;
}
#endif
