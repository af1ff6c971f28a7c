#include "memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <unordered_map>

#include "graph.h"
#include "stream.h"

namespace {

std::mutex mutex;
struct Held {
  size_t bytes;
  uint64_t number;
};
std::map<uintptr_t, Held> blocks; /* by address */
std::unordered_map<void *, size_t> pinned;
size_t held;
uint64_t given; /* blocks so far */

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
  if (cudaError_t e = mt_emu::unsafe()) return e;
  std::lock_guard<std::mutex> lock(mutex);
  if (held + bytes > limit() || !(*out = take(bytes))) return cudaErrorMemoryAllocation;
  blocks[(uintptr_t)*out] = {bytes, ++given};
  held += bytes;
  return cudaSuccess;
}

cudaError_t cudaFree(void *p) {
  if (cudaError_t e = mt_emu::unsafe()) return e;
  cudaDeviceSynchronize();
  std::lock_guard<std::mutex> lock(mutex);
  auto it = blocks.find((uintptr_t)p);
  if (it == blocks.end()) return cudaSuccess;
  held -= it->second.bytes;
  give_back(p, it->second.bytes);
  blocks.erase(it);
  return cudaSuccess;
}

std::vector<mt_emu::Block> mt_emu::blocks_of(const void *arguments, size_t bytes) {
  std::lock_guard<std::mutex> lock(mutex);
  std::vector<Block> found;
  for (size_t at = 0; at + sizeof(uintptr_t) <= bytes; at += sizeof(uintptr_t)) {
    uintptr_t word;
    memcpy(&word, static_cast<const char *>(arguments) + at, sizeof word);
    auto b = blocks.upper_bound(word);
    if (b == blocks.begin()) continue;
    --b;
    if (word - b->first < b->second.bytes) found.push_back({reinterpret_cast<void *>(b->first), b->second.number});
  }
  return found;
}

bool mt_emu::lives(const Block &block) {
  std::lock_guard<std::mutex> lock(mutex);
  auto b = blocks.find(reinterpret_cast<uintptr_t>(block.at));
  return b != blocks.end() && b->second.number == block.number;
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
  std::lock_guard<std::mutex> lock(mutex);
  *total = limit();
  *free = *total - held;
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned) {
  if (cudaError_t e = mt_emu::unsafe()) return e;
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
  bool pageable = (kind == cudaMemcpyHostToDevice && !is_pinned(src)) || (kind == cudaMemcpyDeviceToHost && !is_pinned(dst));
  if (pageable && mt_emu::captured(stream)) return mt_emu::spoil(stream, cudaErrorStreamCaptureUnsupported);
  if (kind == cudaMemcpyHostToDevice && stream && !is_pinned(src)) {
    std::string taken(static_cast<const char *>(src), bytes);
    mt_emu::enqueue(stream, [=] { memcpy(dst, taken.data(), bytes); });
    return cudaSuccess;
  }
  const void *places[] = {dst, src};
  cudaError_t e = mt_emu::submit(stream, "a copy", [=] { memmove(dst, src, bytes); }, places, sizeof places);
  if (e == cudaSuccess && kind == cudaMemcpyDeviceToHost && !is_pinned(dst)) return cudaStreamSynchronize(stream);
  return e;
}
