/* Attention's packed blocks in f32. Read under MT_ISA, after simd.h and K(rounded), which rounds probabilities
 * to what products read. attention_pairs.h has the same functions for bf16.
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
  v_store(to, MT_F32, r * ld + j, K(rounded)(even));
  v_store(to, MT_F32, (r + 1) * ld + j, K(rounded)(odd));
}

V void K(put_right)(K(value) *to, int64_t ld, int64_t r, int64_t j, vf even, vf odd) { K(put_left)(to, ld, r, j, even, odd); }
