/* The CPU's kernel table. */
#include "cpu.h"

#define MT_CPU_OPS(X)                                                                                              \
  X(MT_MATMUL, matmul) X(MT_NORM_FORWARD, norm_forward) X(MT_NORM_BACKWARD, norm_backward)                         \
  X(MT_ACTIVATION_FORWARD, activation_forward) X(MT_ACTIVATION_BACKWARD, activation_backward) X(MT_ROPE, rope)      \
  X(MT_ATTENTION_FORWARD, attention_forward) X(MT_ATTENTION_BACKWARD, attention_backward)                          \
  X(MT_EMBEDDING_FORWARD, embedding_forward) X(MT_EMBEDDING_BACKWARD, embedding_backward)                          \
  X(MT_CROSS_ENTROPY_STATS, cross_entropy_stats) X(MT_CROSS_ENTROPY_LOSS, cross_entropy_loss)                      \
  X(MT_CROSS_ENTROPY_GRAD, cross_entropy_grad) X(MT_DROPOUT_ADD, dropout_add) X(MT_DROPOUT_BACKWARD, dropout_backward) \
  X(MT_COLUMN_SUM, column_sum) X(MT_ADD, add) X(MT_COPY, copy) X(MT_FILL, fill) X(MT_UNIFORM, uniform)             \
  X(MT_GRAD_STATS, grad_stats) X(MT_WEIGHTED_SUM, weighted_sum) X(MT_GRAD_SCALE, grad_scale) X(MT_ADAMW, adamw)    \
  X(MT_SGD, sgd)

#define DECLARE(id, name) extern const mt_op mt_cpu_##name;
MT_CPU_OPS(DECLARE)

const char *mt_cpu_describe(void);

const mt_device_api *mt_cpu_api(void) {
  static mt_device_api api;
  api.version = MT_DEVICE_VERSION;
  api.bytes = sizeof api;
  api.workspace_bytes = MT_CPU_WORKSPACE;
  api.ops = MT_OPS;
  api.host_memory = 1;
  api.describe = mt_cpu_describe;
#define ENTER(id, name) api.op[id] = mt_cpu_##name;
  MT_CPU_OPS(ENTER)
  return &api;
}
