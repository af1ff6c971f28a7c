/* How cuDNN computes a graph: the first of the engines that its heuristics name that
 * repeats bit for bit and can be built. */
#ifndef MT_CUDNN_PLAN_H
#define MT_CUDNN_PLAN_H

#include "cudnn_graph.h"

namespace cudnn {

struct plan {
  desc_t desc;       /* lives as long as its graph */
  int64_t workspace; /* bytes */
};

/* Of a finished graph; false with the reason in g->error. device: a described one
 * (kind DEVICE), for machines that have none; else NULL, and g->handle's is meant. */
bool choose(graph *g, desc_t device, plan *out);

/* Where operands lie: pointers[i] is that of uids[i]; values by pointers to host memory. */
bool execute(graph *g, const plan &p, int count, const int64_t *uids, void **pointers, void *workspace);

} // namespace cudnn

#endif
