/* Pinned memory is one ring of quarters. Copies fill it from front to back; a quarter is
 * used again when the event behind its last copy has come. */
#include "staging.h"

#include <cstdlib>
#include <cstring>

enum { QUARTERS = 4, QUARTER = 4 << 20 };

struct mt_staging {
  char *memory; /* QUARTERS * QUARTER */
  cudaEvent_t left[QUARTERS];
  int at;       /* the quarter being filled */
  int64_t used; /* bytes of it */
};

mt_staging *mt_staging_open() {
  mt_staging *s = static_cast<mt_staging *>(calloc(1, sizeof *s));
  if (!s) return nullptr;
  bool whole = cudaHostAlloc(reinterpret_cast<void **>(&s->memory), QUARTERS * QUARTER, cudaHostAllocDefault) == cudaSuccess;
  for (cudaEvent_t &e : s->left) whole = whole && cudaEventCreateWithFlags(&e, cudaEventDisableTiming) == cudaSuccess;
  if (whole) return s;
  cudaGetLastError(); /* later calls must not report it */
  mt_staging_close(s);
  return nullptr;
}

void mt_staging_close(mt_staging *s) {
  if (!s) return;
  for (cudaEvent_t e : s->left)
    if (e) cudaEventDestroy(e);
  if (s->memory) cudaFreeHost(s->memory);
  free(s);
}

/* Space for a part of `bytes`, in *part, free of earlier copies. */
static cudaError_t room(mt_staging *s, cudaStream_t stream, int64_t bytes, char **out, int64_t *part) {
  if (s->used == QUARTER) {
    cudaError_t e = cudaEventRecord(s->left[s->at], stream);
    s->at = (s->at + 1) % QUARTERS, s->used = 0;
    if (e == cudaSuccess) e = cudaEventSynchronize(s->left[s->at]);
    if (e != cudaSuccess) return e;
  }
  *out = s->memory + (int64_t)s->at * QUARTER + s->used;
  *part = bytes < QUARTER - s->used ? bytes : QUARTER - s->used;
  int64_t next = s->used + (*part + 63) / 64 * 64; /* parts begin aligned */
  s->used = next < QUARTER ? next : QUARTER;
  return cudaSuccess;
}

cudaError_t mt_staging_up(mt_staging *s, cudaStream_t stream, void *dst, const void *src, int64_t bytes) {
  for (int64_t done = 0, part = 0; done < bytes; done += part) {
    char *here;
    cudaError_t e = room(s, stream, bytes - done, &here, &part);
    if (e != cudaSuccess) return e;
    memcpy(here, static_cast<const char *>(src) + done, part);
    e = cudaMemcpyAsync(static_cast<char *>(dst) + done, here, part, cudaMemcpyHostToDevice, stream);
    if (e != cudaSuccess) return e;
  }
  return cudaSuccess;
}

/* One part is on its way while the last is taken out. */
cudaError_t mt_staging_down(mt_staging *s, cudaStream_t stream, void *dst, const void *src, int64_t bytes) {
  struct { char *here; int64_t at, bytes; cudaEvent_t there; } way[2] = {};
  cudaError_t e = cudaSuccess;
  for (auto &w : way)
    if (e == cudaSuccess) e = cudaEventCreateWithFlags(&w.there, cudaEventDisableTiming);
  int64_t sent = 0;
  for (int turn = 0; e == cudaSuccess && (sent < bytes || way[turn].bytes || way[turn ^ 1].bytes); turn ^= 1) {
    auto &w = way[turn];
    if (w.bytes) { /* the older of the two */
      e = cudaEventSynchronize(w.there);
      if (e != cudaSuccess) break;
      memcpy(static_cast<char *>(dst) + w.at, w.here, w.bytes);
      w.bytes = 0;
    }
    if (sent == bytes) continue;
    e = room(s, stream, bytes - sent, &w.here, &w.bytes);
    w.at = sent;
    if (e == cudaSuccess) e = cudaMemcpyAsync(w.here, static_cast<const char *>(src) + sent, w.bytes, cudaMemcpyDeviceToHost, stream);
    if (e == cudaSuccess) e = cudaEventRecord(w.there, stream);
    sent += w.bytes;
  }
  for (auto &w : way)
    if (w.there) cudaEventDestroy(w.there);
  return e;
}
