/* Attention as graphs of cuDNN: causal, without dropout, keys' heads shared by groups. */
#ifndef MT_CUDNN_ATTENTION_H
#define MT_CUDNN_ATTENTION_H

#include "cudnn_plan.h"

namespace cudnn {

/* Numbers of the operands. */
enum operand_uid { Q = 1, K, V, O, STATS, SCALE, MASKED, ONE, D_O, D_Q, D_K, D_V, DELTA, OPERANDS };

/* What decides about a plan. Strides as memory has them, in elements: batch, head, position. */
struct attention_shape {
  int64_t batch, heads, groups, positions, channels;
  int64_t q[3], k[3], v[3], o[3];      /* strides */
  int64_t d_o[3], d_q[3], d_k[3], d_v[3]; /* backward alone */
  data type;
  int32_t backward;
};

/* o and stats [batch, heads, positions] (log of the softmax's sum) from q, k, v. */
void forward_graph(graph *g, const attention_shape &s);
/* d_q, d_k, d_v; DELTA is f32 [batch, heads, positions]. Each gradient is one product with an order of its own. */
void backward_graph(graph *g, const attention_shape &s);

/* Whether NVIDIA says that a cuDNN computes this backward with the same bits each time on a
 * GPU of that compute capability; else the reason. */
bool backward_repeats(int version, int major, int minor, char (&why)[160]);
/* The engine that does, where it is not whichever the heuristics name. */
const pinned *backward_engine(int major);

} // namespace cudnn

#endif
