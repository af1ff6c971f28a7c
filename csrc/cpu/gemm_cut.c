/* How a product is cut into tiles of C: by shape only. */
#include "gemm.h"

/* A call below SMALL multiply-adds is one tile: handing out costs more. A larger
 * one is cut until there are TILES, so that threads end together, or the tiles are
 * SMALL or narrow. */
enum { TILES = 8, NARROW = 192 };

static int64_t part(int64_t n, int64_t pieces, int64_t unit) { return mt_up(mt_ceil(n, pieces), unit); }

gemm_grid mt_gemm_cut(int64_t m, int64_t n, int64_t k, gemm_limits l) {
  int64_t down = mt_ceil(m, l.rows), across = mt_ceil(n, l.columns);
  for (;;) {
    gemm_grid g = {part(m, down, l.row_unit), part(n, across, l.column_unit), 0, 0};
    g.down = mt_ceil(m, g.rows);
    g.across = mt_ceil(n, g.columns);
    if (g.down * g.across >= TILES || g.rows * g.columns * k <= MT_GEMM_SMALL || (g.rows <= NARROW && g.columns <= NARROW)) return g;
    if (g.rows > NARROW && (g.rows >= g.columns || g.columns <= NARROW)) down++;
    else across++; /* not g.across + 1: a part rounded up to a unit may leave that as it was */
  }
}

gemm_tile mt_gemm_tile(const gemm_grid *g, gemm_tile whole, int64_t tile) {
  int64_t i = whole.i0 + tile / g->across * g->rows, j = whole.j0 + tile % g->across * g->columns;
  int64_t i1 = i + g->rows, j1 = j + g->columns;
  return (gemm_tile){i, i1 < whole.i1 ? i1 : whole.i1, j, j1 < whole.j1 ? j1 : whole.j1};
}
