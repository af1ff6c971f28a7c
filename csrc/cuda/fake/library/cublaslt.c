/* A libcublasLt for tests without a GPU: VERSION is its number, START what its creation
 * returns (0: it starts). Without SUMS it refuses every product, so that our own kernels make
 * them. With it products are made, but those with a depth of 7 or an epilogue; where a sum
 * begins depends on the alignment that the choice was given, as if an algorithm for wide
 * loads summed otherwise than one for narrow ones. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
enum { NOT_SUPPORTED = 15 };
enum { R_32F = 0, R_16F = 2, R_16BF = 14 };
enum { DESC_TRANSA = 3, DESC_TRANSB = 4, DESC_EPILOGUE = 7, DESC_BIAS = 8 };
enum { PREF_ALIGN_A = 5, PREF_ALIGN_D = 8 };

static char handle;

EXPORT int cublasLtCreate(void **out) {
  *out = &handle;
  return START;
}
EXPORT int cublasLtDestroy(void *h) { return h != &handle; }
EXPORT size_t cublasLtGetVersion(void) { return VERSION; }

typedef struct { int32_t trans_a, trans_b, epilogue; const void *bias; } desc;
typedef struct { int type; int64_t rows, columns, ld; } layout;
typedef struct { uint32_t align[PREF_ALIGN_D + 1]; } preference;

static int made(void **out, size_t bytes) { return (*out = calloc(1, bytes)) ? 0 : 3; }
static int dropped(void *p) {
  free(p);
  return 0;
}
EXPORT int cublasLtMatmulDescCreate(void **out, int compute, int scale) { return made(out, sizeof(desc)); }
EXPORT int cublasLtMatmulDescDestroy(void *d) { return dropped(d); }
EXPORT int cublasLtMatmulDescSetAttribute(desc *d, int attribute, const void *value, size_t bytes) {
  if (attribute == DESC_TRANSA) memcpy(&d->trans_a, value, 4);
  if (attribute == DESC_TRANSB) memcpy(&d->trans_b, value, 4);
  if (attribute == DESC_EPILOGUE) memcpy(&d->epilogue, value, 4);
  if (attribute == DESC_BIAS) memcpy(&d->bias, value, sizeof(void *));
  return 0;
}
EXPORT int cublasLtMatrixLayoutCreate(void **out, int type, uint64_t rows, uint64_t columns, int64_t ld) {
  if (made(out, sizeof(layout))) return 3;
  *(layout *)*out = (layout){type, (int64_t)rows, (int64_t)columns, ld};
  return 0;
}
EXPORT int cublasLtMatrixLayoutDestroy(void *l) { return dropped(l); }
EXPORT int cublasLtMatmulPreferenceCreate(void **out) { return made(out, sizeof(preference)); }
EXPORT int cublasLtMatmulPreferenceDestroy(void *p) { return dropped(p); }
EXPORT int cublasLtMatmulPreferenceSetAttribute(preference *p, int attribute, const void *value, size_t bytes) {
  if (attribute >= PREF_ALIGN_A && attribute <= PREF_ALIGN_D) memcpy(&p->align[attribute], value, 4);
  return 0;
}

/* As cublasLt.h has it: the algorithm, its workspace, whether it can, waves, and reserved fields. */
typedef struct { uint64_t algo[8]; size_t workspace; int32_t state; float waves; int32_t reserved[4]; } result;

EXPORT int cublasLtMatmulAlgoGetHeuristic(void *h, desc *d, layout *a, layout *b, layout *c, layout *e, preference *p, int asked, result *out, int *found) {
  int64_t depth = d->trans_a ? a->rows : a->columns;
  *found = 0;
#ifdef SUMS
  if (d->epilogue != 1 || depth == 7) return NOT_SUPPORTED;
  memset(out, 0, sizeof *out);
  for (int i = PREF_ALIGN_A; i <= PREF_ALIGN_D; i++) out->algo[0] += p->align[i] * (uint64_t)(i * i);
  *found = 1;
  return 0;
#else
  (void)depth;
  return NOT_SUPPORTED;
#endif
}

#ifdef SUMS
static float get(const void *p, int type, int64_t i) {
  if (type == R_32F) return ((const float *)p)[i];
  if (type == R_16F) return (float)((const _Float16 *)p)[i];
  uint32_t bits = (uint32_t)((const uint16_t *)p)[i] << 16;
  float x;
  memcpy(&x, &bits, 4);
  return x;
}
static void put(void *p, int type, int64_t i, float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  if (type == R_32F) ((float *)p)[i] = x;
  else if (type == R_16F) ((_Float16 *)p)[i] = (_Float16)x;
  else ((uint16_t *)p)[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static void (*enqueue_by)(void *stream, void (*work)(void *), void *data);
EXPORT void standin_enqueue_by(void (*f)(void *, void (*)(void *), void *)) { enqueue_by = f; }

typedef struct { desc d; layout a, b, c; const void *x, *y; void *z; float beta; uint64_t algo; } call;

/* Columns: element (i, j) lies at i + j·ld. */
static void product(void *given) {
  call *k = given;
  int64_t depth = k->d.trans_a ? k->a.rows : k->a.columns, from = (int64_t)(k->algo % 13) * depth / 13;
  for (int64_t j = 0; j < k->c.columns; j++)
    for (int64_t i = 0; i < k->c.rows; i++) {
      float sum = 0;
      for (int64_t n = 0; n < depth; n++) {
        int64_t l = (from + n) % depth;
        sum += get(k->x, k->a.type, k->d.trans_a ? l + i * k->a.ld : i + l * k->a.ld) * get(k->y, k->b.type, k->d.trans_b ? j + l * k->b.ld : l + j * k->b.ld);
      }
      if (k->beta != 0) sum += k->beta * get(k->z, k->c.type, i + j * k->c.ld);
      put(k->z, k->c.type, i + j * k->c.ld, sum);
    }
}

EXPORT int cublasLtMatmul(void *h, desc *d, const float *alpha, const void *a, layout *la, const void *b, layout *lb, const float *beta, const void *c, layout *lc,
                          void *e, layout *le, const uint64_t *algo, void *workspace, size_t bytes, void *stream) {
  call *k = malloc(sizeof *k); /* kept: a captured stream runs it again and again */
  if (!k || !enqueue_by || *alpha != 1 || c != e) return NOT_SUPPORTED;
  *k = (call){*d, *la, *lb, *lc, a, b, e, *beta, *algo};
  enqueue_by(stream, product, k);
  return 0;
}
#else
EXPORT int cublasLtMatmul(void *h, void *d, const void *alpha, const void *a, void *la, const void *b, void *lb, const void *beta, const void *c, void *lc,
                          void *e, void *le, const void *algo, void *workspace, size_t bytes, void *stream) {
  return NOT_SUPPORTED;
}
#endif
