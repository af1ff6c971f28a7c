/* Which attention calls cuDNN computes, and how: plans are kept by shape; strides are part
 * of a shape. Heads must lie at one distance from each other, which those of grouped
 * queries next to their keys do not: they are copied together first. */
#include "cudnn.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "torchlibs.h"
#include "cudnn_attention.h"
#include "cudnn_plan.h"

#if MT_EMULATED
#include <dlfcn.h>
#endif

extern const mt_op mt_cuda_copy;

namespace {

using namespace cudnn;

enum { PLANS = 64, MOST_CHANNELS = 128 };

struct entry {
  attention_shape key;
  graph g;
  plan p;
  bool gathers_q, gathers_d_q; /* copied on their way */
  int64_t delta_at, q_at, d_q_at, bytes; /* of the workspace */
};

} // namespace

struct mt_cudnn {
  api call;
  void *handle;
  int version, major, minor; /* of cuDNN; of the GPU */
  bool on;
  int used;
  entry *plans[PLANS];
};

namespace {

bool refuse(mt_context *ctx, const char *why) {
  snprintf(ctx->error, sizeof ctx->error, "%s", why);
  return false;
}

bool open_library(mt_context *ctx, api *call) {
  const char *named = getenv("MONOTRON_CUDNN"), *why = "";
  if (named && !strcmp(named, "off")) return refuse(ctx, "MONOTRON_CUDNN=off");
  if (MT_EMULATED && !named) return refuse(ctx, "an emulated GPU has no cuDNN");
  if (open_api(call, named ? named : "", &why)) return true;
  char path[PATH_MAX] = "";
  if (!named) mt_torch_library(path, "cudnn/lib/libcudnn.so.9");
  return (path[0] && open_api(call, path, &why)) || refuse(ctx, why);
}

#if MT_EMULATED
/* The stand-in of the tests computes in the stream's thread, as a GPU would. */
void in_stream(void *stream, void (*work)(void *), void *data) {
  mt_emu::set_error(mt_emu::submit(static_cast<cudaStream_t>(stream), "cuDNN's attention", [=] { work(data); }, &data, sizeof data));
}
bool meet_stand_in(mt_context *ctx) {
  void *library = dlopen(getenv("MONOTRON_CUDNN"), RTLD_NOW | RTLD_NOLOAD);
  auto hook = library ? (void (*)(void (*)(void *, void (*)(void *), void *)))dlsym(library, "standin_enqueue_by") : nullptr;
  if (!hook) return refuse(ctx, "an emulated GPU can use only the stand-in for cuDNN of the tests");
  hook(in_stream);
  return true;
}
#else
bool meet_stand_in(mt_context *) { return true; }
#endif

/* The context's cuDNN, opened at the first call; NULL with the reason in ctx->error. */
mt_cudnn *library_of(mt_context *ctx) {
  mt_stream *state = state_of(ctx);
  if (state->cudnn) return state->cudnn;
  mt_cudnn *c = static_cast<mt_cudnn *>(calloc(1, sizeof *c));
  if (!c) return nullptr;
  cudaDeviceProp gpu;
  bool opened = open_library(ctx, &c->call) && meet_stand_in(ctx) && !mt_cuda_check(ctx, cudaGetDeviceProperties(&gpu, ctx->ordinal), "reading the properties of the GPU");
  if (opened) {
    c->version = (int)c->call.version(), c->major = gpu.major, c->minor = gpu.minor;
    graph g;
    begin(&g, &c->call, nullptr);
    opened = check(&g, c->call.create(&c->handle), "opening cuDNN") && check(&g, c->call.set_stream(c->handle, stream_of(ctx)), "giving cuDNN the stream");
    if (!opened) refuse(ctx, g.error);
  }
  if (opened) return state->cudnn = c;
  if (c->handle) c->call.destroy(c->handle);
  free(c);
  return nullptr;
}

/* Features that cuDNN's attention has not, or not with our numbers. */
bool suits_features(mt_context *ctx, const mt_attention_backward_args &b) {
  const mt_attention_forward_args &a = b.forward;
  int64_t sq = a.q.shape[0] / a.batch, sk = a.k.shape[0] / a.batch;
  if (a.q.dtype == MT_F32) return refuse(ctx, "cuDNN does not support f32 here, only bf16 and f16");
  const mt_tensor made[] = {a.o, b.dq, b.dk, b.dv};
  for (const mt_tensor &t : made)
    if (given(t) && t.dtype != a.q.dtype) return refuse(ctx, "cuDNN does not return the partial results in f32 that context parallelism combines");
  if (last(a.q) > MOST_CHANNELS || last(a.q) % 8) return refuse(ctx, "cuDNN needs heads whose channels are a multiple of 8 and at most 128");
  if (a.drop.rate > 0) return refuse(ctx, "with attention dropout, the masks of cuDNN would differ from those of other devices and layouts");
  if (given(a.slopes)) return refuse(ctx, "cuDNN is not used for ALiBi");
  if (given(a.doc_start)) return refuse(ctx, "cuDNN is not used for documents that do not attend to each other");
  if (a.window >= 0 && a.window < sk) return refuse(ctx, "cuDNN is not used for a sliding window");
  if (a.chunk > 0) return refuse(ctx, "cuDNN is not used for chunked attention");
  if (a.rule != MT_PLAIN_SCORES) return refuse(ctx, "cuDNN is not used for softcapped scores");
  if (a.q_offset != 0 || sq != sk || sq < 2) return refuse(ctx, "cuDNN is not used with a key/value cache");
  return true;
}

/* Versions; sources: NVIDIA's cudnn-frontend and Transformer Engine. */
bool suits_version(mt_context *ctx, const mt_cudnn *c, const mt_attention_forward_args &a) {
  char why[160];
  int v = c->version;
  if (v < 90600 || v == 91000 || v == 91001) {
    snprintf(why, sizeof why, "cuDNN %d.%d.%d is too old or has a known fault; install 9.6 or newer, but not 9.10.0 or 9.10.1", v / 10000, v / 100 % 100, v % 100);
    return refuse(ctx, why);
  }
  if (!backward_repeats(v, c->major, c->minor, why)) return refuse(ctx, why);
  if (v <= 91500 && a.q.shape[0] / a.batch % 128) return refuse(ctx, "cuDNN before 9.15.1 needs sequences whose length is a multiple of 128");
  return true;
}

/* Whether all heads lie at one distance from the next. */
bool even(const mt_tensor &t) { return t.shape[1] == 1 || t.shape[2] == 1 || t.stride[1] == t.shape[2] * t.stride[2]; }

bool laid_out(const mt_tensor &t) {
  for (int d = 0; d < 3; d++)
    if (t.stride[d] % 8) return false;
  return (uintptr_t)t.data % 16 == 0;
}

/* batch, head, position */
void strides_of(int64_t (&out)[3], const mt_tensor &t, int64_t batch) {
  out[0] = t.stride[0], out[1] = t.shape[2] == 1 ? t.stride[1] : t.stride[2], out[2] = batch * t.stride[0];
}

/* Heads next to each other in rows without gaps. */
mt_tensor together(const mt_tensor &like, void *data) {
  mt_tensor t = like;
  t.data = data;
  int64_t step = 1;
  for (int d = 3; d >= 0; step *= t.shape[d], d--) t.stride[d] = step;
  return t;
}

attention_shape shape_of(const mt_attention_forward_args &a, const mt_attention_backward_args *b) {
  attention_shape s;
  memset(&s, 0, sizeof s); /* gaps too: shapes are compared by their bytes */
  s.batch = a.batch, s.groups = a.q.shape[1], s.heads = a.q.shape[1] * a.q.shape[2], s.positions = a.q.shape[0] / a.batch, s.channels = last(a.q);
  s.type = a.q.dtype == MT_BF16 ? cudnn::BF16 : cudnn::F16;
  strides_of(s.q, even(a.q) ? a.q : together(a.q, nullptr), a.batch);
  strides_of(s.k, a.k, a.batch), strides_of(s.v, a.v, a.batch), strides_of(s.o, a.o, a.batch);
  if (!b) return s;
  s.backward = 1;
  strides_of(s.d_q, even(b->dq) ? b->dq : together(b->dq, nullptr), a.batch);
  strides_of(s.d_k, b->dk, a.batch), strides_of(s.d_v, b->dv, a.batch), strides_of(s.d_o, b->d_o, a.batch);
  return s;
}

bool aligned(const mt_attention_forward_args &a, const mt_attention_backward_args *b) {
  return laid_out(a.q) && laid_out(a.k) && laid_out(a.v) && laid_out(a.o) && even(a.o) &&
         (!b || (laid_out(b->dq) && laid_out(b->dk) && laid_out(b->dv) && laid_out(b->d_o) && even(b->d_o)));
}

entry *find(mt_cudnn *c, const attention_shape &s) {
  for (int i = 0; i < c->used; i++)
    if (!memcmp(&c->plans[i]->key, &s, sizeof s)) return c->plans[i];
  return nullptr;
}

int64_t padded(int64_t bytes) { return (bytes + 255) / 256 * 256; }

void lay_out_workspace(entry *e) {
  const attention_shape &s = e->key;
  int64_t queries = padded(s.batch * s.heads * s.positions * s.channels * 2), rows = padded(s.batch * s.heads * s.positions * 4);
  e->delta_at = padded(e->p.workspace);
  e->q_at = e->delta_at + (s.backward ? rows : 0);
  e->d_q_at = e->q_at + (e->gathers_q ? queries : 0);
  e->bytes = e->d_q_at + (e->gathers_d_q ? queries : 0);
}

/* Plans for the shape of a (and b, where given). */
bool prepare(mt_context *ctx, mt_cudnn *c, const mt_attention_forward_args &a, const mt_attention_backward_args *b, int64_t *bytes) {
  if (!aligned(a, b)) return refuse(ctx, "cuDNN needs tensors whose addresses and strides are multiples of 16 bytes");
  attention_shape s = shape_of(a, b);
  entry *e = find(c, s);
  if (!e) {
    if (c->used == PLANS) return refuse(ctx, "too many different shapes of attention for cuDNN");
    e = static_cast<entry *>(calloc(1, sizeof *e));
    if (!e) return refuse(ctx, "host memory for a plan cannot be allocated");
    e->key = s, e->gathers_q = !even(a.q), e->gathers_d_q = b && !even(b->dq);
    begin(&e->g, &c->call, c->handle);
    b ? backward_graph(&e->g, s) : forward_graph(&e->g, s);
    if (!finish(&e->g) || !choose(&e->g, nullptr, b ? backward_engine(c->major) : nullptr, &e->p)) {
      snprintf(ctx->error, sizeof ctx->error, "%s: %.200s", b ? "backward" : "forward", e->g.error);
      drop(&e->g);
      free(e);
      return false;
    }
    lay_out_workspace(e);
    c->plans[c->used++] = e;
  }
  if (e->bytes > *bytes) *bytes = e->bytes;
  return true;
}

/* The plan of a call, where it was announced and the workspace suffices. */
entry *announced(mt_context *ctx, const mt_attention_forward_args &a, const mt_attention_backward_args *b) {
  mt_cudnn *c = state_of(ctx)->cudnn;
  if (!c || !c->on || a.q.dtype == MT_F32 || a.drop.rate > 0 || given(a.slopes) || given(a.doc_start)) return nullptr;
  int64_t sk = a.k.shape[0] / a.batch;
  if ((a.window >= 0 && a.window < sk) || a.chunk > 0 || a.q_offset != 0 || a.o.dtype != a.q.dtype || (b && (b->dq.dtype != a.q.dtype || b->dk.dtype != a.q.dtype)) || a.q.shape[0] != a.k.shape[0] || !aligned(a, b)) return nullptr;
  entry *e = find(c, shape_of(a, b));
  return e && e->bytes <= ctx->workspace_bytes ? e : nullptr;
}

/* What every call hands over. The numbers are read before the call returns. */
struct operands {
  int64_t uids[OPERANDS];
  void *pointers[OPERANDS];
  int count;
  float scale, masked, one;
  void add(operand_uid uid, const void *p) { uids[count] = uid, pointers[count++] = const_cast<void *>(p); }
};

void common(operands *x, mt_context *ctx, entry *e, const mt_attention_forward_args &a) {
  x->count = 0, x->scale = a.scale, x->one = 1;
  x->masked = state_of(ctx)->cudnn->version < 91000 ? -3.402823466e38f : -INFINITY; /* as cudnn-frontend has it */
  void *q = a.q.data;
  if (e->gathers_q) {
    q = static_cast<char *>(ctx->workspace) + e->q_at;
    mt_copy_args copy = {together(a.q, q), a.q};
    mt_cuda_copy.run(ctx, &copy, nullptr, 0, 0);
  }
  x->add(Q, q), x->add(K, a.k.data), x->add(V, a.v.data), x->add(O, a.o.data), x->add(STATS, a.lse.data);
  x->add(SCALE, &x->scale), x->add(MASKED, &x->masked);
}

void run(mt_context *ctx, entry *e, const operands &x) {
  if (ctx->error[0]) return;
  operands y = x;
  if (!execute(&e->g, e->p, y.count, y.uids, y.pointers, ctx->workspace)) snprintf(ctx->error, sizeof ctx->error, "cuDNN's attention: %.200s", e->g.error);
}

} // namespace

void mt_cudnn_close(mt_cudnn *c) {
  if (!c) return;
  for (int i = 0; i < c->used; i++) {
    drop(&c->plans[i]->g);
    free(c->plans[i]);
  }
  c->call.destroy(c->handle);
  free(c);
}

int32_t mt_cudnn_fuse_attention(mt_context *ctx, const mt_attention_backward_args *like, int64_t *workspace) {
  if (mt_cuda_enter(ctx)) return 1;
  if (!like) {
    if (state_of(ctx)->cudnn) state_of(ctx)->cudnn->on = false;
    return 0;
  }
  const mt_attention_forward_args &a = like->forward;
  if (!suits_features(ctx, *like)) return 1;
  mt_cudnn *c = library_of(ctx);
  *workspace = 0;
  if (!c || !suits_version(ctx, c, a) || !prepare(ctx, c, a, nullptr, workspace)) return 1;
  if (given(like->dq) && !prepare(ctx, c, a, like, workspace)) return 1;
  c->on = true;
  return 0;
}

bool mt_cudnn_attention_forward(mt_context *ctx, const mt_attention_forward_args &a) {
  entry *e = announced(ctx, a, nullptr);
  if (!e) return false;
  operands x;
  common(&x, ctx, e, a);
  run(ctx, e, x);
  return true;
}

bool mt_cudnn_attention_backward(mt_context *ctx, const mt_attention_backward_args &a) {
  entry *e = announced(ctx, a.forward, &a);
  if (!e) return false;
  char *room = static_cast<char *>(ctx->workspace);
  void *d_q = e->gathers_d_q ? room + e->d_q_at : a.dq.data;
  operands x;
  common(&x, ctx, e, a.forward);
  x.add(ONE, &x.one), x.add(D_O, a.d_o.data), x.add(D_Q, d_q), x.add(D_K, a.dk.data), x.add(D_V, a.dv.data), x.add(DELTA, room + e->delta_at);
  run(ctx, e, x);
  if (!e->gathers_d_q || ctx->error[0]) return true;
  mt_copy_args copy = {a.dq, together(a.dq, d_q)};
  mt_cuda_copy.run(ctx, &copy, nullptr, 0, 0);
  return true;
}
