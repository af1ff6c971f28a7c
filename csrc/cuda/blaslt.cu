/* cuBLASLt with the declarations written out. It thinks in columns, so that our rows
 * are its columns: C = A·B is asked of it as Cᵀ = Bᵀ·Aᵀ, its first operand being our B.
 * What it chooses for a shape is kept: asking costs more than a small product. */
#include "blaslt.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "torchlibs.h"

namespace {

/* From cublasLt.h; equal in versions 12 and 13. */
typedef void *handle_t, *desc_t, *layout_t, *preference_t;
enum { R_32F = 0, R_16F = 2, R_16BF = 14, COMPUTE_32F = 68, COMPUTE_32F_FAST_TF32 = 77, OP_N = 0, OP_T = 1 };
enum { DESC_TRANSA = 3, DESC_TRANSB = 4, DESC_EPILOGUE = 7, DESC_BIAS = 8, DESC_AUX = 11, DESC_AUX_LD = 12, DESC_BIAS_TYPE = 26 };
enum { EPILOGUE_DEFAULT = 1, EPILOGUE_BIAS = 4, EPILOGUE_GELU_AUX = 160 };
enum { PREF_WORKSPACE = 1, PREF_REDUCTION = 3, PREF_ALIGN_A = 5, PREF_ALIGN_B = 6, PREF_ALIGN_C = 7, PREF_ALIGN_D = 8 };
enum { REDUCE_IN_COMPUTE_TYPE = 2, REDUCE_ANYHOW = 7 };
struct algo { uint64_t data[8]; };
struct heuristic {
  struct algo algo;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};

struct functions {
  int (*create)(handle_t *);
  int (*destroy)(handle_t);
  size_t (*version)();
  int (*desc_create)(desc_t *, int compute, int scale);
  int (*desc_destroy)(desc_t);
  int (*desc_set)(desc_t, int attribute, const void *value, size_t bytes);
  int (*layout_create)(layout_t *, int type, uint64_t rows, uint64_t columns, int64_t ld);
  int (*layout_destroy)(layout_t);
  int (*preference_create)(preference_t *);
  int (*preference_destroy)(preference_t);
  int (*preference_set)(preference_t, int attribute, const void *value, size_t bytes);
  int (*choose)(handle_t, desc_t, layout_t, layout_t, layout_t, layout_t, preference_t, int asked, heuristic *out, int *found);
  int (*matmul)(handle_t, desc_t, const void *alpha, const void *a, layout_t, const void *b, layout_t, const void *beta, const void *c, layout_t, void *d,
                layout_t, const struct algo *, void *workspace, size_t bytes, cudaStream_t);
};

/* What decides how a product is computed. */
struct shape {
  int64_t m, n, k, stride_a, stride_b, stride_c, stride_aux;
  int32_t dtype, dtype_c, trans_a, trans_b, accumulate, epilogue;
  int32_t align_a, align_b, align_c, align_bias; /* 0: no bias */
};

struct plan {
  shape key;
  bool possible;
  int64_t refused; /* calls */
  desc_t desc;
  layout_t a, b, c;
  struct algo algo;
};

enum { PLANS = 1024 }; /* a step has some dozens */
const size_t WORKSPACE = 32 << 20;

bool load(void *library, const char *name, void *out) {
  void *f = dlsym(library, name);
  memcpy(out, &f, sizeof f);
  return f != nullptr;
}

bool load_all(void *l, functions *f) {
  return load(l, "cublasLtCreate", &f->create) && load(l, "cublasLtDestroy", &f->destroy) && load(l, "cublasLtGetVersion", &f->version) && load(l, "cublasLtMatmulDescCreate", &f->desc_create) &&
         load(l, "cublasLtMatmulDescDestroy", &f->desc_destroy) && load(l, "cublasLtMatrixLayoutDestroy", &f->layout_destroy) &&
         load(l, "cublasLtMatmulPreferenceDestroy", &f->preference_destroy) &&
         load(l, "cublasLtMatmulDescSetAttribute", &f->desc_set) && load(l, "cublasLtMatrixLayoutCreate", &f->layout_create) &&
         load(l, "cublasLtMatmulPreferenceCreate", &f->preference_create) && load(l, "cublasLtMatmulPreferenceSetAttribute", &f->preference_set) &&
         load(l, "cublasLtMatmulAlgoGetHeuristic", &f->choose) && load(l, "cublasLtMatmul", &f->matmul);
}

#if MT_EMULATED
/* The stand-in of the tests computes in the stream's thread, as a GPU would. */
void in_stream(void *stream, void (*work)(void *), void *data) {
  mt_emu::set_error(mt_emu::submit(static_cast<cudaStream_t>(stream), "a matrix product", [=] { work(data); }, &data, sizeof data));
}
void meet_stand_in(void *library) {
  auto hook = (void (*)(void (*)(void *, void (*)(void *), void *)))dlsym(library, "standin_enqueue_by");
  if (hook) hook(in_stream);
}
#else
void meet_stand_in(void *) {}
#endif

/* Whether a library is there and starts: one of a newer CUDA than the driver's does not. */
bool start(const char *path, functions *f, handle_t *handle) {
  void *library = path[0] ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (!library || !load_all(library, f) || f->create(handle)) return false;
  meet_stand_in(library);
  return true;
}

/* The file that MONOTRON_CUBLASLT names, or several between colons; else as the loader finds
 * it, else next to a Python's torch. */
bool start_first(functions *f, handle_t *handle) {
  char path[PATH_MAX];
  if (const char *named = getenv("MONOTRON_CUBLASLT")) {
    for (size_t n; *named; named += n + (named[n] == ':')) {
      n = strcspn(named, ":");
      if (snprintf(path, sizeof path, "%.*s", (int)n, named) < (int)sizeof path && start(path, f, handle)) return true;
    }
    return false;
  }
  const char *names[] = {"libcublasLt.so.13", "libcublasLt.so.12"}, *wheels[] = {"cu13/lib/libcublasLt.so.13", "cublas/lib/libcublasLt.so.12"};
  for (const char *name : names)
    if (start(name, f, handle)) return true;
  for (const char *wheel : wheels) {
    mt_torch_library(path, wheel);
    if (start(path, f, handle)) return true;
  }
  return false;
}

bool setting(const char *name, const char *value) {
  const char *is = getenv(name);
  return is && !strcmp(is, value);
}

} // namespace

struct mt_blaslt {
  functions call;
  handle_t handle;
  void *workspace;
  int compute_f32;
  char description[96], refusals[400];
  int64_t beyond; /* calls refused for want of plans */
  int used;
  plan plans[PLANS];
};

mt_blaslt *mt_blaslt_open() {
  if ((MT_EMULATED && !getenv("MONOTRON_CUBLASLT")) || setting("MONOTRON_CUBLASLT", "off")) return nullptr;
  mt_blaslt *b = static_cast<mt_blaslt *>(calloc(1, sizeof *b));
  if (!b) return nullptr;
  bool tf32 = setting("MONOTRON_TF32", "on");
  b->compute_f32 = tf32 ? COMPUTE_32F_FAST_TF32 : COMPUTE_32F;
  if (!start_first(&b->call, &b->handle)) {
    free(b);
    return nullptr;
  }
  if (cudaMalloc(&b->workspace, WORKSPACE) != cudaSuccess) {
    cudaGetLastError();
    b->call.destroy(b->handle);
    free(b);
    return nullptr;
  }
  size_t v = b->call.version();
  snprintf(b->description, sizeof b->description, "cuBLASLt %zu.%zu.%zu%s", v / 10000, v / 100 % 100, v % 100, tf32 ? " with TF32" : "");
  return b;
}

void mt_blaslt_close(mt_blaslt *b) {
  if (!b) return;
  for (plan *p = b->plans; p < b->plans + b->used; p++) {
    if (p->desc) b->call.desc_destroy(p->desc);
    layout_t layouts[] = {p->a, p->b, p->c};
    for (layout_t l : layouts)
      if (l) b->call.layout_destroy(l);
  }
  b->call.destroy(b->handle);
  cudaFree(b->workspace);
  free(b);
}

const char *mt_blaslt_describe(const mt_blaslt *b) { return b ? b->description : "own matrix products (no cuBLASLt)"; }

namespace {

/* The power of two, up to 256, that the addresses are multiples of. */
int32_t alignment(const void *p, const void *q = nullptr) {
  uintptr_t bits = (uintptr_t)p | (uintptr_t)q | 256;
  return (int32_t)(bits & -bits);
}

shape shape_of(const mt_matmul_args &a) {
  shape s;
  memset(&s, 0, sizeof s); /* gaps too: shapes are compared by their bytes */
  s.m = a.c.shape[0], s.n = a.c.shape[1], s.k = a.trans_a ? a.a.shape[0] : a.a.shape[1];
  s.stride_a = a.a.stride[0], s.stride_b = a.b.stride[0], s.stride_c = a.c.stride[0], s.stride_aux = given(a.aux) ? a.aux.stride[0] : 0;
  s.dtype = a.a.dtype, s.dtype_c = a.c.dtype, s.trans_a = a.trans_a, s.trans_b = a.trans_b;
  s.accumulate = a.accumulate, s.epilogue = a.epilogue;
  s.align_a = alignment(a.a.data), s.align_b = alignment(a.b.data), s.align_c = alignment(a.c.data, given(a.aux) ? a.aux.data : nullptr);
  s.align_bias = given(a.bias) ? alignment(a.bias.data) : 0;
  return s;
}

int type_of(int32_t dtype) { return dtype == MT_F32 ? R_32F : dtype == MT_BF16 ? R_16BF : R_16F; }

template <typename V> int set(const mt_blaslt *b, desc_t d, int attribute, V value) { return b->call.desc_set(d, attribute, &value, sizeof value); }

/* The library's gelu is the tanh form, and its aux wants rows of 16 bytes. */
bool suits(const shape &s) {
  if (s.epilogue != MT_NO_EPILOGUE && s.epilogue != MT_GELU_TANH_EPILOGUE) return false;
  if (s.epilogue == MT_GELU_TANH_EPILOGUE && (s.stride_aux % 8 || s.align_c < 16)) return false;
  return true;
}

int describe_product(const mt_blaslt *b, plan *p) {
  const shape &s = p->key;
  int type = type_of(s.dtype), compute = s.dtype == MT_F32 ? b->compute_f32 : COMPUTE_32F;
  int epilogue = s.epilogue == MT_GELU_TANH_EPILOGUE ? EPILOGUE_GELU_AUX : 0;
  if (s.align_bias) epilogue |= EPILOGUE_BIAS;
  if (b->call.desc_create(&p->desc, compute, R_32F) || set(b, p->desc, DESC_TRANSA, (int32_t)(s.trans_b ? OP_T : OP_N)) ||
      set(b, p->desc, DESC_TRANSB, (int32_t)(s.trans_a ? OP_T : OP_N)) || set(b, p->desc, DESC_EPILOGUE, (int32_t)(epilogue ? epilogue : EPILOGUE_DEFAULT)))
    return 1;
  if (s.align_bias && set(b, p->desc, DESC_BIAS_TYPE, (int32_t)type)) return 1;
  if (s.epilogue && set(b, p->desc, DESC_AUX_LD, s.stride_aux)) return 1;
  return b->call.layout_create(&p->a, type, s.trans_b ? s.k : s.n, s.trans_b ? s.n : s.k, s.stride_b) ||
         b->call.layout_create(&p->b, type, s.trans_a ? s.m : s.k, s.trans_a ? s.k : s.m, s.stride_a) ||
         b->call.layout_create(&p->c, type_of(s.dtype_c), s.n, s.m, s.stride_c);
}

/* Sums over parts of the depth stay in f32: not in C's type, where that is shorter. */
int choose_among(const mt_blaslt *b, plan *p, preference_t pref) {
  const shape &s = p->key;
  uint32_t reduction = s.dtype_c == MT_F32 ? REDUCE_ANYHOW : REDUCE_IN_COMPUTE_TYPE;
  if (b->call.preference_set(pref, PREF_REDUCTION, &reduction, sizeof reduction)) return 1;
  struct { int attribute; uint32_t value; } aligned[] = {
      {PREF_ALIGN_A, (uint32_t)s.align_b}, {PREF_ALIGN_B, (uint32_t)s.align_a}, {PREF_ALIGN_C, (uint32_t)s.align_c}, {PREF_ALIGN_D, (uint32_t)s.align_c}};
  for (auto &x : aligned)
    if (b->call.preference_set(pref, x.attribute, &x.value, sizeof x.value)) return 1;
  if (b->call.preference_set(pref, PREF_WORKSPACE, &WORKSPACE, sizeof WORKSPACE)) return 1;
  heuristic best;
  int found = 0;
  if (b->call.choose(b->handle, p->desc, p->a, p->b, p->c, p->c, pref, 1, &best, &found) || found == 0 || best.state) return 1;
  p->algo = best.algo;
  return 0;
}

int choose(const mt_blaslt *b, plan *p) {
  preference_t pref;
  if (b->call.preference_create(&pref)) return 1;
  int failed = choose_among(b, p, pref);
  b->call.preference_destroy(pref);
  return failed;
}

/* Bias and aux of a call; the choice of an algorithm depends on their alignment. */
bool point(const mt_blaslt *b, plan *p, const mt_matmul_args &a) {
  const void *bias = a.bias.data;
  void *aux = a.aux.data;
  return !(p->key.align_bias && set(b, p->desc, DESC_BIAS, bias)) && !(p->key.epilogue && set(b, p->desc, DESC_AUX, aux));
}

/* The plan of a's shape, made at its first use; NULL when the table is full. */
plan *plan_of(mt_blaslt *b, const mt_matmul_args &a) {
  shape s = shape_of(a);
  for (int i = 0; i < b->used; i++)
    if (!memcmp(&b->plans[i].key, &s, sizeof s)) return &b->plans[i];
  if (b->used == PLANS) return nullptr;
  plan *p = &b->plans[b->used++];
  p->key = s;
  p->possible = suits(s) && !describe_product(b, p) && point(b, p, a) && !choose(b, p);
  return p;
}

} // namespace

bool mt_blaslt_matmul(mt_context *ctx, const mt_matmul_args &a) {
  mt_blaslt *b = state_of(ctx)->blaslt;
  if (!b) return false;
  plan *p = plan_of(b, a);
  float one = 1, beta = a.accumulate ? 1 : 0;
  if (p && p->possible && point(b, p, a) &&
      b->call.matmul(b->handle, p->desc, &one, a.b.data, p->a, a.a.data, p->b, &beta, a.c.data, p->c, a.c.data, p->c, &p->algo, b->workspace, WORKSPACE,
                     stream_of(ctx)) == 0)
    return true;
  if (p) p->refused++;
  else b->beyond++;
  return false;
}

const char *mt_blaslt_refused(mt_blaslt *b) {
  enum { SHOWN = 4 };
  static const char *const names[] = {"f32", "bf16", "f16"};
  int64_t shapes = 0, others = b ? b->beyond : 0;
  size_t at = 0;
  for (const plan *p = b ? b->plans : nullptr; b && p < b->plans + b->used; p++) {
    const shape &s = p->key;
    if (!p->refused) continue;
    if (shapes++ >= SHOWN) {
      others += p->refused;
      continue;
    }
    at += snprintf(b->refusals + at, sizeof b->refusals - at, "%s%s [%lld, %lld] of depth %lld%s%s%s, %lld times", at ? "; " : "", names[s.dtype], (long long)s.m, (long long)s.n,
                   (long long)s.k, s.accumulate ? " added to f32" : "", s.align_bias ? " with bias" : "", s.epilogue ? " and gelu" : "", (long long)p->refused);
  }
  if (others) at += snprintf(b->refusals + at, sizeof b->refusals - at, "%sothers, %lld times", at ? "; " : "", (long long)others);
  return at ? b->refusals : nullptr;
}
