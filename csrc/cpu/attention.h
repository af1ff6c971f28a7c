/* What attention's forward and backward share: the call in numbers, and under
 * MT_ISA, after simd.h, the pieces of a tile. */
#ifndef MT_ATTENTION_H
#define MT_ATTENTION_H
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MT_BLOCK = 64 }; /* queries and keys of a block */

/* A call in numbers. */
typedef struct {
  const mt_attention_forward_args *a;
  int64_t b, groups, per_group, heads, d, sq, sk; /* sk: keys that some query may see */
  int64_t width;                                  /* d padded to 16: floats of a packed row */
  int64_t blocks_q, blocks_k;
} mt_attention;

static inline mt_attention mt_attention_of(const mt_attention_forward_args *a) {
  mt_attention t = {.a = a, .b = a->batch, .groups = a->q.shape[1], .per_group = a->q.shape[2], .d = a->q.shape[3]};
  t.heads = t.groups * t.per_group;
  t.sq = a->q.shape[0] / t.b;
  t.sk = a->q_offset + t.sq;
  t.width = mt_ceil(t.d, 16) * 16;
  t.blocks_q = mt_ceil(t.sq, MT_BLOCK);
  t.blocks_k = mt_ceil(t.sk, MT_BLOCK);
  return t;
}

/* Where position i of sample b, head j of group g lies in x. */
static inline char *mt_head(const mt_attention *t, const mt_tensor *x, int64_t i, int64_t b, int64_t g, int64_t j) {
  return (char *)x->data + ((i * t->b + b) * x->stride[0] + g * x->stride[1] + j * x->stride[2]) * mt_element(x->dtype);
}

/* Floats of one (sample, group) in packed memory: rows padded to whole blocks. */
static inline int64_t mt_packed(const mt_attention *t) { return t->blocks_k * MT_BLOCK * t->width; }

/* The keys that query i sees: [from, to]. */
typedef struct { int32_t from, to; } mt_seen;

static inline mt_seen mt_sees(const mt_attention *t, int64_t b, int64_t i) {
  int32_t position = (int32_t)(t->a->q_offset + i), from = 0;
  if (mt_given(&t->a->doc_start)) from = ((const int32_t *)t->a->doc_start.data)[b * t->sq + i];
  if (t->a->window >= 0) from = (int32_t)mt_max(from, position - t->a->window);
  return (mt_seen){(int32_t)mt_max(from, 0), position};
}

/* A head so wide that a block of it does not fit a thread's workspace. */
#define MT_TOO_WIDE(ctx, d) (snprintf((ctx)->error, sizeof(ctx)->error, "heads of %lld channels are too wide", (long long)(d)), 1)

#define v_gemm_tile K(v_gemm_tile)
#define v_gemm K(v_gemm)
#define v_pack K(v_pack)
#define v_pack_transposed K(v_pack_transposed)
#define v_keep K(v_keep)
#define v_scores K(v_scores)
#endif

#ifdef MT_ISA
#undef GEMM_VECTORS
#define GEMM_ROWS 4
#if MT_ISA == MT_AVX512 /* of 32 registers, else of 16 */
#define GEMM_VECTORS 4
#else
#define GEMM_VECTORS 2
#endif

/* C [GEMM_ROWS, n vectors] += A·B over k: A's element (r, i) lies at r·ar + i·ac. n is a constant. */
V void v_gemm_tile(float *c, int64_t ldc, const float *a, int64_t ar, int64_t ac, const float *b, int64_t ldb, int64_t k, int n) {
  vf acc[GEMM_ROWS][GEMM_VECTORS];
#pragma GCC unroll 4
  for (int r = 0; r < GEMM_ROWS; r++)
#pragma GCC unroll 4
    for (int v = 0; v < n; v++) acc[r][v] = v_load(c + r * ldc, MT_F32, v * LANES);
  for (int64_t i = 0; i < k; i++) {
    vf row[GEMM_VECTORS];
#pragma GCC unroll 4
    for (int v = 0; v < n; v++) row[v] = v_load(b + i * ldb, MT_F32, v * LANES);
#pragma GCC unroll 4
    for (int r = 0; r < GEMM_ROWS; r++) {
      float x = a[r * ar + i * ac];
#pragma GCC unroll 4
      for (int v = 0; v < n; v++) acc[r][v] += x * row[v];
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < GEMM_ROWS; r++)
#pragma GCC unroll 4
    for (int v = 0; v < n; v++) v_store(c + r * ldc, MT_F32, v * LANES, acc[r][v]);
}

/* C [m, n] += A·B, m a multiple of 4, n of 16; everything f32, B and C by rows. */
static void v_gemm(float *c, int64_t ldc, const float *a, int64_t ar, int64_t ac, const float *b, int64_t ldb, int64_t m, int64_t n, int64_t k) {
#define GEMM_STRIP(vectors) \
  for (int64_t i = 0; i < m; i += GEMM_ROWS) v_gemm_tile(c + i * ldc + j, ldc, a + i * ar, ar, ac, b + j, ldb, k, vectors)
  for (int64_t j = 0; j < n;) {
    int64_t left = (n - j) / LANES;
    if (left >= GEMM_VECTORS) {
      GEMM_STRIP(GEMM_VECTORS);
      j += GEMM_VECTORS * LANES;
    } else if (left >= 2) {
      GEMM_STRIP(2);
      j += 2 * LANES;
    } else {
      GEMM_STRIP(1);
      j += LANES;
    }
  }
#undef GEMM_STRIP
}

/* Rows from.. of a head as f32 [MT_BLOCK, width], times factor; 0 from `end` on and beyond d. */
static void v_pack(const mt_attention *t, float *out, const mt_tensor *x, int64_t from, int64_t end, int64_t b, int64_t g, int64_t j, float factor) {
  memset(out, 0, MT_BLOCK * t->width * sizeof *out);
  int64_t n = mt_min(MT_BLOCK, end - from);
  V_BY_DTYPE(x->dtype, for (int64_t i = 0; i < n; i++) {
    const void *row = mt_head(t, x, from + i, b, g, j);
    V_EACH(t->d, c, m, v_store_n(out, MT_F32, i * t->width + c, m, v_load_n(row, T, c, m) * factor););
  });
}

/* out [width, MT_BLOCK] = in [MT_BLOCK, width] transposed. */
static void v_pack_transposed(const mt_attention *t, float *out, const float *in) {
  for (int64_t c = 0; c < t->width; c += 16)
    for (int64_t i = 0; i < MT_BLOCK; i++)
      for (int64_t e = 0; e < 16; e++) out[(c + e) * MT_BLOCK + i] = in[i * t->width + c + e];
}

/* Factors of dropout for one query and the MT_BLOCK keys from k0 on: 0 or 1/(1-rate). */
V void v_keep(const mt_attention *t, uint64_t key, int64_t k0, int64_t i, int64_t b, int64_t head, float *out) {
  const mt_dropout *drop = &t->a->drop;
  uint32_t threshold = mt_drop_threshold(drop->rate), sample = ((const uint32_t *)drop->samples.data)[b];
  vf keep = v_set(1 / (1 - drop->rate)), zero = {0};
  for (int64_t k = 0; k < MT_BLOCK; k += 4 * LANES) {
    vu w[4];
    v_words(key, (uint32_t)(k0 + k) / 4, (uint32_t)(drop->position + i), sample, (uint32_t)(drop->channel + head), w);
    for (int v = 0; v < 4; v++) v_store(out, MT_F32, k + v * LANES, v_select(v_below(w[v], (vu){0} + threshold), zero, keep));
  }
}

/* Scores of one query against MT_BLOCK keys from k0 on: ALiBi added, -inf where the
 * query does not see. */
V void v_scores(float *s, int64_t k0, mt_seen seen, float slope) {
  int32_t from = (int32_t)(seen.from - k0), to = (int32_t)(seen.to - k0);
  vf hidden = v_set(-INFINITY);
  for (int64_t k = 0; k < MT_BLOCK; k += LANES) {
    vf x = v_load(s, MT_F32, k), at = __builtin_convertvector((vi)(v_iota() + (uint32_t)k), vf);
    if (slope != 0) x += slope * (at - (float)to);
    if (from > k || to < k + LANES - 1) {
      x = v_select(v_lt(at, v_set((float)from)), hidden, x);
      x = v_select(v_lt(v_set((float)to), at), hidden, x);
    }
    v_store(s, MT_F32, k, x);
  }
}
#endif
