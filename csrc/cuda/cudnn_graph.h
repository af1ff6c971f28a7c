/* A cuDNN operation graph under construction: tensors are edges, operations nodes. What
 * fails first stays in error, and all that follows does nothing. */
#ifndef MT_CUDNN_GRAPH_H
#define MT_CUDNN_GRAPH_H

#include "cudnn_api.h"

namespace cudnn {

struct sizes { int64_t at[4]; };

inline sizes packed(const sizes &d) { return {{d.at[1] * d.at[2] * d.at[3], d.at[2] * d.at[3], d.at[3], 1}}; }
inline sizes turned(const sizes &s) { return {{s.at[0], s.at[1], s.at[3], s.at[2]}}; } /* of the last two */

struct edge {
  desc_t desc;
  sizes dims, strides;
};

struct graph {
  const api *call;
  void *handle; /* NULL: for a device that is only described (see cudnn_plan.h) */
  enum { MOST = 128, MOST_OPS = 40 };
  desc_t made[MOST], ops[MOST_OPS], whole;
  int made_count, op_count;
  int64_t next; /* number of the next virtual tensor */
  char error[256];
};

void begin(graph *g, const api *call, void *handle);
void drop(graph *g);

/* `g->whole`, finalized; false with the reason in g->error. */
bool finish(graph *g);

/* An operand in memory: aligned to 16 bytes. */
edge real(graph *g, int64_t uid, data type, const sizes &dims, const sizes &strides);
/* A number that is handed over by a pointer to host memory. */
edge value(graph *g, int64_t uid);

edge pointwise_op(graph *g, pointwise mode, const edge &x, const edge *b, data out = F32);
/* The same into an existing edge. */
void pointwise_into(graph *g, pointwise mode, const edge &x, const edge &b, const edge &y);
/* x where row >= column (of the last two dimensions), else *other. */
edge causal(graph *g, const edge &x, const edge &other);

/* [.., m, n] = a [.., m, k] · b [.., k, n]; b may have fewer heads (the second dimension), each for several of a's. */
edge product(graph *g, const edge &a, const edge &b, data out = F32);
void product_into(graph *g, const edge &a, const edge &b, const edge &c);

/* Along the dimensions in which y has 1 (or fewer heads than x). */
edge reduce(graph *g, reduction how, const edge &x, const sizes &dims);
void reduce_into(graph *g, reduction how, const edge &x, const edge &y);

/* x with its last two dimensions exchanged: another view of the same memory. */
edge transposed(graph *g, const edge &x, data out);

/* Descriptors by their attributes; used by plans too. */
bool check(graph *g, int status, const char *what);
desc_t descriptor(graph *g, kind k, const char *what);
void set(graph *g, desc_t d, attribute a, type t, int64_t count, const void *values, const char *what);
void finalize(graph *g, desc_t d, const char *what);

} // namespace cudnn

#endif
