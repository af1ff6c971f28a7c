/* What the runtime tells of the emulated GPUs: one, or as many as MONOTRON_EMU_GPUS says; or
 * that it does not start, by the error that MONOTRON_EMU_START numbers. */
#include "runtime.h"

#include <cstdio>
#include <cstdlib>

static int gpus() {
  const char *text = getenv("MONOTRON_EMU_GPUS");
  return text ? atoi(text) : 1;
}

cudaError_t cudaGetDeviceCount(int *count) {
  const char *broken = getenv("MONOTRON_EMU_START");
  *count = broken ? 0 : gpus();
  return broken ? (cudaError_t)atoi(broken) : cudaSuccess;
}
cudaError_t cudaSetDevice(int device) { return device >= 0 && device < gpus() ? cudaSuccess : cudaErrorInvalidDevice; }

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int) {
  size_t free;
  snprintf(p->name, sizeof p->name, "no GPU: CUDA kernels emulated on the CPU");
  p->major = 9, p->minor = 0, p->multiProcessorCount = 1;
  return cudaMemGetInfo(&free, &p->totalGlobalMem);
}
cudaError_t cudaDriverGetVersion(int *version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *version) { return cudaDriverGetVersion(version); }
