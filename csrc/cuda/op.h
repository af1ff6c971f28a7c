/* The host's half of an op: one file an op family holds its kernels and
 * `const mt_op mt_cuda_<op>`. An op is one call, which only enqueues. Whichever file works
 * by an enumeration has `MT_KNOWN(it, bits)`: an op is called with nothing else. */
#ifndef MT_OP_H
#define MT_OP_H

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#endif

#include "tensor.h"
#include "values.h"

/* What hangs on a context. */
struct mt_stream {
  cudaStream_t stream;
  struct mt_blaslt *blaslt; /* cuBLASLt's state; NULL where the library is missing */
  struct mt_cudnn *cudnn; /* NULL: not asked for */
  struct mt_staging *staging; /* NULL: no pinned memory */
  int processors;
};

inline mt_stream *state_of(mt_context *ctx) { return static_cast<mt_stream *>(ctx->stream); }
inline cudaStream_t stream_of(mt_context *ctx) { return state_of(ctx)->stream; }

/* 0, or 1 with the reason in ctx->error. */
int32_t mt_cuda_check(mt_context *ctx, cudaError_t e, const char *what);

/* Begins a call: selects the context's device, because goroutines move between threads,
 * and forgets the last call's error. */
int32_t mt_cuda_enter(mt_context *ctx);

/* A range by the op's name in NVIDIA's profilers (NVTX; nothing where none is attached). */
struct mt_range {
#if __has_include(<nvtx3/nvToolsExt.h>) && !MT_EMULATED
  explicit mt_range(const char *name) { nvtxRangePushA(name); }
  ~mt_range() { nvtxRangePop(); }
#else
  explicit mt_range(const char *) {}
#endif
};

inline int64_t mt_one_phase(const void *, int32_t phase) { return phase == 0; }

/* Defines mt_cuda_<name> from a function name(mt_context *, const mt_<name>_args &, void *scratch)
 * that launches kernels, or says in ctx->error why it cannot; bytes(args), or NULL, is the
 * scratch it needs. */
#define MT_OP(name, bytes)                                                                        \
  static int32_t name##_run(mt_context *ctx, const void *args, void *scratch, int32_t, int64_t) { \
    if (mt_cuda_enter(ctx)) return 1;                                                             \
    mt_range range(#name);                                                                        \
    name(ctx, *static_cast<const mt_##name##_args *>(args), scratch);                             \
    return mt_cuda_check(ctx, cudaGetLastError(), #name) || ctx->error[0];                        \
  }                                                                                               \
  extern const mt_op mt_cuda_##name;                                                              \
  const mt_op mt_cuda_##name = {mt_one_phase, bytes, name##_run};

#define MT_KNOWN(name, bits)                   \
  extern const uint32_t mt_cuda_known_##name; \
  const uint32_t mt_cuda_known_##name = bits;

/* The statement with T as the type of a value dtype; ops are called with no other. */
#define MT_VALUES (MT_BIT(MT_F32) | MT_BIT(MT_BF16) | MT_BIT(MT_F16))
#define MT_BY_TYPE(dtype, ...)                        \
  switch (dtype) {                                    \
  case MT_F32: { typedef float T; __VA_ARGS__; break; } \
  case MT_BF16: { typedef bf16 T; __VA_ARGS__; break; } \
  case MT_F16: { typedef f16 T; __VA_ARGS__; break; }   \
  }

/* Element i of a contiguous tensor of any value dtype. */
__device__ inline float value_at(const mt_tensor &t, int64_t i) {
  float x = 0;
  MT_BY_TYPE(t.dtype, x = to_float(data_of<T>(t)[i]))
  return x;
}

inline unsigned blocks_for(int64_t work, int64_t each) { return (unsigned)ceil_div(work, each); }
inline unsigned warps_for(int64_t threads) { return (unsigned)(ceil_div(threads, 32) * 32); }

#endif
