/* A libcublasLt for tests without a GPU: VERSION is its number, START what its creation
 * returns (0: it starts). It refuses every product, so that our own kernels make them. */
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))
enum { NOT_SUPPORTED = 15 };

static char handle;

EXPORT int cublasLtCreate(void **out) {
  *out = &handle;
  return START;
}
EXPORT int cublasLtDestroy(void *h) { return h != &handle; }
EXPORT size_t cublasLtGetVersion(void) { return VERSION; }

static int made(void **out) {
  *out = &handle;
  return 0;
}
EXPORT int cublasLtMatmulDescCreate(void **out, int compute, int scale) { return made(out); }
EXPORT int cublasLtMatmulDescDestroy(void *d) { return 0; }
EXPORT int cublasLtMatmulDescSetAttribute(void *d, int attribute, const void *value, size_t bytes) { return 0; }
EXPORT int cublasLtMatrixLayoutCreate(void **out, int type, uint64_t rows, uint64_t columns, int64_t ld) { return made(out); }
EXPORT int cublasLtMatrixLayoutDestroy(void *l) { return 0; }
EXPORT int cublasLtMatmulPreferenceCreate(void **out) { return made(out); }
EXPORT int cublasLtMatmulPreferenceDestroy(void *p) { return 0; }
EXPORT int cublasLtMatmulPreferenceSetAttribute(void *p, int attribute, const void *value, size_t bytes) { return 0; }
EXPORT int cublasLtMatmulAlgoGetHeuristic(void *h, void *d, void *a, void *b, void *c, void *e, void *p, int asked, void *out, int *found) {
  *found = 0;
  return NOT_SUPPORTED;
}
EXPORT int cublasLtMatmul(void *h, void *d, const void *alpha, const void *a, void *la, const void *b, void *lb, const void *beta, const void *c, void *lc,
                          void *e, void *le, const void *algo, void *workspace, size_t bytes, void *stream) {
  return NOT_SUPPORTED;
}
