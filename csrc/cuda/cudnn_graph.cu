#include "cudnn_graph.h"

#include "../device/cutshort.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstring>

namespace cudnn {

bool open_api(api *out, const char *path, const char **why) {
  if ((*why = mt_cut_short(path))) return false;
  void *library = dlopen(path[0] ? path : "libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    *why = path[0] ? "MONOTRON_CUDNN does not name a library that can be opened" : "libcudnn.so.9 was not found";
    return false;
  }
  struct { const char *name; void *at; } wanted[] = {
      {"cudnnGetVersion", &out->version}, {"cudnnGetLastErrorString", &out->last_error}, {"cudnnCreate", &out->create}, {"cudnnDestroy", &out->destroy},
      {"cudnnSetStream", &out->set_stream}, {"cudnnBackendCreateDescriptor", &out->make}, {"cudnnBackendDestroyDescriptor", &out->drop},
      {"cudnnBackendSetAttribute", &out->set}, {"cudnnBackendGetAttribute", &out->get}, {"cudnnBackendFinalize", &out->finalize},
      {"cudnnBackendExecute", &out->execute},
  };
  for (auto &w : wanted) {
    void *f = dlsym(library, w.name);
    if (!f) {
      *why = "the cuDNN that was found is not version 9";
      dlclose(library);
      return false;
    }
    memcpy(w.at, &f, sizeof f);
  }
  return true;
}

void begin(graph *g, const api *call, void *handle) {
  memset(g, 0, sizeof *g);
  g->call = call, g->handle = handle, g->next = 100;
}

void drop(graph *g) {
  while (g->made_count > 0) g->call->drop(g->made[--g->made_count]);
}

bool check(graph *g, int status, const char *what) {
  if (g->error[0]) return false;
  if (status == 0) return true;
  char why[160] = "";
  g->call->last_error(why, sizeof why);
  for (char *c = why; *c; c++)
    if (*c == '\n') *c = ' ';
  snprintf(g->error, sizeof g->error, "%s: %s (status %d)", what, why[0] ? why : "refused", status);
  return false;
}

desc_t descriptor(graph *g, kind k, const char *what) {
  desc_t d = nullptr;
  if (g->error[0]) return nullptr;
  if (g->made_count == graph::MOST) {
    snprintf(g->error, sizeof g->error, "%s: too many descriptors", what);
    return nullptr;
  }
  if (!check(g, g->call->make(k, &d), what)) return nullptr;
  return g->made[g->made_count++] = d;
}

void set(graph *g, desc_t d, attribute a, type t, int64_t count, const void *values, const char *what) {
  if (!g->error[0]) check(g, g->call->set(d, a, t, count, values), what);
}

void finalize(graph *g, desc_t d, const char *what) {
  if (!g->error[0]) check(g, g->call->finalize(d), what);
}

namespace {

edge tensor(graph *g, int64_t uid, data type, const sizes &dims, const sizes &strides, bool is_virtual, bool by_value) {
  const char *what = "a tensor";
  desc_t d = descriptor(g, TENSOR, what);
  int32_t held = type;
  int64_t alignment = 16;
  set(g, d, TENSOR_TYPE, DATA_TYPE, 1, &held, what);
  set(g, d, TENSOR_DIMENSIONS, INT64, 4, dims.at, what);
  set(g, d, TENSOR_STRIDES, INT64, 4, strides.at, what);
  set(g, d, TENSOR_UID, INT64, 1, &uid, what);
  set(g, d, TENSOR_ALIGNMENT, INT64, 1, &alignment, what);
  if (is_virtual) set(g, d, TENSOR_VIRTUAL, BOOLEAN, 1, &is_virtual, what);
  if (by_value) set(g, d, TENSOR_BY_VALUE, BOOLEAN, 1, &by_value, what);
  finalize(g, d, what);
  return {d, dims, strides};
}

edge between(graph *g, data type, const sizes &dims, const sizes &strides) { return tensor(g, g->next++, type, dims, strides, true, false); }
edge between(graph *g, data type, const sizes &dims) { return between(g, type, dims, packed(dims)); }

void operand(graph *g, desc_t op, attribute a, const desc_t &x, const char *what) { set(g, op, a, DESCRIPTOR, 1, &x, what); }

void add(graph *g, desc_t op, const char *what) {
  finalize(g, op, what);
  if (!g->error[0] && g->op_count < graph::MOST_OPS) g->ops[g->op_count++] = op;
}

struct pointwise_ways {
  data compute;
  int64_t axis; /* of GEN_INDEX, else -1 */
};

void pointwise_node(graph *g, pointwise mode, const pointwise_ways &ways, const edge &x, const edge *b, const edge *t, const edge &y) {
  const char *what = "a pointwise operation";
  desc_t how = descriptor(g, POINTWISE, what);
  int32_t held = mode, compute = ways.compute;
  set(g, how, POINTWISE_MODE_, POINTWISE_MODE, 1, &held, what);
  set(g, how, POINTWISE_PRECISION, DATA_TYPE, 1, &compute, what);
  if (ways.axis >= 0) set(g, how, POINTWISE_AXIS, INT64, 1, &ways.axis, what);
  finalize(g, how, what);
  desc_t op = descriptor(g, OP_POINTWISE, what);
  operand(g, op, OP_POINTWISE_HOW, how, what);
  operand(g, op, OP_POINTWISE_X, x.desc, what);
  operand(g, op, OP_POINTWISE_Y, y.desc, what);
  if (b) operand(g, op, OP_POINTWISE_B, b->desc, what);
  if (t) operand(g, op, OP_POINTWISE_T, t->desc, what);
  add(g, op, what);
}

const pointwise_ways PLAIN = {F32, -1};

} // namespace

edge real(graph *g, int64_t uid, data type, const sizes &dims, const sizes &strides) { return tensor(g, uid, type, dims, strides, false, false); }

edge value(graph *g, int64_t uid) { return tensor(g, uid, F32, {{1, 1, 1, 1}}, {{1, 1, 1, 1}}, false, true); }

edge pointwise_op(graph *g, pointwise mode, const edge &x, const edge *b, data out) {
  edge y = between(g, out, x.dims);
  pointwise_node(g, mode, PLAIN, x, b, nullptr, y);
  return y;
}

void pointwise_into(graph *g, pointwise mode, const edge &x, const edge &b, const edge &y) { pointwise_node(g, mode, PLAIN, x, &b, nullptr, y); }

edge causal(graph *g, const edge &x, const edge &other) {
  edge row = between(g, I32, x.dims), column = between(g, I32, x.dims), seen = between(g, BOOL, x.dims), y = between(g, F32, x.dims);
  pointwise_node(g, GEN_INDEX, {F32, 2}, x, nullptr, nullptr, row);
  pointwise_node(g, GEN_INDEX, {F32, 3}, x, nullptr, nullptr, column);
  pointwise_node(g, CMP_GE, {BOOL, -1}, row, &column, nullptr, seen);
  pointwise_node(g, BINARY_SELECT, PLAIN, x, &other, &seen, y);
  return y;
}

void product_into(graph *g, const edge &a, const edge &b, const edge &c) {
  const char *what = "a matrix product";
  desc_t how = descriptor(g, MATMUL, what);
  int32_t compute = F32;
  set(g, how, MATMUL_COMPUTE, DATA_TYPE, 1, &compute, what);
  finalize(g, how, what);
  desc_t op = descriptor(g, OP_MATMUL, what);
  operand(g, op, OP_MATMUL_A, a.desc, what);
  operand(g, op, OP_MATMUL_B, b.desc, what);
  operand(g, op, OP_MATMUL_C, c.desc, what);
  operand(g, op, OP_MATMUL_HOW, how, what);
  add(g, op, what);
}

edge product(graph *g, const edge &a, const edge &b, data out) {
  edge c = between(g, out, {{a.dims.at[0], a.dims.at[1], a.dims.at[2], b.dims.at[3]}});
  product_into(g, a, b, c);
  return c;
}

void reduce_into(graph *g, reduction how, const edge &x, const edge &y) {
  const char *what = "a reduction";
  desc_t d = descriptor(g, REDUCTION, what);
  int32_t held = how, compute = F32;
  bool deterministic = true;
  set(g, d, REDUCTION_COMPUTE, DATA_TYPE, 1, &compute, what);
  set(g, d, REDUCTION_OPERATOR_, REDUCTION_OPERATOR, 1, &held, what);
  if (g->call->version() >= 91100) set(g, d, REDUCTION_DETERMINISTIC, BOOLEAN, 1, &deterministic, what);
  finalize(g, d, what);
  desc_t op = descriptor(g, OP_REDUCTION, what);
  operand(g, op, OP_REDUCTION_HOW, d, what);
  operand(g, op, OP_REDUCTION_X, x.desc, what);
  operand(g, op, OP_REDUCTION_Y, y.desc, what);
  add(g, op, what);
}

edge reduce(graph *g, reduction how, const edge &x, const sizes &dims) {
  edge y = between(g, F32, dims);
  reduce_into(g, how, x, y);
  return y;
}

edge transposed(graph *g, const edge &x, data out) {
  const char *what = "a transposition";
  edge y = between(g, out, turned(x.dims), turned(x.strides));
  desc_t op = descriptor(g, OP_RESHAPE, what);
  operand(g, op, OP_RESHAPE_X, x.desc, what);
  operand(g, op, OP_RESHAPE_Y, y.desc, what);
  add(g, op, what);
  return y;
}

bool finish(graph *g) {
  const char *what = "the graph of operations";
  if (g->op_count == graph::MOST_OPS) return check(g, 1, "too many operations");
  g->whole = descriptor(g, OP_GRAPH, what);
  set(g, g->whole, GRAPH_OPS, DESCRIPTOR, g->op_count, g->ops, what);
  if (g->handle) set(g, g->whole, GRAPH_HANDLE, HANDLE, 1, &g->handle, what);
  finalize(g, g->whole, what);
  return !g->error[0];
}

} // namespace cudnn
