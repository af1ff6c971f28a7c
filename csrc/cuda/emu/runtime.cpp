/* The runtime's calls: device memory is the host's, a stream has nothing to wait
 * for. MONOTRON_EMU_MEMORY, in bytes, makes memory end. */
#include "runtime.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <unordered_map>

#include "block.h"

namespace {

thread_local std::string launch_error;
thread_local cudaError_t last = cudaSuccess;

std::mutex mutex;
std::unordered_map<void *, size_t> blocks;
size_t held;

size_t limit() {
  const char *text = getenv("MONOTRON_EMU_MEMORY");
  return text ? strtoull(text, nullptr, 10) : (size_t)64 << 30;
}

} // namespace

void mt_emu::set_launch_error(const std::string &text) {
  launch_error = text;
  last = cudaErrorLaunchFailure;
}

cudaError_t cudaGetDeviceCount(int *count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : cudaErrorInvalidDevice; }

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int) {
  snprintf(p->name, sizeof p->name, "no GPU: CUDA kernels emulated on the CPU");
  p->major = 9, p->minor = 0, p->multiProcessorCount = 1;
  p->totalGlobalMem = limit();
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *version) { return cudaDriverGetVersion(version); }

cudaError_t cudaMalloc(void **out, size_t bytes) {
  std::lock_guard<std::mutex> lock(mutex);
  if (held + bytes > limit()) return cudaErrorMemoryAllocation;
  *out = aligned_alloc(256, (bytes + 255) & ~(size_t)255);
  if (!*out) return cudaErrorMemoryAllocation;
  blocks[*out] = bytes;
  held += bytes;
  return cudaSuccess;
}

cudaError_t cudaFree(void *p) {
  std::lock_guard<std::mutex> lock(mutex);
  held -= blocks[p];
  blocks.erase(p);
  free(p);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
  std::lock_guard<std::mutex> lock(mutex);
  *total = limit();
  *free = *total - held;
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, cudaMemcpyKind, cudaStream_t) {
  memmove(dst, src, bytes);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned) {
  *out = nullptr;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }

cudaError_t cudaGetLastError() {
  cudaError_t e = last;
  last = cudaSuccess;
  return e;
}

const char *cudaGetErrorString(cudaError_t e) {
  switch (e) {
  case cudaSuccess: return "no error";
  case cudaErrorMemoryAllocation: return "out of memory";
  case cudaErrorInvalidDevice: return "invalid device ordinal";
  case cudaErrorLaunchFailure: return launch_error.c_str();
  default: return "unknown error";
  }
}
