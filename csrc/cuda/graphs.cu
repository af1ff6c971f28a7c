/* What the ops' stream is given, recorded as a CUDA graph (device.h, mt_graphs): one call
 * then enqueues a complete micro-batch, where single launches would keep the GPU waiting. */
#include "graphs.h"
#include "op.h"

static const char *why(cudaError_t e) {
  if (e == cudaSuccess) return nullptr;
  cudaGetLastError(); /* the caller continues without the graph: the next call must not report it */
  return cudaGetErrorString(e);
}

/* Calls that are not allowed meanwhile fail on this thread alone: other ranks' and NCCL's continue. */
static const char *begin(mt_context *ctx) {
  cudaError_t e = cudaSetDevice(ctx->ordinal);
  return why(e == cudaSuccess ? cudaStreamBeginCapture(stream_of(ctx), cudaStreamCaptureModeThreadLocal) : e);
}

static const char *end(mt_context *ctx, void **out, int64_t *nodes) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  size_t n = 0;
  cudaError_t e = cudaSetDevice(ctx->ordinal);
  if (e == cudaSuccess) e = cudaStreamEndCapture(stream_of(ctx), &graph);
  if (e == cudaSuccess) e = cudaGraphGetNodes(graph, nullptr, &n);
  if (e == cudaSuccess) e = cudaGraphInstantiate(&ready, graph, 0);
  if (graph) cudaGraphDestroy(graph);
  *out = ready, *nodes = (int64_t)n;
  return why(e);
}

static const char *launch(mt_context *ctx, void *graph) {
  cudaError_t e = cudaSetDevice(ctx->ordinal);
  return why(e == cudaSuccess ? cudaGraphLaunch((cudaGraphExec_t)graph, stream_of(ctx)) : e);
}

static void drop(mt_context *ctx, void *graph) {
  if (cudaSetDevice(ctx->ordinal) != cudaSuccess) return;
  cudaStreamSynchronize(stream_of(ctx));
  cudaGraphExecDestroy((cudaGraphExec_t)graph);
}

const mt_graphs *mt_cuda_graphs() {
  static const mt_graphs all = {begin, end, launch, drop};
  return &all;
}
