#include "stream.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "graph.h"
#include "memory.h"

namespace {

thread_local cudaError_t last = cudaSuccess;
thread_local mt_emu_stream *here; /* whose thread this is */

std::mutex texts_mutex;
std::set<std::string> texts; /* what launches failed of: an error's text stays */
const char *launch_error = "";

std::mutex streams_mutex;
std::set<mt_emu_stream *> streams;

std::atomic<long> kernels, begun;
std::atomic<bool> struck;

/* The host waits for a stream as CUDA's does by default: it keeps its core. */
template <typename F> void until(std::condition_variable &changed, std::unique_lock<std::mutex> &lock, F done) {
  static const bool spins = getenv("MONOTRON_EMU_SPIN") != nullptr;
  if (!spins) return changed.wait(lock, done);
  while (!done()) {
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  }
}

} // namespace

struct mt_emu_stream {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> waiting;
  bool busy = false, ended = false;
  cudaError_t error = cudaSuccess; /* the first since it was asked */
  std::thread worker{[this] { work(); }};

  void work() {
    here = this;
    mt_emu::enter_device_memory();
    std::unique_lock<std::mutex> lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return ended || !waiting.empty(); });
      if (waiting.empty()) return;
      std::function<void()> next = std::move(waiting.front());
      waiting.pop_front();
      busy = true;
      lock.unlock();
      next();
      cudaError_t e = mt_emu::take_error();
      lock.lock();
      busy = false;
      if (error == cudaSuccess) error = e;
      changed.notify_all();
    }
  }

  void put(std::function<void()> work) {
    std::lock_guard<std::mutex> lock(mutex);
    waiting.push_back(std::move(work));
    changed.notify_all();
  }

  cudaError_t wait() {
    std::unique_lock<std::mutex> lock(mutex);
    until(changed, lock, [this] { return !busy && waiting.empty(); });
    cudaError_t e = error;
    error = cudaSuccess;
    return e;
  }

  cudaError_t trouble() {
    std::lock_guard<std::mutex> lock(mutex);
    return error;
  }

  void end() {
    {
      std::lock_guard<std::mutex> lock(mutex);
      ended = true;
      changed.notify_all();
    }
    worker.join();
  }
};

void mt_emu::enqueue(cudaStream_t stream, std::function<void()> work) {
  if (stream) stream->put(std::move(work));
  else work();
}

void mt_emu::set_launch_error(const std::string &text) {
  std::lock_guard<std::mutex> lock(texts_mutex);
  launch_error = texts.insert(text).first->c_str();
  last = cudaErrorLaunchFailure;
}

void mt_emu::set_error(cudaError_t e) {
  if (e != cudaSuccess) last = e;
}

bool mt_emu::failed() { return last != cudaSuccess; }

cudaError_t mt_emu::take_error() {
  cudaError_t e = last;
  last = cudaSuccess;
  return e == cudaSuccess ? lost() : e;
}

bool mt_emu::strikes() {
  static const char *text = getenv("MONOTRON_EMU_FAULT");
  if (text && ++kernels >= atol(text)) struck = true;
  return struck;
}

void mt_emu::hang() {
  static const char *text = getenv("MONOTRON_EMU_HANG");
  if (text && ++begun == atol(text))
    for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

cudaError_t mt_emu::lost() {
  if (!struck) return cudaSuccess;
  const char *kind = strchr(getenv("MONOTRON_EMU_FAULT"), ',');
  return kind ? (cudaError_t)atoi(kind + 1) : cudaErrorIllegalAddress;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned) {
#if defined(MT_WATCH_thread) || defined(MT_WATCH_address)
  *out = nullptr;
#else
  *out = new mt_emu_stream;
  std::lock_guard<std::mutex> lock(streams_mutex);
  streams.insert(*out);
#endif
  return cudaSuccess;
}

/* Threads have one priority here; only the range is looked at. */
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  *least = 0, *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority) {
  return priority < -5 || priority > 0 ? cudaErrorInvalidValue : cudaStreamCreateWithFlags(out, flags);
}

cudaError_t cudaStreamDestroy(cudaStream_t s) {
  if (!s) return cudaSuccess;
  {
    std::lock_guard<std::mutex> lock(streams_mutex);
    streams.erase(s);
  }
  s->end();
  delete s;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  if (cudaError_t e = mt_emu::waits_for(s)) return e;
  return s ? s->wait() : cudaSuccess;
}

/* Waits for every stream; their errors stay for who asks them. */
cudaError_t cudaDeviceSynchronize() {
  if (cudaError_t e = mt_emu::waits_for_all()) return e;
  std::lock_guard<std::mutex> lock(streams_mutex);
  for (mt_emu_stream *s : streams) {
    std::unique_lock<std::mutex> inner(s->mutex);
    until(s->changed, inner, [s] { return !s->busy && s->waiting.empty(); });
  }
  return cudaSuccess;
}

/* An event is a place in a stream: done when the stream has come by. */
struct mt_emu_event {
  struct Place {
    std::mutex mutex;
    std::condition_variable changed;
    bool passed = false;
    std::chrono::steady_clock::time_point when; /* it came by */
    cudaError_t error = cudaSuccess; /* of the stream then */
  };
  bool timed;
  std::shared_ptr<Place> place; /* none before the first record */
  bool captured = false;        /* last recorded in a captured stream: nobody can wait for it */
};

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags) {
  *out = new mt_emu_event;
  (*out)->timed = !(flags & cudaEventDisableTiming);
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  event->captured = mt_emu::captured(stream);
  if (event->captured) return cudaSuccess;
  auto place = event->place = std::make_shared<mt_emu_event::Place>();
  mt_emu::enqueue(stream, [place] {
    cudaError_t e = here ? here->trouble() : cudaSuccess;
    std::lock_guard<std::mutex> lock(place->mutex);
    place->passed = true, place->when = std::chrono::steady_clock::now(), place->error = e;
    place->changed.notify_all();
  });
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (mt_emu::captured(stream)) return event->captured ? cudaSuccess : mt_emu::spoil(stream, cudaErrorStreamCaptureIsolation);
  if (event->captured) return cudaErrorStreamCaptureUnsupported; /* a GPU's stream would join the capture */
  auto place = event->place;
  if (!place) return cudaSuccess;
  mt_emu::enqueue(stream, [place] {
    std::unique_lock<std::mutex> lock(place->mutex);
    place->changed.wait(lock, [&] { return place->passed; });
  });
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (event->captured) return cudaErrorCapturedEvent;
  if (cudaError_t e = mt_emu::unsafe()) return e;
  if (!event->place) return cudaSuccess;
  std::lock_guard<std::mutex> lock(event->place->mutex);
  return event->place->passed ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (event->captured) return cudaErrorCapturedEvent;
  if (cudaError_t e = mt_emu::unsafe()) return e;
  if (!event->place) return cudaSuccess;
  std::unique_lock<std::mutex> lock(event->place->mutex);
  until(event->place->changed, lock, [event] { return event->place->passed; });
  return event->place->error;
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to) {
  if (!from->timed || !to->timed || !from->place || !to->place) return cudaErrorInvalidResourceHandle;
  std::chrono::steady_clock::time_point when[2];
  for (int i = 0; i < 2; i++) {
    mt_emu_event::Place &place = *(i ? to : from)->place;
    std::lock_guard<std::mutex> lock(place.mutex);
    if (!place.passed) return cudaErrorNotReady;
    when[i] = place.when;
  }
  *milliseconds = std::chrono::duration<float, std::milli>(when[1] - when[0]).count();
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() { return mt_emu::take_error(); }

const char *cudaGetErrorString(cudaError_t e) {
  switch (e) {
  case cudaSuccess: return "no error";
  case cudaErrorMemoryAllocation: return "out of memory";
  case cudaErrorInvalidDevice: return "invalid device ordinal";
  case cudaErrorNotReady: return "device not ready";
  case cudaErrorIllegalAddress: return "an illegal memory access was encountered";
  case cudaErrorIllegalState: return "the operation cannot be performed in the present state";
  case cudaErrorStreamCaptureUnsupported: return "operation not permitted when stream is capturing";
  case cudaErrorStreamCaptureInvalidated: return "operation failed due to a previous error during capture";
  case cudaErrorStreamCaptureIsolation: return "dependency created on uncaptured work in another stream";
  case cudaErrorCapturedEvent: return "operation not permitted on an event last recorded in a capturing stream";
  case cudaErrorStreamCaptureWrongThread: return "attempt to terminate a thread-local capture sequence from another thread";
  case cudaErrorLaunchFailure: {
    std::lock_guard<std::mutex> lock(texts_mutex);
    return *launch_error ? launch_error : "unspecified launch failure";
  }
  default: return "unknown error";
  }
}
