/* Rows in f64, for kernels whose rows are short. Read under MT_ISA, after simd.h. */
#ifndef MT_ROWS_H
#define MT_ROWS_H
#define v_widen_row K(v_widen_row)
#define v_narrow_row K(v_narrow_row)
#endif

V void v_widen_row(double *x, const mt_tensor *t, int64_t row) {
  const void *from = mt_row(t, row);
  V_BY_DTYPE(t->dtype, V_EACH(mt_last(t), i, m, vf v = v_load_n(from, T, i, m); for (int64_t j = 0; j < m; j++) x[i + j] = v[j];));
}

/* t's row = x, or += where add is set; t is f32. */
V void v_narrow_row(const mt_tensor *t, int64_t row, const double *x, int add) {
  float *to = mt_row(t, row);
  for (int64_t i = 0; i < mt_last(t); i++) to[i] = (float)(add ? to[i] + x[i] : x[i]);
}
