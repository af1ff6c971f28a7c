/* cuDNN's backend API with the declarations written out (cudnn_graph.h; equal in all of
 * versions 9): opaque descriptors whose attributes are set by number, and finalized. */
#ifndef MT_CUDNN_API_H
#define MT_CUDNN_API_H

#include <cstddef>
#include <cstdint>

namespace cudnn {

typedef void *desc_t;

enum kind {
  POINTWISE = 0, ENGINE = 2, ENGINE_CONFIG = 3, HEURISTICS = 4, PLAN = 5, KNOB_CHOICE = 7, OP_POINTWISE = 13, OP_GRAPH = 15, VARIANT_PACK = 16, TENSOR = 17, MATMUL = 18,
  OP_MATMUL = 19, REDUCTION = 21, OP_REDUCTION = 22, OP_RESHAPE = 31, DEVICE = 38
};

/* What an attribute is made of. */
enum type {
  HANDLE = 0, DATA_TYPE = 1, BOOLEAN = 2, INT64 = 3, FLOAT = 4, VOID_PTR = 6, HEUR_MODE = 8, KNOB_TYPE = 9, NUMERICAL_NOTE = 11, POINTWISE_MODE = 14, DESCRIPTOR = 15,
  REDUCTION_OPERATOR = 18, CHAR = 24
};

enum data { F32 = 0, F16 = 2, I32 = 4, BF16 = 9, BOOL = 11 };

enum attribute {
  POINTWISE_MODE_ = 0, POINTWISE_PRECISION = 1, POINTWISE_AXIS = 9,
  HEUR_MODE_ = 200, HEUR_GRAPH = 201, HEUR_RESULTS = 202, HEUR_DEVICE = 204,
  CONFIG_ENGINE = 300, CONFIG_KNOBS = 302,
  PLAN_HANDLE = 400, PLAN_CONFIG = 401, PLAN_WORKSPACE = 402, PLAN_DEVICE = 407,
  KNOB_CHOICE_TYPE = 600, KNOB_CHOICE_VALUE = 601,
  OP_POINTWISE_HOW = 750, OP_POINTWISE_X = 751, OP_POINTWISE_B = 752, OP_POINTWISE_Y = 753, OP_POINTWISE_T = 758,
  GRAPH_HANDLE = 800, GRAPH_OPS = 801,
  TENSOR_ALIGNMENT = 900, TENSOR_TYPE = 901, TENSOR_DIMENSIONS = 902, TENSOR_STRIDES = 903, TENSOR_UID = 906, TENSOR_VIRTUAL = 907, TENSOR_BY_VALUE = 908,
  PACK_UIDS = 1000, PACK_POINTERS = 1001, PACK_WORKSPACE = 1003,
  ENGINE_GRAPH = 1300, ENGINE_INDEX = 1301, ENGINE_NUMERICAL_NOTE = 1303, ENGINE_DEVICE = 1307,
  MATMUL_COMPUTE = 1500, OP_MATMUL_A = 1520, OP_MATMUL_B = 1521, OP_MATMUL_C = 1522, OP_MATMUL_HOW = 1523,
  REDUCTION_OPERATOR_ = 1600, REDUCTION_COMPUTE = 1601, REDUCTION_DETERMINISTIC = 1602, /* the last since 9.11 */
  OP_REDUCTION_X = 1610, OP_REDUCTION_Y = 1611, OP_REDUCTION_HOW = 1612,
  OP_RESHAPE_X = 2200, OP_RESHAPE_Y = 2201,
  DEVICE_JSON = 2702
};

enum pointwise { ADD = 0, MUL = 1, DIV = 6, SUB = 9, EXP = 13, LOG = 15, CMP_GE = 303, GEN_INDEX = 501, BINARY_SELECT = 601 };
enum reduction { SUM = 0, MAX = 3 };
enum heuristics { MODE_FALLBACK = 2, MODE_A = 3 };
enum knob { STAGES = 14, KERNEL_CFG = 24, TILE_CGA_M = 27, STREAM_K = 38, TILE_M = 40, TILE_N = 41 };
enum note { NONDETERMINISTIC = 4 };

struct api {
  size_t (*version)();
  void (*last_error)(char *text, size_t room);
  int (*create)(void **handle);
  int (*destroy)(void *handle);
  int (*set_stream)(void *handle, void *stream);
  int (*make)(int kind, desc_t *out);
  int (*drop)(desc_t);
  int (*set)(desc_t, int attribute, int type, int64_t count, const void *values);
  int (*get)(desc_t, int attribute, int type, int64_t room, int64_t *count, void *values);
  int (*finalize)(desc_t);
  int (*execute)(void *handle, desc_t plan, desc_t pack);
};

/* Opens a library: path, or where it is "" what the loader finds as libcudnn.so.9. NULL, or
 * in *why (static) what is missing. It stays loaded as long as the process lives. */
bool open_api(api *out, const char *path, const char **why);

} // namespace cudnn

#endif
