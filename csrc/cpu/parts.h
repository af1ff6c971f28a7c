/* The second phase of sums over rows (tile.h). Read under MT_ISA, after simd.h. */
#ifndef MT_PARTS_H
#define MT_PARTS_H
#define v_add_parts K(v_add_parts)
#endif

/* out[c] += Σ over parts of sums[part·stride + c], in f64. */
V void v_add_parts(float *out, const float *sums, int64_t parts, int64_t stride, mt_range columns) {
  V_EACH(columns.to - columns.from, i, m,
    vd lo = {0}, hi = {0};
    const float *s = sums + columns.from + i;
    for (int64_t part = 0; part < parts; part++, s += stride) {
      vf v = v_load_n(s, MT_F32, 0, m);
      lo += v_lo(v);
      hi += v_hi(v);
    }
    v_store_n(out, MT_F32, columns.from + i, m, v_load_n(out, MT_F32, columns.from + i, m) + v_narrow(lo, hi)););
}
