/* How work is cut, by shape only, and how tensors are walked. */
#ifndef MT_TILE_H
#define MT_TILE_H

#include "../device/device.h"

enum {
  MT_SMALL = 65536, /* elements up to which an op is one tile and wakes no thread */
  MT_TILE = 32768,  /* elements of a tile beyond */
  MT_STREAM = 32 << 20,      /* bytes from which writing around the caches pays, */
  MT_STREAM_LATER = 4 << 20  /* also where nobody reads them before long */
};

static inline int64_t mt_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t mt_max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t mt_ceil(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* Raises *peak, the bits of a number that is not negative, to most; several threads may do so. */
static inline void mt_raise(int32_t *peak, int32_t most) {
  for (int32_t before = __atomic_load_n(peak, __ATOMIC_RELAXED); most > before;)
    if (__atomic_compare_exchange_n(peak, &before, most, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return;
}
static inline int64_t mt_up(int64_t n, int64_t unit) { return mt_ceil(n, unit) * unit; }

static inline int64_t mt_element(int32_t dtype) {
  static const int8_t bytes[] = {4, 2, 2, 4, 8, 2, 8, 1};
  return bytes[dtype];
}

static inline int mt_given(const mt_tensor *t) { return t->rank > 0; }

static inline int64_t mt_len(const mt_tensor *t) {
  int64_t n = 1;
  for (int d = 0; d < t->rank; d++) n *= t->shape[d];
  return n;
}

static inline int64_t mt_last(const mt_tensor *t) { return t->shape[t->rank - 1]; }

static inline int mt_contiguous(const mt_tensor *t) {
  int64_t step = 1;
  for (int d = t->rank - 1; d >= 0; d--) {
    if (t->shape[d] != 1 && t->stride[d] != step) return 0;
    step *= t->shape[d];
  }
  return 1;
}

/* Vectors along the last dimension. */
static inline int64_t mt_rows(const mt_tensor *t) { return mt_len(t) / mt_max(1, mt_last(t)); }

/* The rows of a leaf of t [rows, ..]: `chunk` of them, `batch` apart (ColumnSumArgs). */
static inline mt_tensor mt_leaf(mt_tensor t, int64_t leaf, int64_t chunk, int64_t batch) {
  if (!mt_given(&t)) return t;
  t.data = (char *)t.data + (leaf / batch * chunk * batch + leaf % batch) * t.stride[0] * mt_element(t.dtype);
  t.shape[0] = chunk;
  t.stride[0] *= batch;
  return t;
}

/* Offset in elements of the row-th such vector. */
static inline int64_t mt_row_offset(const mt_tensor *t, int64_t row) {
  int64_t at = 0;
  for (int d = t->rank - 2; d > 0; d--) {
    at += row % t->shape[d] * t->stride[d];
    row /= t->shape[d];
  }
  return t->rank > 1 ? at + row * t->stride[0] : at;
}

static inline void *mt_row(const mt_tensor *t, int64_t row) {
  return (char *)t->data + mt_row_offset(t, row) * mt_element(t->dtype);
}

/* Flat work: n elements in tiles of MT_TILE. */
static inline int64_t mt_flat_tiles(int64_t n) { return n <= MT_SMALL ? n > 0 : mt_ceil(n, MT_TILE); }

/* Work in rows of `width` elements: rows of one tile, tiles. */
static inline int64_t mt_tile_rows(int64_t rows, int64_t width) {
  return rows * width <= MT_SMALL ? rows : mt_max(1, MT_TILE / width);
}
static inline int64_t mt_row_tiles(int64_t rows, int64_t width) {
  return rows * width <= 0 ? 0 : mt_ceil(rows, mt_tile_rows(rows, width));
}

typedef struct { int64_t from, to; } mt_range;

static inline mt_range mt_flat_range(int64_t n, int64_t tile) {
  if (n <= MT_SMALL) return (mt_range){0, n};
  return (mt_range){tile * MT_TILE, mt_min(n, (tile + 1) * MT_TILE)};
}
static inline mt_range mt_row_range(int64_t rows, int64_t width, int64_t tile) {
  int64_t step = mt_tile_rows(rows, width);
  return (mt_range){tile * step, mt_min(rows, (tile + 1) * step)};
}

/* Sums over rows [rows, n], in two phases: each part of the rows is summed into a
 * row of scratch, then the parts are added up in order, by blocks of columns. */
enum { MT_PART_ROWS = 32, MT_PART_COLUMNS = 256 };

static inline int64_t mt_part_rows(int64_t rows, int64_t n) {
  return rows * n <= MT_SMALL ? rows : mt_max(MT_PART_ROWS, 2 * MT_TILE / n);
}
static inline int64_t mt_part_count(int64_t rows, int64_t n) {
  return rows * n <= 0 ? 0 : mt_ceil(rows, mt_part_rows(rows, n));
}
static inline mt_range mt_part_range(int64_t rows, int64_t n, int64_t part) {
  int64_t step = mt_part_rows(rows, n);
  return (mt_range){part * step, mt_min(rows, (part + 1) * step)};
}
static inline int64_t mt_part_blocks(int64_t parts, int64_t n) { return parts * n <= MT_SMALL ? parts > 0 : mt_ceil(n, MT_PART_COLUMNS); }

static inline mt_range mt_part_columns(int64_t parts, int64_t n, int64_t tile) {
  if (parts * n <= MT_SMALL) return (mt_range){0, n};
  return (mt_range){tile * MT_PART_COLUMNS, mt_min(n, (tile + 1) * MT_PART_COLUMNS)};
}
static inline int64_t mt_part_tiles(int64_t rows, int64_t n, int32_t phase) {
  int64_t parts = mt_part_count(rows, n);
  return phase == 0 ? parts : phase == 1 ? mt_part_blocks(parts, n) : 0;
}

#endif
