/* The operations stand in the order and form in which cuDNN recognises attention (that of
 * NVIDIA's cudnn-frontend): it refuses others that compute the same. */
#include "cudnn_attention.h"

#include <cstdio>

namespace cudnn {

namespace {

sizes strides_of(const int64_t (&s)[3]) { return {{s[0], s[1], s[2], 1}}; }

edge heads_of_queries(graph *g, operand_uid uid, const attention_shape &s, const int64_t (&strides)[3]) {
  return real(g, uid, s.type, {{s.batch, s.heads, s.positions, s.channels}}, strides_of(strides));
}

edge heads_of_keys(graph *g, operand_uid uid, const attention_shape &s, const int64_t (&strides)[3]) {
  return real(g, uid, s.type, {{s.batch, s.groups, s.positions, s.channels}}, strides_of(strides));
}

/* The same memory, seen as [.., channels, positions]. */
edge columns(graph *g, operand_uid uid, const attention_shape &s, const int64_t (&strides)[3]) {
  return real(g, uid, s.type, {{s.batch, s.groups, s.channels, s.positions}}, turned(strides_of(strides)));
}

sizes of_rows(const attention_shape &s) { return {{s.batch, s.heads, s.positions, 1}}; }

edge rows_in_memory(graph *g, operand_uid uid, const attention_shape &s) { return real(g, uid, F32, of_rows(s), packed(of_rows(s))); }

/* Gradient of shared heads: each query head's own, then their sum. */
void gradient_of_keys(graph *g, const attention_shape &s, const edge &weights, const edge &rows, const edge &out) {
  if (s.heads == s.groups) {
    product_into(g, weights, rows, out);
  } else {
    edge each = product(g, weights, rows, s.type);
    reduce_into(g, SUM, each, out);
  }
}

} // namespace

void forward_graph(graph *g, const attention_shape &s) {
  edge q = heads_of_queries(g, Q, s, s.q), k = columns(g, K, s, s.k), v = heads_of_keys(g, V, s, s.v);
  edge scale = value(g, SCALE), masked = value(g, MASKED);
  edge o = heads_of_queries(g, O, s, s.o), stats = rows_in_memory(g, STATS, s);
  edge qk = product(g, q, k);
  edge scores = causal(g, pointwise_op(g, MUL, qk, &scale), masked);
  edge max = reduce(g, cudnn::MAX, scores, of_rows(s));
  edge less = pointwise_op(g, SUB, scores, &max), e = pointwise_op(g, EXP, less, nullptr);
  edge sum = reduce(g, SUM, e, of_rows(s));
  edge log = pointwise_op(g, LOG, sum, nullptr);
  pointwise_into(g, ADD, max, log, stats);
  edge p = pointwise_op(g, DIV, e, &sum, s.type);
  product_into(g, p, v, o);
}

void backward_graph(graph *g, const attention_shape &s) {
  edge q = heads_of_queries(g, Q, s, s.q), k = columns(g, K, s, s.k), v = columns(g, V, s, s.v), o = heads_of_queries(g, O, s, s.o);
  edge stats = rows_in_memory(g, STATS, s), delta = rows_in_memory(g, DELTA, s), d_o = heads_of_queries(g, D_O, s, s.d_o);
  edge scale = value(g, SCALE), masked = value(g, MASKED), one = value(g, ONE);
  edge d_q = heads_of_queries(g, D_Q, s, s.d_q), d_k = heads_of_keys(g, D_K, s, s.d_k), d_v = heads_of_keys(g, D_V, s, s.d_v);

  edge sums = reduce(g, SUM, pointwise_op(g, MUL, d_o, &o), of_rows(s));
  pointwise_into(g, MUL, sums, one, delta);

  edge qk = product(g, q, k);
  edge scaled = pointwise_op(g, MUL, qk, &scale);
  edge scores = causal(g, pointwise_op(g, SUB, scaled, &stats), masked);
  edge p = pointwise_op(g, EXP, scores, nullptr);
  gradient_of_keys(g, s, transposed(g, p, s.type), d_o, d_v);

  edge dp = product(g, d_o, v);
  edge less = pointwise_op(g, SUB, dp, &delta);
  edge weighted = pointwise_op(g, MUL, less, &p), ds = pointwise_op(g, MUL, weighted, &scale);
  gradient_of_keys(g, s, transposed(g, ds, s.type), q, d_k);
  product_into(g, ds, transposed(g, k, F32), d_q);
}

/* Sources: the support matrix of NVIDIA's attention documentation (its column
 * "deterministic"), and cudnn-frontend, which gives the same graph to all of these GPUs
 * when a deterministic algorithm is asked for, and on Blackwell names the engine. Versions
 * are those from which NVIDIA says so; on Blackwell the engine's settings are those of 9.23. */
bool backward_repeats(int version, int major, int minor, char (&why)[160]) {
  const struct { int major, most_minor, version; } known[] = {{8, 9, 91801}, {9, 0, 90600}, {10, 3, 92300}};
  for (auto &k : known) {
    if (k.major != major || minor > k.most_minor) continue;
    if (version >= k.version) return true;
    snprintf(why, sizeof why, "cuDNN %d.%d.%d: the backward pass on sm_%d%d repeats bit for bit only from version %d.%d.%d on", version / 10000, version / 100 % 100, version % 100, major, minor,
             k.version / 10000, k.version / 100 % 100, k.version % 100);
    return false;
  }
  snprintf(why, sizeof why, "cuDNN's backward pass is known to repeat bit for bit on sm_80 to sm_90, sm_100 and sm_103, but not on sm_%d%d", major, minor);
  return false;
}

const pinned *backward_engine(int major) {
  static const pinned blackwell = {5, 6, {{TILE_M, 3}, {TILE_N, 2}, {KERNEL_CFG, 2}, {STREAM_K, 0}, {TILE_CGA_M, 0}, {STAGES, 2}}};
  return major == 10 ? &blackwell : nullptr;
}

} // namespace cudnn
