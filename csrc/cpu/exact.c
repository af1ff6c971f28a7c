/* Sums whose bits no order changes: see op_exact.go. */
#ifndef MT_ISA
enum { LIMBS = 4 };

#define MT_KERNELS "exact.c"
#include "isa.h"

/* Phase 0: the tiles of n elements; phase 1: one, which puts together what they leave. */
static int64_t two_phases(int64_t n, int32_t phase) { return phase == 0 ? mt_flat_tiles(n) : phase == 1 && n > 0; }

static int64_t grid_tiles(const void *args, int32_t phase) {
  const mt_grid_add_args *a = args;
  return phase == 1 && !mt_given(&a->peak) ? 0 : two_phases(mt_len(&a->sum), phase);
}
static int64_t grid_scratch(const void *args) { return mt_flat_tiles(mt_len(&((const mt_grid_add_args *)args)->sum)) * (int64_t)sizeof(int32_t); }

static int64_t squares_tiles(const void *args, int32_t phase) { return two_phases(mt_len(&((const mt_exact_squares_args *)args)->x), phase); }
static int64_t squares_scratch(const void *args) {
  return mt_flat_tiles(mt_len(&((const mt_exact_squares_args *)args)->x)) * LIMBS * (int64_t)sizeof(double);
}

MT_OP_OF_ANY_WIDTH(grid_add, grid_tiles, grid_scratch)
MT_OP_OF_ANY_WIDTH(exact_squares, squares_tiles, squares_scratch)
#else
#include "exact.h"

static int32_t K(grid_add)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_grid_add_args *a = args;
  int64_t n = mt_len(&a->sum), end = mt_len(&a->x); /* x has rows of n */
  int32_t *peaks = scratch;
  if (phase == 1) {
    int32_t *peak = a->peak.data; /* a number that is not negative, by its bits */
    for (int64_t t = 0; t < mt_flat_tiles(n); t++) *peak = peaks[t] > *peak ? peaks[t] : *peak;
    return 0;
  }
  mt_range r = mt_flat_range(n, tile);
  double grid = mt_given(&a->grid) ? *(const double *)a->grid.data : 0, *sum = (double *)a->sum.data + r.from;
  vd magic = v_magic(grid);
  if (a->x.dtype == MT_F64) {
    for (int64_t from = r.from; from < end; from += n) {
      const double *x = (const double *)a->x.data + from;
      for (int64_t i = 0; i < r.to - r.from; i++) sum[i] += (x[i] + magic[0]) - magic[0];
    }
    return 0;
  }
  vi peak = {0};
  for (int64_t from = r.from; from < end; from += n)
    V_EACH(r.to - r.from, i, m,
      vf x = v_load_n(a->x.data, MT_F32, from + i, m);
      peak = v_larger(peak, v_magnitude(x));
      v_add_on_grid(sum + i, m, v_lo(x), v_hi(x), magic););
  peaks[tile] = v_largest_bits(peak);
  return 0;
}

/* sums += what remains of squares, rounded; the remainder stays. */
V void K(limb)(vd *sums, vd *rest, vd magic) {
  vd limb = (*rest + magic) - magic;
  *sums += limb;
  *rest -= limb;
}

/* The limbs of a vector's two halves, from the first-th on. */
V void K(add_limbs)(vd *total, vd lo, vd hi, const vd *magic, int first) {
#pragma GCC unroll 4
  for (int k = first; k < LIMBS; k++) {
    K(limb)(&total[k], &lo, magic[k]);
    K(limb)(&total[k], &hi, magic[k]);
  }
}

/* Limbs of the squares of n elements from the first-th on: those before are 0. */
V void K(limbs)(const mt_exact_squares_args *a, int64_t from, int64_t n, const vd *magic, vd *total, int first) {
  V_EACH(n, i, m,
    vf x = v_load_n(a->x.data, MT_F32, from + i, m);
    vd lo = v_lo(x) * a->scale, hi = v_hi(x) * a->scale;
    K(add_limbs)(total, lo * lo, hi * hi, magic, first););
}

/* How many of the first limbs are 0 for n elements: the largest square is at most half of their grid. */
V int K(zero_limbs)(const mt_exact_squares_args *a, int64_t from, int64_t n, const double *grid) {
  vi peak = {0};
  V_EACH(n, i, m, peak = v_larger(peak, v_magnitude(v_load_n(a->x.data, MT_F32, from + i, m))););
  int32_t bits = v_largest_bits(peak);
  float most;
  memcpy(&most, &bits, sizeof most);
  double root = most * a->scale;
  int zero = 0;
  while (zero < LIMBS - 1 && root * root <= grid[zero] / 2) zero++; /* not of nan */
  return zero;
}

static int32_t K(exact_squares)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  enum { NEAR = 1024 }; /* elements that stay in the L1 cache from their largest to their squares */
  const mt_exact_squares_args *a = args;
  int64_t n = mt_len(&a->x);
  double *sums = scratch;
  if (phase == 1) {
    double *out = a->out.data;
    for (int64_t t = 0; t < mt_flat_tiles(n); t++)
      for (int k = 0; k < LIMBS; k++) out[k] += sums[t * LIMBS + k];
    return 0;
  }
  /* The limbs' grids: each is 2^bits times as fine as the one before. */
  mt_range r = mt_flat_range(n, tile);
  vd total[LIMBS] = {{0}}, magic[LIMBS];
  double grid[LIMBS];
  for (int k = 0; k < LIMBS; k++) {
    grid[k] = ldexp(1, (int)-a->bits * (k + 1));
    magic[k] = v_magic(grid[k]);
  }
  /* A few elements at a time, with the limbs that they have. */
  for (int64_t i = r.from; i < r.to; i += NEAR) {
    const int64_t count = mt_min(NEAR, r.to - i);
    switch (K(zero_limbs)(a, i, count, grid)) {
    case 0: K(limbs)(a, i, count, magic, total, 0); break;
    case 1: K(limbs)(a, i, count, magic, total, 1); break;
    case 2: K(limbs)(a, i, count, magic, total, 2); break;
    default: K(limbs)(a, i, count, magic, total, 3);
    }
  }
  for (int k = 0; k < LIMBS; k++) sums[tile * LIMBS + k] = v_sum_d(total[k]);
  return 0;
}
#endif
