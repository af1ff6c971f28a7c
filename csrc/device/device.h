/* The C side of package device: the one table a backend exports. What the ops take is in
 * ops.h, made of their descriptions in Go (a test compares the layouts). */
#ifndef MT_DEVICE_H
#define MT_DEVICE_H

#include <stdint.h>

#define MT_DEVICE_VERSION 11

typedef struct { void *data; int32_t dtype, rank; int64_t shape[4], stride[4]; } mt_tensor; /* strides in elements */

#include "ops.h" /* enumerations, the ops' arguments, and lists of both */

/* A context names where a call runs: a device and its stream, or one thread of
 * the pool. The backend owns what hangs on it; the caller serialises its use. */
typedef struct {
  int32_t ordinal, worker;
  void *workspace;          /* of workspace_bytes: one tile's buffers; on a GPU what fuse_attention has asked for */
  int64_t workspace_bytes;
  void *stream;
  char error[256];          /* why the last call that returned non-zero failed */
} mt_context;

/* An op runs in phases; a phase is cut into tiles by shape only. The caller
 * runs every tile of a phase, in any order and on any thread, before the next.
 * scratch is shared by all tiles of one call and not cleared. A backend that
 * queues work itself has one phase of one tile. */
typedef struct {
  int64_t (*tiles)(const void *args, int32_t phase); /* 0: no such phase */
  int64_t (*scratch)(const void *args);              /* bytes; may be NULL */
  int32_t (*run)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile);
} mt_op;

/* Streams in addition to the ops' own, for communication. Each call chooses the context's
 * GPU first, may come from any thread, and returns NULL or why it failed. A mark
 * follows all that is in a stream when it is made; a stamp is a mark that records when
 * it was reached. */
typedef struct {
  const char *(*enter)(mt_context *ctx); /* the calling thread uses this GPU from now on */
  void *(*ops)(mt_context *ctx);
  const char *(*make)(mt_context *ctx, void **stream); /* runs before the ops, where both could run */
  void (*drop_stream)(mt_context *ctx, void *stream); /* when all in it is done */
  const char *(*mark)(mt_context *ctx, void *stream, void **mark);
  const char *(*follow)(mt_context *ctx, void *stream, void *mark);
  const char *(*reached)(mt_context *ctx, void *mark, int32_t *yes);
  void (*drop_mark)(mt_context *ctx, void *mark); /* who follows it still does */
  const char *(*free_memory)(mt_context *ctx, int64_t *bytes); /* of the entire GPU */
  const char *(*stamp)(mt_context *ctx, void *stream, void **mark);
  const char *(*between)(mt_context *ctx, void *from, void *to, double *seconds); /* two stamps that were reached */
} mt_streams;

/* Work that is recorded instead of being done, to be enqueued at once later, as often
 * as wanted: what the ops are given between begin and end, on one thread, with nothing in
 * between but ops. What its tensors hold is read each time; where they lie stays. Each call
 * returns NULL or why it failed; end must follow begin, and leaves the stream as before. */
typedef struct {
  const char *(*begin)(mt_context *ctx);
  const char *(*end)(mt_context *ctx, void **graph, int64_t *nodes);
  const char *(*launch)(mt_context *ctx, void *graph);
  void (*drop)(mt_context *ctx, void *graph); /* when its launches are done */
} mt_graphs;

/* Multiply-adds in registers, and how many operations a call has done. */
typedef struct { const char *name; double operations; } mt_instruction;

typedef struct {
  uint32_t version, bytes; /* MT_DEVICE_VERSION, sizeof(mt_device_api) */
  int64_t workspace_bytes; /* each context needs */
  int32_t ops;             /* MT_OPS */
  uint32_t sum;            /* MT_OPS_SUM: of the descriptions it was built from */
  mt_known known;          /* ops are called with nothing else */
  int32_t host_memory;     /* 1: device pointers are host pointers; the six below may be NULL */
  int32_t (*open)(mt_context *ctx, int32_t ordinal);
  void (*close)(mt_context *ctx); /* gives back what open and the ops took */
  int32_t (*alloc)(mt_context *ctx, int64_t bytes, void **out);
  int32_t (*release)(mt_context *ctx, void *p);
  int32_t (*copy)(mt_context *ctx, void *dst, const void *src, int64_t bytes, int32_t to_host); /* to the device: ends when src is free; to the host: when the bytes are there */
  int32_t (*sync)(mt_context *ctx);
  const char *(*describe)(void); /* libraries and instruction sets in use, for the log and the doctor */
  const char *(*products)(mt_context *ctx); /* what makes matrix products, with its version; NULL: the device alone */
  const char *(*refused)(mt_context *ctx); /* products that it has not made so far, their shapes and how often, in a line; NULL: it has made all, or the device alone does */
  void (*invariant)(void); /* From now on a result has the same bits whatever the number of rows and their alignment, and no library computes. This holds in all contexts of the process, until all are closed. NULL: this device does not switch here */
  const mt_streams *streams; /* NULL: ops are done when they return */
  /* Attention of like's shapes and strides is computed by the vendor's library from now on
   * (where no gradient is given, forward alone), in a workspace of *bytes that the caller
   * hands over in ctx; 1 with the reason in ctx->error where it cannot be. like NULL: our own
   * kernels again. NULL: this device has no such library. */
  int32_t (*fuse_attention)(mt_context *ctx, const mt_attention_backward_args *like, int64_t *bytes);
  const mt_graphs *graphs;   /* NULL: there are none */
  /* Does so many rounds of the fastest multiply-adds of dtype on the calling thread; 0 where
   * the processor has none of its own. NULL: it cannot be said. */
  int32_t (*instruction)(int32_t dtype, int64_t rounds, mt_instruction *out);
  mt_op op[MT_OPS];
} mt_device_api;

#endif
