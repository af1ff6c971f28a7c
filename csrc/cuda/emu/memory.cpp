#include "memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "stream.h"

namespace {

std::mutex mutex;
std::unordered_map<void *, size_t> blocks, pinned;
size_t held;

/* MONOTRON_EMU_MEMORY, in bytes, makes memory end. */
size_t limit() {
  const char *text = getenv("MONOTRON_EMU_MEMORY");
  return text ? strtoull(text, nullptr, 10) : (size_t)64 << 30;
}

#if defined(MT_WATCH_thread) || defined(MT_WATCH_address)
/* The checkers know malloc's blocks, and work is done on the host's thread. */
void *take(size_t bytes) { return aligned_alloc(256, (bytes + 255) & ~(size_t)255); }
void give_back(void *p, size_t) { free(p); }
} // namespace

void mt_emu::enter_device_memory() {}
#else
/* Of the device's pages; -1 where the CPU or the system has none. */
int key() {
  static const int k = pkey_alloc(0, PKEY_DISABLE_ACCESS);
  return k;
}

void *take(size_t bytes) {
  void *p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  memset(p, 0xff, bytes);
  if (key() >= 0) pkey_mprotect(p, bytes, PROT_READ | PROT_WRITE, key());
  return p;
}
void give_back(void *p, size_t bytes) { munmap(p, bytes); }
} // namespace

void mt_emu::enter_device_memory() {
  if (key() >= 0) pkey_set(key(), 0);
}
#endif

cudaError_t cudaMalloc(void **out, size_t bytes) {
  std::lock_guard<std::mutex> lock(mutex);
  if (held + bytes > limit() || !(*out = take(bytes))) return cudaErrorMemoryAllocation;
  blocks[*out] = bytes;
  held += bytes;
  return cudaSuccess;
}

cudaError_t cudaFree(void *p) {
  cudaDeviceSynchronize();
  std::lock_guard<std::mutex> lock(mutex);
  auto it = blocks.find(p);
  if (it == blocks.end()) return cudaSuccess;
  held -= it->second;
  give_back(p, it->second);
  blocks.erase(it);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
  std::lock_guard<std::mutex> lock(mutex);
  *total = limit();
  *free = *total - held;
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned) {
  if (!(*out = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095))) return cudaErrorMemoryAllocation;
  std::lock_guard<std::mutex> lock(mutex);
  pinned[*out] = bytes;
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void *p) {
  cudaDeviceSynchronize();
  std::lock_guard<std::mutex> lock(mutex);
  pinned.erase(p);
  free(p);
  return cudaSuccess;
}

static bool is_pinned(const void *p) {
  std::lock_guard<std::mutex> lock(mutex);
  for (auto &b : pinned)
    if (p >= b.first && p < static_cast<char *>(b.first) + b.second) return true;
  return false;
}

/* From and to memory that is not pinned: a copy to the device is taken when called, one
 * to the host is there on return. */
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (kind == cudaMemcpyHostToDevice && stream && !is_pinned(src)) {
    std::string taken(static_cast<const char *>(src), bytes);
    mt_emu::enqueue(stream, [=] { memcpy(dst, taken.data(), bytes); });
    return cudaSuccess;
  }
  mt_emu::enqueue(stream, [=] { memmove(dst, src, bytes); });
  if (kind == cudaMemcpyDeviceToHost && !is_pinned(dst)) return cudaStreamSynchronize(stream);
  return cudaSuccess;
}
