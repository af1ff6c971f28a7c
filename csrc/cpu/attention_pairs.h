/* Attention's packed blocks in bf16, a right operand with two k side by side. Read under
 * MT_ISA, after amx_tiles.h, whose helpers need AVX-512 alone, and simd.h. attention_blocks.h
 * has the same functions in f32, and says what they make; here a right operand's rows are
 * pairs, ld columns of two. */
typedef uint16_t K(value);

#define AT(p, i) ((char *)((K(value) *)(p) + (i)))

/* 32 rows by 32 columns of a source from (i, j) on, copied where it ends sooner. */
typedef struct { const char *at; int64_t step; K(value) copy[32 * 32]; } source_block;

V void block_of(source_block *b, const void *from, int64_t step, int64_t i, int64_t j, int64_t rows, int64_t d) {
  b->at = AT(from, i * step + j);
  b->step = 2 * step;
  for (int64_t r = i + 32; r < mt_min(i + 64, rows); r++) __builtin_prefetch(AT(from, r * step + j)); /* the next rows */
  if (i + 32 <= rows && j + 32 <= d) return;
  memset(b->copy, 0, sizeof b->copy);
  for (int64_t r = 0; r < 32 && i + r < rows; r++) memcpy(b->copy + r * 32, AT(from, (i + r) * step + j), 2 * mt_min(32, d - j));
  b->at = (const char *)b->copy;
  b->step = 64;
}

static void K(pack_rows)(K(value) *to, int64_t padded, const void *from, int32_t dtype, int64_t step, int64_t rows, int64_t d) {
  for (int64_t i = 0; i < mt_up(rows, ATT_PAD); i++, to += padded) {
    int64_t n = i < rows ? d : 0;
    if (i + ATT_AHEAD < rows)
      for (int64_t j = 0; j < d; j += 32) __builtin_prefetch(AT(from, (i + ATT_AHEAD) * step + j));
    memcpy(to, AT(from, i * step), 2 * n);
    memset(to + n, 0, 2 * (padded - n));
  }
}

/* Runs statements for both halves of every block b of 32 rows from i on by 32 channels from
 * j on; r is space for the half's lines. */
#define EACH_HALF(...)                                \
  for (int64_t i = 0; i < rows; i += 32)              \
    for (int64_t j = 0; j < padded; j += 32) {        \
      source_block b;                                 \
      block_of(&b, from, step, i, j, rows, d);        \
      for (int64_t half = 0; half < 32; half += 16) { \
        __m512i r[16];                                \
        __VA_ARGS__                                   \
      }                                               \
    }

static void K(pack_channels)(K(value) *to, int64_t ld, int64_t padded, const void *from, int32_t dtype, int64_t step, int64_t rows, int64_t d) {
  EACH_HALF(
    amx_load_pairs(r, b.at + 2 * half, b.step);
    amx_transpose(r);
    amx_store(AT(to, (j + half) * ld + i), 2 * ld, r);)
}

static void K(pack_right_rows)(K(value) *to, int64_t padded, const void *from, int32_t dtype, int64_t step, int64_t rows, int64_t d) {
  EACH_HALF(
    amx_load_pairs(r, b.at + 2 * half, b.step);
    amx_store(AT(to, i * padded + 2 * (j + half)), 4 * padded, r);)
}

static void K(pack_right_channels)(K(value) *to, int64_t ld, int64_t padded, const void *from, int32_t dtype, int64_t step, int64_t rows, int64_t d) {
  EACH_HALF(
    amx_load_lines(r, b.at + half * b.step, b.step);
    amx_transpose(r);
    amx_store(AT(to, j * ld + 2 * (i + half)), 4 * ld, r);)
}

V __m256i bf16_of(vf x) { return (__m256i)_mm512_cvtneps_pbh((__m512)x); }

V void K(put_left)(K(value) *to, int64_t ld, int64_t r, int64_t j, vf even, vf odd) {
  _mm256_storeu_si256((void *)(to + r * ld + j), bf16_of(even));
  _mm256_storeu_si256((void *)(to + (r + 1) * ld + j), bf16_of(odd));
}

V void K(put_right)(K(value) *to, int64_t ld, int64_t r, int64_t j, vf even, vf odd) {
  const __m512i mix = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  _mm512_storeu_si512(to + r * ld + 2 * j, _mm512_permutexvar_epi16(mix, (__m512i)_mm512_cvtne2ps_pbh((__m512)odd, (__m512)even)));
}
