/* Gloo behind comm.h. Built by `make gloo` as libmt_gloo.so (C++17, libgloo); the
 * program opens it at run time and does without it where it is not there.
 *
 * Gloo's own rendezvous is not used: the caller carries addresses between ranks,
 * over connections that have proved that they belong to the run. */
#include <gloo/allreduce.h>
#include <gloo/context.h>
#include <gloo/math.h>
#include <gloo/transport/address.h>
#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <gloo/types.h>

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <vector>

#include "../comm.h"

namespace transport = gloo::transport;
using std::chrono::milliseconds;

struct mt_engine {
  std::shared_ptr<transport::Device> device;
};

namespace {

/* Mesh is a gloo::Context whose connections are made from addresses that it is given. */
class Mesh : public gloo::Context {
 public:
  Mesh(std::shared_ptr<transport::Device> device, int rank, int size, milliseconds timeout) : gloo::Context(rank, size) {
    device_ = device;
    transportContext_ = device->createContext(rank, size);
    transportContext_->setTimeout(timeout);
    setTimeout(timeout);
    for (int i = 0; i < size; i++)
      if (i != rank) transportContext_->createPair(i)->setLocalRank(0);
  }
  transport::Context &transport() { return *transportContext_; }
};

/* A buffer whose wait another thread can end. */
using Buffer = std::unique_ptr<transport::UnboundBuffer>;

}  // namespace

struct mt_mesh {
  std::shared_ptr<Mesh> context;
  std::mutex lock;  /* of the two below */
  bool aborted = false;
  std::set<transport::UnboundBuffer *> busy;
};

namespace {

constexpr int64_t kAddressBytes = 256; /* more than any version needs */

int32_t failed(mt_error *error, const char *text) {
  snprintf(error->text, error->room, "%s", text);
  return -1;
}

/* Runs what may throw; nothing is thrown past it. */
template <typename F>
int32_t guarded(mt_error *error, F &&work) noexcept {
  try {
    work();
    return 0;
  } catch (const std::exception &e) {
    return failed(error, e.what());
  } catch (...) {
    return failed(error, "an unknown exception");
  }
}

/* Blocks SIGPIPE in this thread while it lives, and in the threads started meanwhile for as
 * long as they run. Gloo writes to connections whose peer may be gone, without MSG_NOSIGNAL,
 * and Go's runtime ends the process when a thread that is not its own gets the signal. With
 * it blocked the write fails with EPIPE, which Gloo reports. */
class WithoutSigpipe {
 public:
  WithoutSigpipe() {
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, &before_);
  }
  ~WithoutSigpipe() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

int32_t open_engine(const char *host, mt_engine **engine, mt_error *error) {
  return guarded(error, [&] {
    WithoutSigpipe threads;
    transport::tcp::attr attr;
    attr.hostname = host;
    *engine = new mt_engine{transport::tcp::CreateDevice(attr)};
  });
}

void close_engine(mt_engine *engine) { delete engine; }

int32_t mesh_new(mt_engine *engine, int32_t rank, int32_t size, int64_t timeout, mt_mesh **mesh, mt_error *error) {
  return guarded(error, [&] {
    auto made = std::make_unique<mt_mesh>();
    made->context = std::make_shared<Mesh>(engine->device, rank, size, milliseconds(timeout));
    *mesh = made.release();
  });
}

/* Each address goes in a field of kAddressBytes: its length, then itself. */
int32_t mesh_addresses(mt_mesh *mesh, char *addresses, mt_error *error) {
  return guarded(error, [&] {
    char *to = addresses;
    for (int i = 0; i < mesh->context->size; i++) {
      if (i == mesh->context->rank) continue;
      auto bytes = mesh->context->transport().getPair(i)->address().bytes();
      if (bytes.size() > size_t(kAddressBytes - 2)) throw std::length_error("an address of Gloo is longer than expected");
      std::fill(to, to + kAddressBytes, 0);
      to[0] = char(bytes.size() & 255), to[1] = char(bytes.size() >> 8);
      std::copy(bytes.begin(), bytes.end(), to + 2);
      to += kAddressBytes;
    }
  });
}

int32_t mesh_connect(mt_mesh *mesh, const char *addresses, mt_error *error) {
  return guarded(error, [&] {
    const char *from = addresses;
    for (int i = 0; i < mesh->context->size; i++) {
      if (i == mesh->context->rank) continue;
      size_t n = size_t((unsigned char)from[0]) | size_t((unsigned char)from[1]) << 8;
      if (n > size_t(kAddressBytes - 2)) throw std::length_error("an address is invalid");
      mesh->context->transport().getPair(i)->connect(std::vector<char>(from + 2, from + 2 + n));
      from += kAddressBytes;
    }
  });
}

/* Busy keeps a mesh's list of buffers that a thread waits for. */
class Busy {
 public:
  explicit Busy(mt_mesh *mesh) : mesh_(mesh) {}
  transport::UnboundBuffer *add(void *data, int64_t bytes) {
    buffers_.push_back(mesh_->context->createUnboundBuffer(data, size_t(bytes)));
    std::lock_guard<std::mutex> guard(mesh_->lock);
    if (mesh_->aborted) throw std::runtime_error("ended by the caller");
    mesh_->busy.insert(buffers_.back().get());
    return buffers_.back().get();
  }
  ~Busy() {
    std::lock_guard<std::mutex> guard(mesh_->lock);
    for (auto &b : buffers_) mesh_->busy.erase(b.get());
  }

 private:
  mt_mesh *mesh_;
  std::vector<Buffer> buffers_;
};

int32_t batch(mt_mesh *mesh, const mt_p2p *ops, int32_t n, int64_t timeout, mt_error *error) {
  return guarded(error, [&] {
    auto deadline = std::chrono::steady_clock::now() + milliseconds(timeout);
    Busy busy(mesh);
    std::vector<transport::UnboundBuffer *> buffers;
    for (int32_t i = 0; i < n; i++) buffers.push_back(busy.add(ops[i].data, ops[i].bytes));
    for (int32_t i = 0; i < n; i++)
      if (!ops[i].send) buffers[i]->recv(ops[i].rank, ops[i].slot, 0, size_t(ops[i].bytes));
    for (int32_t i = 0; i < n; i++)
      if (ops[i].send) buffers[i]->send(ops[i].rank, ops[i].slot, 0, size_t(ops[i].bytes));
    for (int32_t i = 0; i < n; i++) {
      auto left = std::chrono::duration_cast<milliseconds>(deadline - std::chrono::steady_clock::now());
      left = std::max(left, milliseconds(1));
      bool done = ops[i].send ? buffers[i]->waitSend(nullptr, left) : buffers[i]->waitRecv(nullptr, left);
      if (!done) throw std::runtime_error("ended by the caller");
    }
  });
}

template <typename T>
void reduce(mt_mesh *mesh, void *data, int64_t count, int32_t op, int64_t timeout) {
  std::shared_ptr<gloo::Context> context = mesh->context;
  gloo::AllreduceOptions options(context);
  options.setOutput(static_cast<T *>(data), size_t(count));
  void (*function)(void *, const void *, const void *, size_t) = &gloo::sum<T>;
  if (op == MT_COMM_MAX) function = &gloo::max<T>;
  options.setReduceFunction(function);
  options.setTimeout(milliseconds(timeout));
  gloo::allreduce(options);
}

int32_t all_reduce(mt_mesh *mesh, void *data, int64_t count, int32_t dtype, int32_t op, int64_t timeout, mt_error *error) {
  return guarded(error, [&] {
    {
      std::lock_guard<std::mutex> guard(mesh->lock);
      if (mesh->aborted) throw std::runtime_error("ended by the caller");
    }
    switch (dtype) {
      case MT_COMM_F32: return reduce<float>(mesh, data, count, op, timeout);
      case MT_COMM_F64: return reduce<double>(mesh, data, count, op, timeout);
      case MT_COMM_F16: return reduce<gloo::float16>(mesh, data, count, op, timeout);
      case MT_COMM_I32: return reduce<int32_t>(mesh, data, count, op, timeout);
      case MT_COMM_I64: return reduce<int64_t>(mesh, data, count, op, timeout);
    }
    throw std::invalid_argument("Gloo cannot sum values of this dtype");
  });
}

/* Waits of batches end at once. Those inside all_reduce cannot be reached; a wait
 * that is let run out closes all connections of the mesh, which ends them. */
void abort_mesh(mt_mesh *mesh) {
  {
    std::lock_guard<std::mutex> guard(mesh->lock);
    mesh->aborted = true;
    for (auto *b : mesh->busy) {
      b->abortWaitRecv();
      b->abortWaitSend();
    }
  }
  mt_error nobody{nullptr, 0};
  guarded(&nobody, [&] {
    char byte;
    mesh->context->createUnboundBuffer(&byte, 1)->waitRecv(nullptr, milliseconds(1));
  });
}

void mesh_close(mt_mesh *mesh) {
  mt_error nobody{nullptr, 0};
  guarded(&nobody, [&] { mesh->context->closeConnections(); });
  delete mesh;
}

const mt_comm_api api = {
    MT_COMM_VERSION, int32_t(sizeof(mt_comm_api)), open_engine, close_engine, mesh_new, kAddressBytes, mesh_addresses,
    mesh_connect,    batch,                        all_reduce, abort_mesh, mesh_close,
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const mt_comm_api *mt_comm_api_get(void) { return &api; }
