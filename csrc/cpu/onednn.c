/* oneDNN, opened at run time and declared here: no headers, versions 2 and 3.
 * Every call runs on the calling thread alone. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "context.h"
#include "gemm.h"

enum { CPU_ENGINE = 1, IN_ORDER = 1, USER_SCRATCHPAD = 1, SCRATCHPAD_MD = 136 }; /* values of both versions */
enum { ARG_SRC = 1, ARG_DST = 17, ARG_WEIGHTS = 33, ARG_SCRATCHPAD = 80 };
enum { ONEDNN_BF16 = 2, ONEDNN_F32 = 3 };

typedef struct { int32_t arg; void *memory; } onednn_arg;
typedef union { char bytes[65536]; void *align; } onednn_struct; /* space for whatever version 2 fills in place */

static struct {
  int32_t ready, all;
  char name[64];
  void *library, *engine;
  const struct { int major, minor, patch; } *version;
  int (*sgemm)(char, char, int64_t, int64_t, int64_t, float, const float *, int64_t, const float *, int64_t, float, float *, int64_t);
  int (*engine_create)(void **, int, size_t);
  int (*stream_create)(void **, void *, unsigned);
  int (*md_init)(void *, int, const int64_t *, int, const int64_t *);    /* 2 */
  int (*md_create)(void **, int, const int64_t *, int, const int64_t *); /* 3 */
  int (*md_destroy)(void *);                                             /* 3 */
  size_t (*md_size)(const void *);
  int (*matmul_init)(void *, const void *, const void *, const void *, const void *); /* 2 */
  int (*pd_create2)(void **, const void *, const void *, void *, const void *);
  int (*pd_create3)(void **, void *, const void *, const void *, const void *, const void *, const void *);
  int (*pd_destroy)(void *);
  const void *(*pd_query_md)(const void *, int, int);
  int (*attr_create)(void **);
  int (*attr_destroy)(void *);
  int (*attr_scratchpad)(void *, int);
  int (*attr_post_ops)(void *, const void *);
  int (*post_ops_create)(void **);
  int (*post_ops_destroy)(void *);
  int (*append_sum2)(void *, float);
  int (*append_sum3)(void *, float, int32_t, int);
  int (*primitive_create)(void **, const void *);
  int (*execute)(const void *, void *, int, const onednn_arg *);
  int (*memory_create)(void **, const void *, void *, void *);
  int (*memory_set)(void *, void *);
  int (*memory_destroy)(void *);
  int (*primitive_destroy)(void *);
  int (*stream_wait)(void *);
  void (*omp_set_num_threads)(int);
} dnn;

static int32_t find(void *to, const char *name) {
  *(void **)to = dlsym(dnn.library, name);
  return *(void **)to != NULL;
}

static int32_t find_all(void) {
  const void *(*version)(void);
  if (!find(&version, "dnnl_version")) return 0;
  dnn.version = version();
  find(&dnn.omp_set_num_threads, "omp_set_num_threads"); /* missing where oneDNN was built without OpenMP */
  int32_t ok = find(&dnn.sgemm, "dnnl_sgemm") && find(&dnn.engine_create, "dnnl_engine_create") && find(&dnn.stream_create, "dnnl_stream_create") &&
               find(&dnn.md_size, "dnnl_memory_desc_get_size") && find(&dnn.pd_destroy, "dnnl_primitive_desc_destroy") &&
               find(&dnn.pd_query_md, "dnnl_primitive_desc_query_md") && find(&dnn.attr_create, "dnnl_primitive_attr_create") &&
               find(&dnn.attr_destroy, "dnnl_primitive_attr_destroy") && find(&dnn.attr_scratchpad, "dnnl_primitive_attr_set_scratchpad_mode") &&
               find(&dnn.attr_post_ops, "dnnl_primitive_attr_set_post_ops") && find(&dnn.post_ops_create, "dnnl_post_ops_create") &&
               find(&dnn.post_ops_destroy, "dnnl_post_ops_destroy") && find(&dnn.primitive_create, "dnnl_primitive_create") &&
               find(&dnn.execute, "dnnl_primitive_execute") && find(&dnn.memory_create, "dnnl_memory_create") &&
               find(&dnn.memory_set, "dnnl_memory_set_data_handle") && find(&dnn.memory_destroy, "dnnl_memory_destroy") &&
               find(&dnn.primitive_destroy, "dnnl_primitive_destroy") && find(&dnn.stream_wait, "dnnl_stream_wait");
  if (dnn.version->major == 2)
    return ok && find(&dnn.md_init, "dnnl_memory_desc_init_by_strides") && find(&dnn.matmul_init, "dnnl_matmul_desc_init") &&
           find(&dnn.pd_create2, "dnnl_primitive_desc_create") && find(&dnn.append_sum2, "dnnl_post_ops_append_sum");
  return ok && dnn.version->major == 3 && find(&dnn.md_create, "dnnl_memory_desc_create_with_strides") && find(&dnn.md_destroy, "dnnl_memory_desc_destroy") &&
         find(&dnn.pd_create3, "dnnl_matmul_primitive_desc_create") && find(&dnn.append_sum3, "dnnl_post_ops_append_sum");
}

/* MONOTRON_ISA holds for the library too: else kernels of two instruction sets are compared. It
 * must be applied before anything is made with the library, which is not used where that fails. The numbers
 * are dnnl_cpu_isa_sse41, its least, and dnnl_cpu_isa_avx2, alike in versions 2 and 3. */
static int32_t limit_isa(const char **held) {
  enum { SSE41 = 0x1, AVX2 = 0x7 };
  const char *setting = getenv("MONOTRON_ISA");
  int (*set_max_cpu_isa)(int);
  *held = "";
  if (!setting || !*setting) return 1;
  int avx2 = strcmp(setting, "avx2") == 0;
  *held = avx2 ? " with AVX2 at most" : " with SSE4.1 at most";
  return find(&set_max_cpu_isa, "dnnl_set_max_cpu_isa") && set_max_cpu_isa(avx2 ? AVX2 : SSE41) == 0;
}

static void open_library(void) {
  static const char *names[] = {"libdnnl.so.3", "libdnnl.so.2"};
  const char *setting = getenv("MONOTRON_ONEDNN");
  if (setting && strcmp(setting, "off") == 0) return;
  dnn.all = setting && strcmp(setting, "all") == 0;
  for (int i = 0; i < 2 && !dnn.ready; i++) {
    dnn.library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!dnn.library) continue;
    const char *held;
    dnn.ready = find_all() && limit_isa(&held) && dnn.engine_create(&dnn.engine, CPU_ENGINE, 0) == 0;
    if (dnn.ready) snprintf(dnn.name, sizeof dnn.name, "oneDNN %d.%d.%d (%s)%s", dnn.version->major, dnn.version->minor, dnn.version->patch, names[i], held);
  }
}

int32_t mt_onednn_open(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, open_library);
  return dnn.ready;
}

int32_t mt_onednn_all(void) { return mt_onednn_open() && dnn.all; }

const char *mt_onednn_describe(void) { return dnn.name; }

/* OpenMP counts threads per calling thread. */
static void single_thread(void) {
  static __thread int32_t done;
  if (!done && dnn.omp_set_num_threads) dnn.omp_set_num_threads(1);
  done = 1;
}

int32_t mt_onednn_sgemm(const gemm_job *job, const gemm_tile *t, float *sums, int64_t ld, int32_t add) {
  const gemm_operand *a = &job->a, *b = &job->b;
  single_thread();
  return dnn.sgemm(a->col == 1 ? 'N' : 'T', b->col == 1 ? 'N' : 'T', t->i1 - t->i0, t->j1 - t->j0, job->k, 1,
                   (const float *)gemm_at(a, t->i0, 0), a->col == 1 ? a->row : a->col, (const float *)gemm_at(b, 0, t->j0),
                   b->col == 1 ? b->row : b->col, add ? 1 : 0, sums, ld);
}

/* What a bf16 primitive depends on. */
typedef struct { int64_t m, n, k, a_row, a_col, b_row, b_col, ld; int32_t dtype, add; } matmul_key;
typedef struct { matmul_key key; void *primitive, *a, *b, *c, *scratch; int64_t scratch_bytes; } matmul_entry;

/* A context's primitives, found by key; the context's use is serialised, so
 * it needs no lock. Training has some thirty shapes; a flood of them (generation
 * at every length) overwrites. */
enum { ENTRIES = 1024, PROBES = 8 };
typedef struct { void *stream; matmul_entry entry[ENTRIES]; } matmul_cache;

static uint64_t hash(const matmul_key *key) {
  const unsigned char *p = (const unsigned char *)key;
  uint64_t h = 14695981039346656037u;
  for (size_t i = 0; i < sizeof *key; i++) h = (h ^ p[i]) * 1099511628211u;
  return h ^ h >> 32;
}

/* A matrix's description: version 2 fills `room`, version 3 makes an object. */
static void *describe(onednn_struct *room, int64_t rows, int64_t columns, int64_t row, int64_t col, int dtype) {
  int64_t shape[2] = {rows, columns}, stride[2] = {row, col};
  void *md = room;
  if (dnn.md_init) return dnn.md_init(room, 2, shape, dtype, stride) ? NULL : md;
  return dnn.md_create(&md, 2, shape, dtype, stride) ? NULL : md;
}

static void *make_attributes(const matmul_key *key) {
  void *attr = NULL, *post = NULL;
  if (dnn.attr_create(&attr)) return NULL;
  int bad = dnn.attr_scratchpad(attr, USER_SCRATCHPAD);
  if (key->add && !bad) {
    bad = dnn.post_ops_create(&post) || (dnn.append_sum2 ? dnn.append_sum2(post, 1) : dnn.append_sum3(post, 1, 0, ONEDNN_F32)) || dnn.attr_post_ops(attr, post);
    if (post) dnn.post_ops_destroy(post);
  }
  if (!bad) return attr;
  dnn.attr_destroy(attr);
  return NULL;
}

static int32_t make_primitive(matmul_entry *e, const void *a, const void *b, const void *c, const void *attr) {
  void *pd = NULL;
  if (dnn.matmul_init) {
    static __thread onednn_struct op;
    if (dnn.matmul_init(&op, a, b, NULL, c) || dnn.pd_create2(&pd, &op, attr, dnn.engine, NULL)) return 1;
  } else if (dnn.pd_create3(&pd, dnn.engine, a, b, NULL, c, attr)) {
    return 1;
  }
  const void *scratch = dnn.pd_query_md(pd, SCRATCHPAD_MD, 0);
  e->scratch_bytes = scratch ? (int64_t)dnn.md_size(scratch) : 0;
  int bad = dnn.primitive_create(&e->primitive, pd) || dnn.memory_create(&e->a, a, dnn.engine, NULL) || dnn.memory_create(&e->b, b, dnn.engine, NULL) ||
            dnn.memory_create(&e->c, c, dnn.engine, NULL) || (e->scratch_bytes && dnn.memory_create(&e->scratch, scratch, dnn.engine, NULL));
  dnn.pd_destroy(pd);
  return bad;
}

static void drop(matmul_entry *e) {
  if (e->primitive) dnn.primitive_destroy(e->primitive);
  void *memory[] = {e->a, e->b, e->c, e->scratch};
  for (int i = 0; i < 4; i++)
    if (memory[i]) dnn.memory_destroy(memory[i]);
}

static void fill(matmul_entry *e, const matmul_key *key) {
  onednn_struct room[3];
  memset(e, 0, sizeof *e);
  e->key = *key;
  void *a = describe(&room[0], key->m, key->k, key->a_row, key->a_col, ONEDNN_BF16);
  void *b = describe(&room[1], key->k, key->n, key->b_row, key->b_col, ONEDNN_BF16);
  void *c = describe(&room[2], key->m, key->n, key->ld, 1, key->dtype == MT_F32 ? ONEDNN_F32 : ONEDNN_BF16);
  void *attr = make_attributes(key);
  if (!a || !b || !c || !attr || make_primitive(e, a, b, c, attr)) e->primitive = NULL;
  if (attr) dnn.attr_destroy(attr);
  if (dnn.md_destroy) {
    dnn.md_destroy(a);
    dnn.md_destroy(b);
    dnn.md_destroy(c);
  }
}

static matmul_cache *cache_of(mt_context *ctx) {
  mt_cpu_state *state = mt_cpu_state_of(ctx);
  if (!state || state->onednn) return state ? state->onednn : NULL;
  matmul_cache *cache = calloc(1, sizeof *cache);
  if (cache && dnn.stream_create(&cache->stream, dnn.engine, IN_ORDER)) {
    free(cache);
    cache = NULL;
  }
  return state->onednn = cache;
}

/* The entry of a key, made now if need be. NULL without memory. */
static matmul_entry *lookup(mt_context *ctx, const matmul_key *key) {
  matmul_cache *cache = cache_of(ctx);
  if (!cache) return NULL;
  uint64_t h = hash(key);
  matmul_entry *empty = &cache->entry[h % ENTRIES];
  for (int p = 0; p < PROBES; p++) {
    matmul_entry *e = &cache->entry[(h + p) % ENTRIES];
    if (memcmp(&e->key, key, sizeof *key) == 0) return e;
    if (e->key.m == 0) {
      empty = e;
      break;
    }
  }
  drop(empty);
  fill(empty, key);
  return empty;
}

int32_t mt_onednn_bf16(mt_context *ctx, const gemm_job *job, const gemm_tile *t, void *out, int64_t ld, int32_t dtype, int32_t add) {
  const gemm_operand *a = &job->a, *b = &job->b;
  matmul_key key = {t->i1 - t->i0, t->j1 - t->j0, job->k, a->row, a->col, b->row, b->col, ld, dtype, add != 0};
  single_thread();
  matmul_entry *e = lookup(ctx, &key);
  if (!e || !e->primitive || e->scratch_bytes > ctx->workspace_bytes - MT_GEMM_SUMS) return 1;
  char *scratch = (char *)ctx->workspace + MT_GEMM_SUMS;
  if (dnn.memory_set(e->a, (void *)gemm_at(a, t->i0, 0)) || dnn.memory_set(e->b, (void *)gemm_at(b, 0, t->j0)) || dnn.memory_set(e->c, out) ||
      (e->scratch && dnn.memory_set(e->scratch, scratch)))
    return 1;
  onednn_arg args[] = {{ARG_SRC, e->a}, {ARG_WEIGHTS, e->b}, {ARG_DST, e->c}, {ARG_SCRATCHPAD, e->scratch}};
  void *stream = cache_of(ctx)->stream;
  return dnn.execute(e->primitive, stream, e->scratch ? 4 : 3, args) || dnn.stream_wait(stream);
}
