/* Numbers of 4 bits with a scale in E4M3 for each block and one in f32 for the tensor (op_fp4.go). */
#ifndef MT_ISA
#define MT_KERNELS "fp4.c"
#include "isa.h"

static int64_t round_nvfp4_tiles(const void *args, int32_t phase) {
  const mt_round_nvfp4_args *a = args;
  return phase > 0 || mt_len(&a->x) == 0 ? 0 : mt_ceil(a->x.shape[0], a->rows);
}

MT_OP(round_nvfp4, round_nvfp4_tiles, NULL)
#else
#include "fp8.h"

/* What a block's values are multiplied with before they are rounded, and after. */
typedef struct { float encode, decode; } K(block_scale);

/* The scale of a block whose largest magnitude is own, in a tensor whose is most; own is not above most. */
V K(block_scale) K(nvfp4_scale)(float own, float most) {
  float tensor = 2688.f / most;
  if (tensor > LARGEST_F32) tensor = LARGEST_F32;
  float scale = small_float(v_clamp(v_set(own * (tensor * (1.f / 6))), 448.f), MT_E4_M3)[0];
  float encode = 1 / (scale * (1 / tensor));
  if (encode > LARGEST_F32) encode = LARGEST_F32;
  return (K(block_scale)){encode, scale * most * (1.f / 2688)};
}

/* Rows [from, to) of columns [c, c+n), n up to STRIPE, which begin and end with blocks. */
V void K(nvfp4_stripe)(const mt_round_nvfp4_args *a, int T, int OUT, int64_t from, int64_t to, int64_t c, int64_t n) {
  float encode[STRIPE], decode[STRIPE], most = *(const float *)a->most.data;
  int32_t rounds = mt_rounds(most);
  block_most(encode, &a->x, T, from, to, c, n);
  for (int64_t b = 0; b < n; b += a->columns) { /* of each block one scale, for each of its columns */
    int64_t end = mt_min(n, b + a->columns);
    K(block_scale) s = K(nvfp4_scale)(block_largest(encode, b, end), most);
    for (int64_t i = b; i < end; i++) encode[i] = s.encode, decode[i] = s.decode;
  }
  for (int64_t r = from; r < to; r++) {
    const void *x = mt_row(&a->x, r);
    void *out = mt_row(&a->out, r);
    V_EACH(n, i, m,
      vf v = v_load_n(x, T, c + i, m);
      if (rounds) v = small_float(v_clamp(v * v_load_n(encode, MT_F32, i, m), 6.f), E2M1) * v_load_n(decode, MT_F32, i, m);
      v_store_n(out, OUT, c + i, m, v););
  }
}

static int32_t K(round_nvfp4)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_round_nvfp4_args *a = args;
  int64_t n = a->x.shape[1], from = tile * a->rows, to = mt_min(a->x.shape[0], from + a->rows), step = STRIPE / a->columns * a->columns;
  for (int64_t c = 0; c < n; c += step) {
    if (a->out.dtype == a->x.dtype) V_BY_DTYPE(a->x.dtype, K(nvfp4_stripe)(a, T, T, from, to, c, mt_min(step, n - c)))
    else V_BY_DTYPE(a->x.dtype, K(nvfp4_stripe)(a, T, MT_F32, from, to, c, mt_min(step, n - c)))
  }
  return 0;
}
#endif
