/* Attention's packed blocks in f32, and their products. Read under MT_ISA, after
 * simd.h. attention_pairs.h has the same functions for bf16.
 *
 * A left operand has rows along k; a right operand has k along its rows (there
 * two k side by side). All sizes are multiples of ATT_PAD; what a source lacks is
 * zero. `step` is the distance of source rows; all distances are in elements. */
typedef float K(value);

/* Rows as they are: left operand over channels. [up(rows), padded] */
V void K(copy_rows)(K(value) *to, int64_t padded, const void *from, int T, int64_t step, int64_t rows, int64_t d) {
  for (int64_t i = 0; i < mt_up(rows, ATT_PAD); i++, to += padded) {
    int64_t n = i < rows ? d : 0;
    V_EACH(n, j, m, v_store_n(to, MT_F32, j, m, v_load_n(from, T, i * step + j, m)););
    memset(to + n, 0, (padded - n) * sizeof *to);
  }
}

static void K(pack_rows)(K(value) *to, int64_t padded, const void *from, int32_t dtype, int64_t step, int64_t rows, int64_t d) {
  V_BY_DTYPE(dtype, K(copy_rows)(to, padded, from, T, step, rows, d));
}

/* Channels as rows: left operand over the source's rows. [padded, ld] */
static void K(pack_channels)(K(value) *to, int64_t ld, int64_t padded, const void *from, int32_t dtype, int64_t step, int64_t rows, int64_t d) {
  V_BY_DTYPE(dtype, K(transpose)(to, ld, mt_up(rows, ATT_PAD), from, T, step, rows, d));
  for (int64_t j = d; j < padded; j++) memset(to + j * ld, 0, mt_up(rows, ATT_PAD) * sizeof *to);
}

/* The same as right operands: over the source's rows, and over channels. */
static void K(pack_right_rows)(K(value) *to, int64_t padded, const void *from, int32_t dtype, int64_t step, int64_t rows, int64_t d) {
  K(pack_rows)(to, padded, from, dtype, step, rows, d);
}

static void K(pack_right_channels)(K(value) *to, int64_t ld, int64_t padded, const void *from, int32_t dtype, int64_t step, int64_t rows, int64_t d) {
  K(pack_channels)(to, ld, padded, from, dtype, step, rows, d);
}

/* Rows r and r+1 of a block of probabilities: as left operand, as right one. */
V void K(put_left)(K(value) *to, int64_t ld, int64_t r, int64_t j, vf even, vf odd) {
  v_store(to, MT_F32, r * ld + j, even);
  v_store(to, MT_F32, (r + 1) * ld + j, odd);
}

V void K(put_right)(K(value) *to, int64_t ld, int64_t r, int64_t j, vf even, vf odd) { K(put_left)(to, ld, r, j, even, odd); }

#undef MR
#if MT_ISA == MT_AVX512
#define MR 8
#else
#define MR 4
#endif
#define ATT_NV 2

V void K(micro)(int64_t k, const float *a, int64_t lda, const float *b, int64_t ldb, float *c, int64_t ldc, int add) {
  vf sum[MR][ATT_NV];
#pragma GCC unroll 8
  for (int i = 0; i < MR; i++)
#pragma GCC unroll 2
    for (int j = 0; j < ATT_NV; j++) sum[i][j] = add ? v_load(c + i * ldc, MT_F32, j * LANES) : (vf){0};
  for (int64_t p = 0; p < k; p++) {
    vf y0 = v_load(b + p * ldb, MT_F32, 0), y1 = v_load(b + p * ldb, MT_F32, LANES);
#pragma GCC unroll 8
    for (int i = 0; i < MR; i++) {
      vf x = v_set(a[i * lda + p]);
      sum[i][0] = v_mad(x, y0, sum[i][0]);
      sum[i][1] = v_mad(x, y1, sum[i][1]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < MR; i++)
#pragma GCC unroll 2
    for (int j = 0; j < ATT_NV; j++) v_store(c + i * ldc, MT_F32, j * LANES, sum[i][j]);
}

/* c [m,n] (+)= a [m,k] · b [k,n] */
static void K(product)(int64_t m, int64_t n, int64_t k, const K(value) *a, int64_t lda, const K(value) *b, int64_t ldb, float *c, int64_t ldc, int add) {
  for (int64_t j = 0; j < n; j += ATT_NV * LANES)
    for (int64_t i = 0; i < m; i += MR) {
      if (add) K(micro)(k, a + i * lda, lda, b + j, ldb, c + i * ldc + j, ldc, 1);
      else K(micro)(k, a + i * lda, lda, b + j, ldb, c + i * ldc + j, ldc, 0);
    }
}

V void K(begin)(void) {}
V void K(end)(void) {}
