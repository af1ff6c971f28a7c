/* Streams in addition to the ops' own: communication runs in them (device.h, mt_streams). */
#include "op.h"
#include "streams.h"

static const char *why(cudaError_t e) { return e == cudaSuccess ? nullptr : cudaGetErrorString(e); }
static cudaError_t choose(mt_context *ctx) { return cudaSetDevice(ctx->ordinal); }

static const char *enter(mt_context *ctx) { return why(choose(ctx)); }
static void *ops(mt_context *ctx) { return stream_of(ctx); }

static const char *make(mt_context *ctx, void **stream) {
  cudaError_t e = choose(ctx);
  cudaStream_t s = nullptr;
  int least = 0, greatest = 0;
  if (e == cudaSuccess) e = cudaDeviceGetStreamPriorityRange(&least, &greatest);
  if (e == cudaSuccess) e = cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, greatest);
  *stream = s;
  return why(e);
}

static void drop_stream(mt_context *ctx, void *stream) {
  if (choose(ctx) == cudaSuccess) cudaStreamDestroy((cudaStream_t)stream);
}

static const char *record(mt_context *ctx, void *stream, unsigned flags, void **out) {
  cudaError_t e = choose(ctx);
  cudaEvent_t event = nullptr;
  if (e == cudaSuccess) e = cudaEventCreateWithFlags(&event, flags);
  if (e == cudaSuccess) e = cudaEventRecord(event, (cudaStream_t)stream);
  *out = event;
  return why(e);
}

static const char *mark(mt_context *ctx, void *stream, void **out) { return record(ctx, stream, cudaEventDisableTiming, out); }
static const char *stamp(mt_context *ctx, void *stream, void **out) { return record(ctx, stream, cudaEventDefault, out); }

static const char *between(mt_context *ctx, void *from, void *to, double *seconds) {
  float milliseconds = 0;
  cudaError_t e = choose(ctx);
  if (e == cudaSuccess) e = cudaEventElapsedTime(&milliseconds, (cudaEvent_t)from, (cudaEvent_t)to);
  *seconds = milliseconds / 1e3;
  return why(e);
}

static const char *follow(mt_context *ctx, void *stream, void *event) {
  cudaError_t e = choose(ctx);
  return why(e == cudaSuccess ? cudaStreamWaitEvent((cudaStream_t)stream, (cudaEvent_t)event, 0) : e);
}

static const char *reached(mt_context *ctx, void *event, int32_t *yes) {
  cudaError_t e = choose(ctx);
  if (e == cudaSuccess) e = cudaEventQuery((cudaEvent_t)event);
  *yes = e == cudaSuccess;
  if (e != cudaErrorNotReady) return why(e);
  cudaGetLastError(); /* the next call must not report that it is not ready */
  return nullptr;
}

static void drop_mark(mt_context *ctx, void *event) {
  if (choose(ctx) == cudaSuccess) cudaEventDestroy((cudaEvent_t)event);
}

static const char *free_memory(mt_context *ctx, int64_t *bytes) {
  size_t free = 0, total = 0;
  cudaError_t e = choose(ctx);
  if (e == cudaSuccess) e = cudaMemGetInfo(&free, &total);
  *bytes = (int64_t)free;
  return why(e);
}

const mt_streams *mt_cuda_streams() {
  static const mt_streams all = {enter, ops, make, drop_stream, mark, follow, reached, drop_mark, free_memory, stamp, between};
  return &all;
}
