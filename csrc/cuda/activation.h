/* The MLP's non-linearities and their slopes. */
#ifndef MT_ACTIVATION_H
#define MT_ACTIVATION_H

#include "kernel.h"

struct gelu_tanh {
  __device__ static float bent(float x) { return tanhf(0.7978845608f * (x + 0.044715f * x * x * x)); }
  __device__ static float value(float x) { return 0.5f * x * (1 + bent(x)); }
  __device__ static float slope(float x) {
    float t = bent(x);
    return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * 0.7978845608f * (1 + 3 * 0.044715f * x * x);
  }
};

struct gelu_erf {
  __device__ static float value(float x) { return 0.5f * x * erfcf(-0.7071067812f * x); }
  __device__ static float slope(float x) { return 0.5f * erfcf(-0.7071067812f * x) + x * expf(-0.5f * x * x) * 0.3989422804f; }
};

struct squared_relu {
  __device__ static float positive(float x) { return x < 0 ? 0 : x; } /* NaN stays */
  __device__ static float value(float x) { return positive(x) * positive(x); }
  __device__ static float slope(float x) { return 2 * positive(x); }
};

struct relu {
  __device__ static float value(float x) { return x < 0 ? 0 : x; } /* NaN stays */
  __device__ static float slope(float x) { return x > 0 ? 1 : 0; }
};

/* x·sigmoid(ax) */
template <int THOUSANDTHS> struct sigmoid_unit {
  __device__ static float a() { return THOUSANDTHS / 1000.0f; }
  __device__ static float value(float x) { return x / (1 + expf(-a() * x)); }
  __device__ static float slope(float x) {
    float s = 1 / (1 + expf(-a() * x));
    return s + a() * x * s * (1 - s);
  }
};
typedef sigmoid_unit<1000> silu;
typedef sigmoid_unit<1702> quick_gelu;

__host__ __device__ inline bool gated(int kind) { return MT_GATED >> kind & 1; }

/* X(kind, its struct) */
#define MT_ACTIVATIONS(X)                                                                                    \
  X(MT_GELU_TANH, gelu_tanh) X(MT_GELU_ERF, gelu_erf) X(MT_SQUARED_RELU, squared_relu) X(MT_SWIGLU, silu) \
  X(MT_QUICK_GEGLU, quick_gelu) X(MT_GEGLU, gelu_tanh) X(MT_RELU, relu)

/* f(the kind's struct) */
template <typename F> __device__ inline void with_activation(int kind, F f) {
#define AS_CASE(kind, type) case kind: f(type()); break;
  switch (kind) { MT_ACTIVATIONS(AS_CASE) }
#undef AS_CASE
}

#endif
