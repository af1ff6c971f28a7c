/* The causal convolution of each channel by itself, with SiLU, and gates. A tile is a block of
 * channels, in forward of one sample: it goes through the positions in order. */
#ifndef MT_ISA
#define MT_KERNELS "conv.c"
#include "cpu.h"
#include "documents.h"

enum { CONV_BLOCK = 64, CONV_TAPS = 16 }; /* channels of a tile; most taps, which check allows */

#include "isa.h"

static int64_t conv_blocks(const mt_tensor *x) { return mt_ceil(mt_last(x), CONV_BLOCK); }

static int64_t conv_forward_tiles(const void *args, int32_t phase) {
  const mt_causal_conv_forward_args *a = args;
  return phase == 0 && mt_len(&a->x) > 0 ? a->batch * conv_blocks(&a->x) : 0;
}

static int64_t conv_backward_tiles(const void *args, int32_t phase) {
  const mt_causal_conv_backward_args *a = args;
  return phase == 0 && mt_len(&a->x) > 0 ? conv_blocks(&a->x) : 0;
}

static int64_t gate_tiles(const mt_tensor *x, int32_t phase) { return phase == 0 ? mt_row_tiles(mt_rows(x), mt_last(x)) : 0; }
static int64_t gate_forward_tiles(const void *args, int32_t phase) { return gate_tiles(&((const mt_gate_forward_args *)args)->x, phase); }
static int64_t gate_backward_tiles(const void *args, int32_t phase) { return gate_tiles(&((const mt_gate_backward_args *)args)->x, phase); }

MT_OP(causal_conv_forward, conv_forward_tiles, NULL)
MT_OP(causal_conv_backward, conv_backward_tiles, NULL)
static int64_t paged_conv_tiles(const void *args, int32_t phase) {
  const mt_paged_causal_conv_args *a = args;
  return phase < 2 ? mt_row_tiles(a->x.shape[0], mt_last(&a->x)) : 0;
}

MT_OP(paged_causal_conv, paged_conv_tiles, NULL)
MT_OP(gate_forward, gate_forward_tiles, NULL)
MT_OP(gate_backward, gate_backward_tiles, NULL)
#else

/* What a tile reads: n channels from c on, of one sample. */
typedef struct {
  const mt_tensor *x, *doc_start;
  int64_t c, n, kernel, batch, sample;
  float taps[CONV_TAPS][CONV_BLOCK], bias[CONV_BLOCK];
} K(conv);

V void K(conv_init)(K(conv) *v, const mt_tensor *x, const mt_tensor *w, const mt_tensor *bias, const mt_tensor *doc_start, int64_t batch, int64_t block) {
  *v = (K(conv)){.x = x, .doc_start = doc_start, .c = block * CONV_BLOCK, .n = mt_min(CONV_BLOCK, mt_last(x) - block * CONV_BLOCK), .kernel = mt_last(w), .batch = batch};
  for (int64_t i = 0; i < v->n; i++)
    for (int64_t j = 0; j < v->kernel; j++)
      V_BY_DTYPE(w->dtype, v->taps[j][i] = v_load_n(w->data, T, (v->c + i) * v->kernel + j, 1)[0]);
  for (int64_t i = 0; i < v->n && mt_given(bias); i++) V_BY_DTYPE(bias->dtype, v->bias[i] = v_load_n(bias->data, T, v->c + i, 1)[0]);
}

/* The first tap of position t whose position is of its document. */
V int64_t K(conv_first)(const K(conv) *v, int64_t t) { return mt_max(0, doc_first(v->doc_start, v->sample, t) - (t - v->kernel + 1)); }

V const void *K(conv_row)(const K(conv) *v, const mt_tensor *x, int64_t t) { return mt_row(x, t * v->batch + v->sample); }

/* The sum of bias and taps at t, for m channels from c + i on. */
V vf K(conv_sum)(const K(conv) *v, int T, int64_t t, int64_t first, int64_t i, int64_t m) {
  vf z = v_load_n(v->bias, MT_F32, i, m);
  for (int64_t j = first; j < v->kernel; j++) z = v_mad(v_load_n(v->taps[j], MT_F32, i, m), v_load_n(K(conv_row)(v, v->x, t - v->kernel + 1 + j), T, v->c + i, m), z);
  return z;
}

static int32_t K(causal_conv_forward)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_causal_conv_forward_args *a = args;
  K(conv) v;
  K(conv_init)(&v, &a->x, &a->w, &a->bias, &a->doc_start, a->batch, tile / a->batch);
  v.sample = tile % a->batch;
  for (int64_t t = 0; t < a->x.shape[0] / a->batch; t++) {
    int64_t first = K(conv_first)(&v, t);
    void *y = mt_row(&a->y, t * v.batch + v.sample);
    V_BY_DTYPE(a->x.dtype, V_EACH(v.n, i, m, vf z = K(conv_sum)(&v, T, t, first, i, m); v_store_n(y, T, v.c + i, m, a->plain ? z : z * v_sigmoid(z));););
  }
  return 0;
}

/* Gradients of a block: of the taps, of the biases, and of the inputs of the last positions, each at index
 * position % taps. */
typedef struct {
  float dw[CONV_TAPS][CONV_BLOCK], dbias[CONV_BLOCK], dx[CONV_TAPS][CONV_BLOCK];
} K(conv_grads);

V void K(conv_leave)(const K(conv) *v, K(conv_grads) *g, const mt_tensor *dx, int64_t t) {
  void *to = mt_row(dx, t * v->batch + v->sample);
  float *from = g->dx[t % v->kernel];
  V_BY_DTYPE(dx->dtype, V_EACH(v->n, i, m, v_store_n(to, T, v->c + i, m, v_load_n(from, MT_F32, i, m)); v_store_n(from, MT_F32, i, m, (vf){0});););
}

V void K(conv_back)(const mt_causal_conv_backward_args *a, const K(conv) *v, K(conv_grads) *g, int T, int64_t t) {
  int64_t first = K(conv_first)(v, t);
  const void *dy = K(conv_row)(v, &a->dy, t);
  V_EACH(v->n, i, m,
    vf rest, z = K(conv_sum)(v, T, t, first, i, m), s = v_sigmoid_pair(z, &rest), dz = v_load_n(dy, T, v->c + i, m);
    if (!a->plain) dz *= s + z * s * rest;
    v_store_n(g->dbias, MT_F32, i, m, v_load_n(g->dbias, MT_F32, i, m) + dz);
    for (int64_t j = first; j < v->kernel; j++) {
      int64_t from = t - v->kernel + 1 + j;
      float *dx = g->dx[from % v->kernel];
      v_store_n(g->dw[j], MT_F32, i, m, v_mad(dz, v_load_n(K(conv_row)(v, v->x, from), T, v->c + i, m), v_load_n(g->dw[j], MT_F32, i, m)));
      v_store_n(dx, MT_F32, i, m, v_mad(dz, v_load_n(v->taps[j], MT_F32, i, m), v_load_n(dx, MT_F32, i, m)));
    });
}

/* Adds the gradients of taps and biases at the last positions to those of all. */
V void K(conv_add)(const mt_causal_conv_backward_args *a, const K(conv) *v, K(conv_grads) *g) {
  for (int64_t i = 0; i < v->n; i++)
    for (int64_t j = 0; j < v->kernel; j++) ((float *)a->dw.data)[(v->c + i) * v->kernel + j] += g->dw[j][i];
  for (int64_t i = 0; i < v->n && mt_given(&a->dbias); i++) ((float *)a->dbias.data)[v->c + i] += g->dbias[i];
  memset(g->dw, 0, sizeof g->dw);
  memset(g->dbias, 0, sizeof g->dbias);
}

static int32_t K(causal_conv_backward)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_causal_conv_backward_args *a = args;
  int64_t s = a->x.shape[0] / a->batch;
  K(conv) v;
  K(conv_grads) g = {0};
  K(conv_init)(&v, &a->x, &a->w, &a->bias, &a->doc_start, a->batch, tile);
  for (; v.sample < a->batch; v.sample++) {
    for (int64_t t = 0; t < s; t++) {
      V_BY_DTYPE(a->x.dtype, K(conv_back)(a, &v, &g, T, t));
      if (t >= v.kernel - 1) K(conv_leave)(&v, &g, &a->dx, t - v.kernel + 1);
      if (t % 128 == 127 || t == s - 1) K(conv_add)(a, &v, &g);
    }
    for (int64_t t = mt_max(0, s - v.kernel + 1); t < s; t++) K(conv_leave)(&v, &g, &a->dx, t);
  }
  return 0;
}

/* Phase 0 keeps a row's inputs, phase 1 makes its outputs; a tile is some rows. */
static int32_t K(paged_causal_conv)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_paged_causal_conv_args *a = args;
  int64_t n = mt_last(&a->x), kernel = mt_last(&a->w);
  mt_range r = mt_row_range(a->x.shape[0], n, tile);
  float *inputs = a->inputs.data;
  for (int64_t row = r.from; row < r.to; row++) {
    int64_t t = doc_position(&a->rows, row);
    const void *x = mt_row(&a->x, row);
    void *y = mt_row(&a->y, row);
    /* Inputs of the kernel's positions, in blocks; before the text there are none. */
    const float *at[CONV_TAPS];
    for (int64_t j = 0; j < kernel; j++) {
      int64_t from = t - kernel + 1 + j;
      at[j] = from < 0 ? NULL : inputs + doc_block(&a->tables, &a->rows, row, from) * a->inputs.stride[0] + from % PAGED_BLOCK * a->inputs.stride[1];
    }
    if (phase == 0) {
      V_BY_DTYPE(a->x.dtype, V_EACH(n, i, m, v_store_n((float *)at[kernel - 1], MT_F32, i, m, v_load_n(x, T, i, m)););)
      continue;
    }
    V_BY_DTYPE(a->x.dtype, V_EACH(n, i, m,
      vf z = {0};
      if (mt_given(&a->bias)) z = v_load_n(a->bias.data, T, i, m);
      for (int64_t j = 0; j < kernel; j++) {
        vf w = {0};
        if (at[j] == NULL) continue;
        for (int64_t l = 0; l < m; l++) w[l] = v_load_n(a->w.data, T, (i + l) * kernel + j, 1)[0];
        z = v_mad(w, v_load_n(at[j], MT_F32, i, m), z);
      }
      v_store_n(y, T, i, m, a->plain ? z : z * v_sigmoid(z)););)
  }
  return 0;
}

/* ---- gates ---- */

static int32_t K(gate_forward)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_gate_forward_args *a = args;
  int64_t n = mt_last(&a->x);
  mt_range r = mt_row_range(mt_rows(&a->x), n, tile);
  for (int64_t row = r.from; row < r.to; row++) {
    const void *x = mt_row(&a->x, row), *g = mt_row(&a->g, row);
    void *y = mt_row(&a->y, row);
    V_BY_DTYPE(a->x.dtype, V_EACH(n, i, m,
      vf gate = v_load_n(g, T, i, m), factor = v_sigmoid(gate);
      if (a->silu) factor *= gate;
      if (a->plain) factor = gate;
      v_store_n(y, T, i, m, v_load_n(x, T, i, m) * factor);););
  }
  return 0;
}

static int32_t K(gate_backward)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_gate_backward_args *a = args;
  int64_t n = mt_last(&a->x);
  mt_range r = mt_row_range(mt_rows(&a->x), n, tile);
  for (int64_t row = r.from; row < r.to; row++) {
    const void *x = mt_row(&a->x, row), *g = mt_row(&a->g, row), *dy = mt_row(&a->dy, row);
    void *dx = mt_row(&a->dx, row), *dg = mt_row(&a->dg, row);
    V_BY_DTYPE(a->x.dtype, V_EACH(n, i, m,
      vf rest, gate = v_load_n(g, T, i, m), factor = v_sigmoid_pair(gate, &rest), slope = factor * rest, d = v_load_n(dy, T, i, m);
      if (a->silu) {
        slope = factor + gate * slope;
        factor *= gate;
      }
      if (a->plain) slope = (vf){0} + 1, factor = gate;
      v_store_n(dg, T, i, m, d * v_load_n(x, T, i, m) * slope);
      v_store_n(dx, T, i, m, d * factor);););
  }
  return 0;
}
#endif
