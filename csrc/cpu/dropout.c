/* Dropout with bias and residual. The words of a row are drawn a stretch of
 * channels at a time into a buffer, then compared. */
#ifndef MT_ISA
enum { STRETCH = 1024 }; /* channels; a multiple of four times the lanes */

#define MT_KERNELS "dropout.c"
#include "isa.h"

static int64_t add_tiles(const void *args, int32_t phase) {
  const mt_dropout_add_args *a = args;
  return phase == 0 ? mt_row_tiles(a->x.shape[0], a->x.shape[1]) : 0;
}

static int64_t backward_tiles(const void *args, int32_t phase) {
  const mt_dropout_backward_args *a = args;
  return phase == 0 ? mt_row_tiles(a->dy.shape[0], a->dy.shape[1]) : 0;
}

MT_OP_OF_ANY_WIDTH(dropout_add, add_tiles, NULL)
MT_OP_OF_ANY_WIDTH(dropout_backward, backward_tiles, NULL)
#else
#include "philox.h"

typedef struct {
  uint64_t key;
  uint32_t threshold, position, sample;
  float scale; /* of kept values */
} K(mask);

/* The mask of a row of tokens; step and samples exist only where something is drawn. */
V K(mask) K(row_mask)(const mt_dropout *d, int64_t row) {
  if (d->rate == 0 && d->jitter == 0) return (K(mask)){.scale = 1};
  int64_t b = d->samples.shape[0];
  return (K(mask)){
      .key = mt_step_key(d->stream, &d->step),
      .threshold = mt_drop_threshold(d->rate),
      .position = (uint32_t)(d->position + row / b),
      .sample = ((const uint32_t *)d->samples.data)[row % b],
      .scale = 1 / (1 - d->rate),
  };
}

/* The top 24 bits of each word, over 2^24. */
V vf K(fraction)(vu w) { return __builtin_convertvector((vi)(w >> 8), vf) * 0x1p-24f; }

/* Words of the n channels from `channel` on, which is a multiple of 4. */
V void K(draw)(const K(mask) *k, uint32_t channel, int64_t n, uint32_t *words) {
  for (int64_t i = 0; i < n; i += 4 * LANES) {
    vu w[4];
    v_words(k->key, (channel + (uint32_t)i) / 4, k->position, k->sample, 0, w);
    memcpy(words + i, w, sizeof w);
  }
}

/* out = residual + drop(x + bias); bias and residual may be NULL. */
V void K(drop_row)(const mt_dropout *d, int T, int64_t row, int64_t h, void *out, const void *x, const void *bias, const void *residual) {
  uint32_t words[STRETCH + 4 * LANES], first = (uint32_t)d->channel % 4;
  K(mask) k = K(row_mask)(d, row);
  vf zero = {0};
  for (int64_t c = 0; c < h; c += STRETCH) {
    int64_t n = mt_min(STRETCH, h - c);
    if (d->rate != 0 || d->jitter != 0) K(draw)(&k, (uint32_t)(d->channel - first + c), mt_min(STRETCH + 4, n + first), words);
    V_EACH(n, i, m,
      vf v = v_load_n(x, T, c + i, m);
      if (bias) v += v_load_n(bias, T, c + i, m);
      if (d->rate != 0) {
        vu w = (vu)v_load_n(words + first, MT_F32, i, m);
        v = v_select(v_below(w, (vu){0} + k.threshold), zero, v * k.scale);
      } else if (d->jitter != 0) {
        vu w = (vu)v_load_n(words + first, MT_F32, i, m);
        v *= 1 + d->jitter * (2 * K(fraction)(w) - 1);
      }
      if (residual) v += v_load_n(residual, T, c + i, m);
      v_store_n(out, T, c + i, m, v););
  }
}

static int32_t K(dropout_add)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_dropout_add_args *a = args;
  int64_t h = a->x.shape[1];
  mt_range r = mt_row_range(a->x.shape[0], h, tile);
  V_BY_DTYPE(a->x.dtype, for (int64_t row = r.from; row < r.to; row++)
    K(drop_row)(&a->drop, T, row, h, mt_row(&a->out, row), mt_row(&a->x, row), mt_given(&a->bias) ? a->bias.data : NULL,
                mt_given(&a->residual) ? mt_row(&a->residual, row) : NULL));
  return 0;
}

static int32_t K(dropout_backward)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_dropout_backward_args *a = args;
  int64_t h = a->dy.shape[1];
  mt_range r = mt_row_range(a->dy.shape[0], h, tile);
  V_BY_DTYPE(a->dy.dtype, for (int64_t row = r.from; row < r.to; row++)
    K(drop_row)(&a->drop, T, row, h, mt_row(&a->dx, row), mt_row(&a->dy, row), NULL, NULL));
  return 0;
}
#endif
