/* How cuDNN computes a graph: an engine that is named, or the first of those that its
 * heuristics name, that repeats bit for bit and can be built. */
#ifndef MT_CUDNN_PLAN_H
#define MT_CUDNN_PLAN_H

#include "cudnn_graph.h"

namespace cudnn {

struct plan {
  desc_t desc;       /* lives as long as its graph */
  int64_t workspace; /* bytes */
};

/* An engine with settings of its own, for where only those repeat bit for bit. */
struct pinned {
  int64_t engine;
  int count;
  struct { int32_t knob; int64_t value; } knobs[6];
};

/* Of a finished graph; only: the engine to take, NULL for what cuDNN's heuristics name; false with the
 * reason in g->error. device: a described one (kind DEVICE), for machines that have none; else NULL, and
 * g->handle's is meant. */
bool choose(graph *g, desc_t device, const pinned *only, plan *out);

/* Where operands lie: pointers[i] is that of uids[i]; values by pointers to host memory. */
bool execute(graph *g, const plan &p, int count, const int64_t *uids, void **pointers, void *workspace);

} // namespace cudnn

#endif
