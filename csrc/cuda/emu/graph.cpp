#include "graph.h"

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "memory.h"
#include "stream.h"

namespace {

struct Node {
  const char *what;
  std::function<void()> work;
  std::vector<mt_emu::Block> memory; /* that its arguments point into */
};

struct Capture {
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  bool lost = false;
  std::vector<Node> nodes;
};

std::mutex mutex;
std::map<cudaStream_t, Capture> captures; /* under way */

/* Spoils those that a test picks; whether there was one. */
template <typename F> cudaError_t spoil_where(F picks) {
  std::lock_guard<std::mutex> lock(mutex);
  cudaError_t e = mt_emu::lost();
  for (auto &c : captures)
    if (picks(c.first, c.second)) c.second.lost = true, e = cudaErrorStreamCaptureUnsupported;
  return e;
}

} // namespace

struct mt_emu_graph {
  std::shared_ptr<const std::vector<Node>> nodes;
};

bool mt_emu::captured(cudaStream_t stream) {
  std::lock_guard<std::mutex> lock(mutex);
  return captures.count(stream) > 0;
}

cudaError_t mt_emu::waits_for(cudaStream_t stream) {
  return spoil_where([&](cudaStream_t s, const Capture &) { return s == stream; });
}

cudaError_t mt_emu::waits_for_all() {
  return spoil_where([](cudaStream_t, const Capture &) { return true; });
}

cudaError_t mt_emu::unsafe() {
  return spoil_where([](cudaStream_t, const Capture &c) {
    return c.mode == cudaStreamCaptureModeGlobal || (c.mode == cudaStreamCaptureModeThreadLocal && c.thread == std::this_thread::get_id());
  });
}

cudaError_t mt_emu::spoil(cudaStream_t stream, cudaError_t why) {
  waits_for(stream);
  return why;
}

cudaError_t mt_emu::submit(cudaStream_t stream, const char *what, std::function<void()> work, const void *arguments, size_t bytes) {
  if (cudaError_t e = lost()) return e;
  {
    std::lock_guard<std::mutex> lock(mutex);
    auto c = captures.find(stream);
    if (c != captures.end()) {
      if (c->second.lost) return cudaErrorStreamCaptureInvalidated;
      c->second.nodes.push_back({what, std::move(work), blocks_of(arguments, bytes)});
      return cudaSuccess;
    }
  }
  enqueue(stream, std::move(work));
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  if (!stream) return cudaErrorStreamCaptureUnsupported;
  std::lock_guard<std::mutex> lock(mutex);
  bool fresh = captures.insert({stream, Capture{mode, std::this_thread::get_id(), false, {}}}).second;
  return fresh ? cudaSuccess : cudaErrorIllegalState;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out) {
  *out = nullptr;
  std::lock_guard<std::mutex> lock(mutex);
  auto c = captures.find(stream);
  if (c == captures.end()) return cudaErrorIllegalState;
  if (c->second.mode != cudaStreamCaptureModeRelaxed && c->second.thread != std::this_thread::get_id()) return cudaErrorStreamCaptureWrongThread;
  bool lost = c->second.lost;
  if (!lost) *out = new mt_emu_graph{std::make_shared<const std::vector<Node>>(std::move(c->second.nodes))};
  captures.erase(c);
  return lost ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *, size_t *count) {
  *count = graph->nodes->size();
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long) {
  *out = new mt_emu_graph(*graph);
  return cudaSuccess;
}

/* A GPU would do what it may to memory that is another's by now; here the launch fails. */
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  for (size_t i = 0; i < graph->nodes->size(); i++) {
    const Node &n = (*graph->nodes)[i];
    for (const mt_emu::Block &b : n.memory)
      if (!mt_emu::lives(b)) {
        mt_emu::set_launch_error("node " + std::to_string(i) + " of a graph, " + n.what + ", uses memory that was freed after it was captured");
        return mt_emu::take_error();
      }
  }
  auto nodes = graph->nodes;
  auto work = [nodes] {
    for (const Node &n : *nodes) {
      n.work();
      if (mt_emu::failed()) return;
    }
  };
  if (mt_emu::captured(stream)) return mt_emu::spoil(stream, cudaErrorStreamCaptureUnsupported);
  mt_emu::enqueue(stream, work);
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) { return cudaGraphDestroy(graph); }
