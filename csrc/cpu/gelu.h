/* The smooth activations and their derivatives; matmul's epilogues use them too.
 * Read under MT_ISA, after simd.h. */
#ifndef MT_GELU_H
#define MT_GELU_H
#define v_square_rest K(v_square_rest)
#define v_cdf K(v_cdf)
#define v_exp2_rough K(v_exp2_rough)
#define v_gelu_tanh_rough K(v_gelu_tanh_rough)
#define v_gelu_tanh_grad_rough K(v_gelu_tanh_grad_rough)
#define v_gelu_tanh K(v_gelu_tanh)
#define v_gelu_tanh_grad K(v_gelu_tanh_grad)
#define v_gelu_tanh_to K(v_gelu_tanh_to)
#define v_gelu_tanh_grad_to K(v_gelu_tanh_grad_to)
#define v_gelu_erf K(v_gelu_erf)
#define v_gelu_erf_grad K(v_gelu_erf_grad)
#endif

/* x/2·(1 + tanh u) = x·sigmoid(2u), u = √(2/π)(x + 0.044715x³). */
V vf v_gelu_tanh(vf x) { return x * v_sigmoid(x * v_step(x * x, v_set(0.0713548163f), 1.59576912f)); }

V vf v_gelu_tanh_grad(vf x) {
  vf rest, square = x * x, s = v_sigmoid_pair(x * v_step(square, v_set(0.0713548163f), 1.59576912f), &rest);
  return v_mad(x * s * rest, v_step(square, v_set(0.214064449f), 1.59576912f), s);
}

/* For results that are rounded to bf16: fewer steps, and shorter chains of them. */
#if MT_ISA == MT_AVX512
/* 2^y to 3e-7 of it, nan of nan; bounds keep clear of infinity and of subnormal numbers.
 * The polynomial is a minimax fit of 2^f on |f| <= 1/2. */
V vf v_exp2_rough(vf y) {
  y = v_min(v_set(126), v_max(v_set(-126), y));
  vf n = (vf)_mm512_roundscale_ps((__m512)y, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), f = y - n, square = f * f;
  vf low = v_step(f, v_set(0.6931470036506653f), 1), middle = v_step(f, v_set(0.05550733581185341f), 0.24022242426872253f);
  vf high = v_step(f, v_set(0.0013264722656458616f), 0.009671512991189957f);
  return (vf)_mm512_scalef_ps((__m512)v_mad(square, v_mad(square, high, middle), low), (__m512)n);
}

/* To 7e-5 of it: the processor's first guess of a reciprocal. */
V vf v_gelu_tanh_rough(vf x) {
  vf e = v_exp2_rough(x * v_step(x * x, v_set(-0.102943233f), -2.30220819f));
  return x * (vf)_mm512_rcp14_ps((__m512)(1.f + e));
}

V vf v_gelu_tanh_grad_rough(vf x) {
  vf square = x * x, e = v_exp2_rough(x * v_step(square, v_set(-0.102943233f), -2.30220819f));
  vf s = v_recip(1.f + e);
  return v_mad(x * s * (e * s), v_step(square, v_set(0.214064449f), 1.59576912f), s);
}
#else
V vf v_gelu_tanh_rough(vf x) { return v_gelu_tanh(x); }

V vf v_gelu_tanh_grad_rough(vf x) { return v_gelu_tanh_grad(x); }
#endif

/* For a result of dtype T; the same in all sets where all processors are to give the same bits. */
V vf v_gelu_tanh_to(vf x, int T) { return T == MT_BF16 && !mt_isa_invariant ? v_gelu_tanh_rough(x) : v_gelu_tanh(x); }

V vf v_gelu_tanh_grad_to(vf x, int T) { return T == MT_BF16 && !mt_isa_invariant ? v_gelu_tanh_grad_rough(x) : v_gelu_tanh_grad(x); }

/* The rounding error of square = y·y; 0 where v_mad rounds twice. */
V vf v_square_rest(vf y, vf square) { return v_mad(y, y, -square); }

/* The normal distribution Φ(x) to about 2 ulp, also where it is tiny, and
 * e^(-x²/2). Φ(-y) e^(y²/2) (y + 3.5) is a polynomial in (y-3.5)/(y+3.5), a
 * minimax fit for y in [0, 14.5]. */
V_CALLED vf v_cdf(vf x, vf *bell) {
  vf y = v_min(v_set(14.5f), v_abs(x));
  vf square = y * y, e = v_exp(square * -0.5f);
  e = v_mad(e, v_square_rest(y, square) * -0.5f, e);
  vf t = v_recip(y + 3.5f), q = v_step(t, v_set(-7), 1);
  vf p = v_set(0.00011068869207520038f);
  p = v_step(p, q, 0.00042189768282696605f);
  p = v_step(p, q, -0.0004949420690536499f);
  p = v_step(p, q, -0.0031753103248775005f);
  p = v_step(p, q, 0.0064931148663163185f);
  p = v_step(p, q, 0.01740637794137001f);
  p = v_step(p, q, -0.1160530373454094f);
  p = v_step(p, q, 0.3154250383377075f);
  p = v_step(p, q, -0.5655617713928223f);
  p = v_step(p, q, 0.7444160580635071f);
  vf tail = p * t * e;
  *bell = e;
  return v_select(v_lt(v_set(0), x), 1.f - tail, tail);
}

/* x·Φ(x) = x/2·(1 + erf(x/√2)). */
V vf v_gelu_erf(vf x) {
  vf bell;
  return x * v_cdf(x, &bell);
}

V vf v_gelu_erf_grad(vf x) {
  vf bell, phi = v_cdf(x, &bell);
  return v_mad(x * bell, v_set(0.398942280f), phi);
}
