/* The C side of package device: layouts equal to tensor.go and ops.go (a test
 * compares sizes and offsets), and the one table a backend exports. */
#ifndef MT_DEVICE_H
#define MT_DEVICE_H

#include <stdint.h>

#define MT_DEVICE_VERSION 4

enum { MT_F32, MT_BF16, MT_F16, MT_I32, MT_I64, MT_U16, MT_F64 };

enum {
  MT_MATMUL, MT_NORM_FORWARD, MT_NORM_BACKWARD, MT_ACTIVATION_FORWARD, MT_ACTIVATION_BACKWARD, MT_ROPE,
  MT_ATTENTION_FORWARD, MT_ATTENTION_BACKWARD, MT_EMBEDDING_FORWARD, MT_EMBEDDING_BACKWARD,
  MT_CROSS_ENTROPY_STATS, MT_CROSS_ENTROPY_LOSS, MT_CROSS_ENTROPY_GRAD, MT_DROPOUT_ADD, MT_DROPOUT_BACKWARD,
  MT_COLUMN_SUM, MT_ADD, MT_COPY, MT_FILL, MT_UNIFORM, MT_GRAD_STATS, MT_WEIGHTED_SUM, MT_GRAD_SCALE, MT_ADAMW, MT_SGD,
  MT_OPS
};

typedef struct { void *data; int32_t dtype, rank; int64_t shape[4], stride[4]; } mt_tensor; /* strides in elements */

enum { MT_NO_EPILOGUE, MT_GELU_TANH_EPILOGUE, MT_GELU_ERF_EPILOGUE };
typedef struct { mt_tensor c, a, b, bias, aux; int32_t trans_a, trans_b, accumulate, epilogue; } mt_matmul_args;

enum { MT_LAYER_NORM, MT_RMS_NORM };
typedef struct { mt_tensor y, x, gamma, beta, mean, rstd; float eps; int32_t kind, one_plus, pad; } mt_norm_forward_args;
typedef struct {
  mt_tensor dx, dgamma, dbeta, dy, x, gamma, mean, rstd, residual;
  int32_t kind, one_plus;
} mt_norm_backward_args;

enum { MT_GELU_TANH, MT_GELU_ERF, MT_SQUARED_RELU, MT_SWIGLU, MT_QUICK_GEGLU };
typedef struct { mt_tensor y, x; int32_t kind, pad; } mt_activation_forward_args;
typedef struct { mt_tensor dx, dy, x; int32_t kind, pad; } mt_activation_backward_args;

typedef struct { mt_tensor x, cos, sin, positions; int32_t rot_dims, interleaved, inverse, pad; } mt_rope_args;

typedef struct {
  uint64_t stream;
  mt_tensor step, samples;
  float rate;
  int32_t position, channel, pad;
} mt_dropout;

typedef struct {
  mt_tensor o, q, k, v, lse, doc_start, slopes;
  mt_dropout drop;
  int32_t batch, q_offset, window;
  float scale;
} mt_attention_forward_args;
typedef struct { mt_tensor dq, dk, dv, d_o; mt_attention_forward_args forward; } mt_attention_backward_args;

typedef struct { mt_tensor out, table, ids; int64_t start; int32_t accumulate, pad; } mt_embedding_forward_args;
typedef struct { mt_tensor dtable, dout, ids; int64_t start; } mt_embedding_backward_args;

typedef struct { mt_tensor logits, labels, max, sum, target; int64_t start, columns; } mt_cross_entropy_stats_args;
typedef struct { mt_tensor loss, max, sum, target; } mt_cross_entropy_loss_args;
typedef struct { mt_tensor d, logits, labels, max, sum, weight, scale; int64_t start, columns; } mt_cross_entropy_grad_args;

typedef struct { mt_tensor out, x, bias, residual; mt_dropout drop; } mt_dropout_add_args;
typedef struct { mt_tensor dx, dy; mt_dropout drop; } mt_dropout_backward_args;

typedef struct { mt_tensor out, x; } mt_column_sum_args;
typedef struct { mt_tensor out, a, b; } mt_add_args;
typedef struct { mt_tensor dst, src; } mt_copy_args;
typedef struct { mt_tensor out; double value; } mt_fill_args;
typedef struct { mt_tensor out, step; uint64_t stream; } mt_uniform_args;

enum { MT_STAT_SQUARES, MT_STAT_NON_FINITE, MT_STAT_ZEROS, MT_STATS };
typedef struct { mt_tensor out, x; } mt_grad_stats_args;
typedef struct { mt_tensor out, x, w; } mt_weighted_sum_args;

enum {
  MT_HYPER_LR, MT_HYPER_WEIGHT_DECAY, MT_HYPER_CORRECTION1, MT_HYPER_CORRECTION2, MT_HYPER_LOSS_SCALE,
  MT_HYPER_GRAD_SCALE, MT_HYPER_SKIP, MT_HYPER_GRAD_NORM, MT_HYPERS
};
typedef struct { mt_tensor hyper, stats; float max_norm; int32_t pad; } mt_grad_scale_args;
typedef struct {
  mt_tensor param, grad, m, v, model, hyper;
  float beta1, beta2, eps, lr_mult, wd_mult; int32_t pad;
} mt_adamw_args;
typedef struct { mt_tensor param, grad, momentum, model, hyper; float mu, lr_mult, wd_mult; int32_t pad; } mt_sgd_args;

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
  int64_t (*tiles)(const void *args, int32_t phase); /* 0: there is no such phase */
  int64_t (*scratch)(const void *args);              /* bytes; may be NULL */
  int32_t (*run)(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile);
} mt_op;

/* X(number, name) of every op, for tables. */
#define MT_EACH_OP(X)                                                                                                  \
  X(MT_MATMUL, matmul) X(MT_NORM_FORWARD, norm_forward) X(MT_NORM_BACKWARD, norm_backward)                             \
  X(MT_ACTIVATION_FORWARD, activation_forward) X(MT_ACTIVATION_BACKWARD, activation_backward) X(MT_ROPE, rope)         \
  X(MT_ATTENTION_FORWARD, attention_forward) X(MT_ATTENTION_BACKWARD, attention_backward)                              \
  X(MT_EMBEDDING_FORWARD, embedding_forward) X(MT_EMBEDDING_BACKWARD, embedding_backward)                              \
  X(MT_CROSS_ENTROPY_STATS, cross_entropy_stats) X(MT_CROSS_ENTROPY_LOSS, cross_entropy_loss)                          \
  X(MT_CROSS_ENTROPY_GRAD, cross_entropy_grad) X(MT_DROPOUT_ADD, dropout_add) X(MT_DROPOUT_BACKWARD, dropout_backward) \
  X(MT_COLUMN_SUM, column_sum) X(MT_ADD, add) X(MT_COPY, copy) X(MT_FILL, fill) X(MT_UNIFORM, uniform)                 \
  X(MT_GRAD_STATS, grad_stats) X(MT_WEIGHTED_SUM, weighted_sum) X(MT_GRAD_SCALE, grad_scale) X(MT_ADAMW, adamw)        \
  X(MT_SGD, sgd)

/* Streams beside the ops' own, for communication. Each call chooses the context's
 * GPU first, may come from any thread, and returns NULL or why it failed. A mark
 * stands behind all that is in a stream when it is made. */
typedef struct {
  const char *(*enter)(mt_context *ctx); /* the calling thread uses this GPU from now on */
  void *(*ops)(mt_context *ctx);
  const char *(*make)(mt_context *ctx, void **stream);
  void (*drop_stream)(mt_context *ctx, void *stream); /* when all in it is done */
  const char *(*mark)(mt_context *ctx, void *stream, void **mark);
  const char *(*follow)(mt_context *ctx, void *stream, void *mark);
  const char *(*reached)(mt_context *ctx, void *mark, int32_t *yes);
  void (*drop_mark)(mt_context *ctx, void *mark); /* who follows it still does */
} mt_streams;

/* Work that is taken down instead of being done, to be enqueued as a whole later, as often
 * as wanted: what the ops are given between begin and end, on one thread, with nothing in
 * between but ops. What its tensors hold is read each time; where they lie stays. Each call
 * returns NULL or why it failed; end must follow begin, and leaves the stream as before. */
typedef struct {
  const char *(*begin)(mt_context *ctx);
  const char *(*end)(mt_context *ctx, void **graph, int64_t *nodes);
  const char *(*launch)(mt_context *ctx, void *graph);
  void (*drop)(mt_context *ctx, void *graph); /* when its launches are done */
} mt_graphs;

typedef struct {
  uint32_t version, bytes; /* MT_DEVICE_VERSION, sizeof(mt_device_api) */
  int64_t workspace_bytes; /* each context needs */
  int32_t ops;             /* MT_OPS */
  int32_t host_memory;     /* 1: device pointers are host pointers; the six below may be NULL */
  int32_t (*open)(mt_context *ctx, int32_t ordinal);
  void (*close)(mt_context *ctx); /* gives back what open and the ops took */
  int32_t (*alloc)(mt_context *ctx, int64_t bytes, void **out);
  int32_t (*release)(mt_context *ctx, void *p);
  int32_t (*copy)(mt_context *ctx, void *dst, const void *src, int64_t bytes, int32_t to_host); /* to the device: ends when src is free; to the host: when the bytes are there */
  int32_t (*sync)(mt_context *ctx);
  const char *(*describe)(void); /* libraries and instruction sets in use, for the log and the doctor */
  const mt_streams *streams; /* NULL: ops are done when they return */
  /* Attention of like's shapes and strides is computed by the vendor's library from now on
   * (where no gradient is given, forward alone), in a workspace of *bytes that the caller
   * hands over in ctx; 1 with the reason in ctx->error where it cannot be. like NULL: our own
   * kernels again. NULL: there is no such library for this device. */
  int32_t (*fuse_attention)(mt_context *ctx, const mt_attention_backward_args *like, int64_t *bytes);
  const mt_graphs *graphs;   /* NULL: there are none */
  mt_op op[MT_OPS];
} mt_device_api;

#endif
