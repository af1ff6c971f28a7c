/* Add, copy, fill, uniform: an element at a time in meaning. */
#ifndef MT_ISA
#define MT_KERNELS "elementwise.c"
#include "isa.h"

static int64_t add_tiles(const void *args, int32_t phase) { return phase == 0 ? mt_flat_tiles(mt_len(&((const mt_add_args *)args)->out)) : 0; }
static int64_t fill_tiles(const void *args, int32_t phase) { return phase == 0 ? mt_flat_tiles(mt_len(&((const mt_fill_args *)args)->out)) : 0; }
static int64_t uniform_tiles(const void *args, int32_t phase) { return phase == 0 ? mt_flat_tiles(mt_len(&((const mt_uniform_args *)args)->out)) : 0; }

static int64_t copy_tiles(const void *args, int32_t phase) {
  const mt_copy_args *a = args;
  if (phase > 0) return 0;
  return mt_contiguous(&a->dst) && mt_contiguous(&a->src) ? mt_flat_tiles(mt_len(&a->dst)) : mt_row_tiles(mt_rows(&a->dst), mt_last(&a->dst));
}

const uint32_t mt_cpu_known_values = V_VALUES;
const uint32_t mt_cpu_known_dtypes = V_VALUES | MT_BIT(MT_I32) | MT_BIT(MT_I64) | MT_BIT(MT_U16) | MT_BIT(MT_U8) | MT_BIT(MT_F64);

MT_OP_OF_ANY_WIDTH(add, add_tiles, NULL)
MT_OP_OF_ANY_WIDTH(copy, copy_tiles, NULL)
MT_OP(fill, fill_tiles, NULL)
MT_OP(uniform, uniform_tiles, NULL)
#else
#include "philox.h"

/* ---- single elements of any dtype ---- */

V double K(get)(const void *p, int32_t dtype, int64_t i) {
  switch (dtype) {
  case MT_I32: return ((const int32_t *)p)[i];
  case MT_I64: return (double)((const int64_t *)p)[i];
  case MT_U16: return ((const uint16_t *)p)[i];
  case MT_U8: return ((const uint8_t *)p)[i];
  case MT_F64: return ((const double *)p)[i];
  case MT_F32: case MT_BF16: case MT_F16: V_BY_DTYPE(dtype, return v_load_n(p, T, i, 1)[0]);
  }
  return 0;
}

V void K(put)(void *p, int32_t dtype, int64_t i, double x) {
  switch (dtype) {
  case MT_I32: ((int32_t *)p)[i] = (int32_t)x; break;
  case MT_I64: ((int64_t *)p)[i] = (int64_t)x; break;
  case MT_U16: ((uint16_t *)p)[i] = (uint16_t)x; break;
  case MT_U8: ((uint8_t *)p)[i] = (uint8_t)x; break;
  case MT_F64: ((double *)p)[i] = x; break;
  case MT_F32: case MT_BF16: case MT_F16: V_BY_DTYPE(dtype, v_store_n(p, T, i, 1, v_set((float)x)));
  }
}

V int K(is_value)(const mt_tensor *t) { return t->dtype <= MT_F16; }

/* ---- add ---- */

V void K(add_values)(const mt_add_args *a, int out, int x, int y, mt_range r) {
  V_EACH(r.to - r.from, i, m,
    vf s = v_load_n(a->a.data, x, r.from + i, m) + v_load_n(a->b.data, y, r.from + i, m);
    v_store_n(a->out.data, out, r.from + i, m, s););
}

static int32_t K(add)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_add_args *a = args;
  int32_t out = a->out.dtype, x = a->a.dtype, y = a->b.dtype;
  mt_range r = mt_flat_range(mt_len(&a->out), tile);
  if (!K(is_value)(&a->out) || !K(is_value)(&a->a) || !K(is_value)(&a->b))
    for (int64_t i = r.from; i < r.to; i++) K(put)(a->out.data, out, i, K(get)(a->a.data, x, i) + K(get)(a->b.data, y, i));
  else if (out == x && x == y)
    V_BY_DTYPE(out, K(add_values)(a, T, T, T, r))
  else
    K(add_values)(a, out, x, y, r);
  return 0;
}

/* ---- copy ---- */

V void K(convert)(void *dst, int D, const void *src, int S, int64_t n) {
  V_EACH(n, i, m, v_store_n(dst, D, i, m, v_load_n(src, S, i, m)););
}

/* f64 to f32 and back: all gradients of a step with --layout-invariant. */
V void K(narrow)(float *dst, const double *src, int64_t n) {
  for (int64_t i = 0; i < n; i++) dst[i] = (float)src[i];
}

V void K(widen)(double *dst, const float *src, int64_t n) {
  for (int64_t i = 0; i < n; i++) dst[i] = src[i];
}

/* n elements that lie back to back on both sides. */
V void K(copy_run)(void *dst, int32_t to, const void *src, int32_t from, int64_t n) {
  if (to == from)
    memmove(dst, src, n * mt_element(to));
  else if (to <= MT_F16 && from <= MT_F16)
    V_BY_DTYPE(from, { enum { S = T }; V_BY_DTYPE(to, K(convert)(dst, T, src, S, n)) })
  else if (to == MT_F32 && from == MT_F64)
    K(narrow)(dst, src, n);
  else if (to == MT_F64 && from == MT_F32)
    K(widen)(dst, src, n);
  else
    for (int64_t i = 0; i < n; i++) K(put)(dst, to, i, K(get)(src, from, i));
}

/* A row whose elements lie apart on one side at least. */
V void K(copy_apart)(void *dst, int32_t to, int64_t dstStep, const void *src, int32_t from, int64_t srcStep, int64_t n) {
  if (to != from)
    for (int64_t i = 0; i < n; i++) K(put)(dst, to, i * dstStep, K(get)(src, from, i * srcStep));
  else if (mt_element(to) == 1)
    for (int64_t i = 0; i < n; i++) ((uint8_t *)dst)[i * dstStep] = ((const uint8_t *)src)[i * srcStep];
  else if (mt_element(to) == 2)
    for (int64_t i = 0; i < n; i++) ((uint16_t *)dst)[i * dstStep] = ((const uint16_t *)src)[i * srcStep];
  else if (mt_element(to) == 4)
    for (int64_t i = 0; i < n; i++) memcpy((char *)dst + i * dstStep * 4, (const char *)src + i * srcStep * 4, 4);
  else
    for (int64_t i = 0; i < n; i++) memcpy((char *)dst + i * dstStep * 8, (const char *)src + i * srcStep * 8, 8);
}

static int32_t K(copy)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_copy_args *a = args;
  const mt_tensor *dst = &a->dst, *src = &a->src;
  if (mt_contiguous(dst) && mt_contiguous(src)) {
    mt_range r = mt_flat_range(mt_len(dst), tile);
    K(copy_run)((char *)dst->data + r.from * mt_element(dst->dtype), dst->dtype, (char *)src->data + r.from * mt_element(src->dtype), src->dtype, r.to - r.from);
    return 0;
  }
  int64_t n = mt_last(dst), dstStep = dst->stride[dst->rank - 1], srcStep = src->stride[src->rank - 1];
  mt_range r = mt_row_range(mt_rows(dst), n, tile);
  for (int64_t row = r.from; row < r.to; row++)
    if (n == 1 || (dstStep == 1 && srcStep == 1))
      K(copy_run)(mt_row(dst, row), dst->dtype, mt_row(src, row), src->dtype, n);
    else
      K(copy_apart)(mt_row(dst, row), dst->dtype, dstStep, mt_row(src, row), src->dtype, srcStep, n);
  return 0;
}

/* ---- fill, uniform ---- */

/* n bytes that repeat a block of 64; past the caches when `stream`, which
 * spares reading what is overwritten. */
V void K(repeat)(char *out, int64_t n, const char *block, int stream) {
  int64_t i = 0;
#if MT_ISA == MT_AVX512
  if (stream && (uintptr_t)out % 64 == 0) {
    __m512i v = _mm512_loadu_si512(block);
    for (; i + 64 <= n; i += 64) _mm512_stream_si512((void *)(out + i), v);
    _mm_sfence();
  }
#elif MT_ISA == MT_AVX2
  if (stream && (uintptr_t)out % 32 == 0) {
    __m256i v = _mm256_loadu_si256((const void *)block), w = _mm256_loadu_si256((const void *)(block + 32));
    for (; i + 64 <= n; i += 64) {
      _mm256_stream_si256((void *)(out + i), v);
      _mm256_stream_si256((void *)(out + i + 32), w);
    }
    _mm_sfence();
  }
#endif
  for (; i + 64 <= n; i += 64) memcpy(out + i, block, 64);
  memcpy(out + i, block, n - i);
}

static int32_t K(fill)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_fill_args *a = args;
  int64_t size = mt_element(a->out.dtype), n = mt_len(&a->out);
  mt_range r = mt_flat_range(n, tile);
  char block[64] __attribute__((aligned(64)));
  for (int64_t i = 0; i < 64 / size; i++) K(put)(block, a->out.dtype, i, a->value);
  K(repeat)((char *)a->out.data + r.from * size, (r.to - r.from) * size, block, n * size >= MT_STREAM);
  return 0;
}

static int32_t K(uniform)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_uniform_args *a = args;
  uint64_t key = mt_step_key(a->stream, &a->step);
  mt_range r = mt_flat_range(mt_len(&a->out), tile);
  for (int64_t i = r.from; i < r.to; i += 4 * LANES) {
    vu w[4];
    v_words(key, (uint32_t)(i / 4), (uint32_t)(i / 4 >> 32), 0, 0, w);
    for (int64_t j = 0; j < 4 && i + j * LANES < r.to; j++)
      v_store_n(a->out.data, MT_F32, i + j * LANES, mt_min(LANES, r.to - i - j * LANES), __builtin_convertvector((vi)(w[j] >> 8), vf) * 0x1p-24f);
  }
  return 0;
}
#endif
