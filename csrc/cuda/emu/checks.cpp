/* Broken kernels that the emulator must find, and sound ones it must let pass. A
 * program: without arguments it runs every check; with `race` and a name it runs that
 * kernel alone, for a race checker to judge. */
#include "../ptx.h"
#include "schedule.h"

#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

/* The sum of 64 threads' numbers through shared memory. */
template <bool BARRIER> __global__ void total_kernel(float *out) {
  MT_SHARED(float[64], all);
  all[threadIdx.x] = (float)threadIdx.x;
  if (BARRIER) __syncthreads();
  float sum = 0;
  for (int i = 0; i < 64; i++) sum += all[i];
  out[threadIdx.x] = sum;
}

/* A buffer that is used again: without the second barrier a fast warp overwrites it. */
template <bool BARRIER> __global__ void reuse_kernel(float *out) {
  MT_SHARED(float[64], all);
  for (int round = 0; round < 2; round++) {
    all[threadIdx.x] = (float)(round + 1);
    __syncthreads();
    out[round * 64 + threadIdx.x] = all[63 - threadIdx.x];
    if (BARRIER) __syncthreads();
  }
}

template <bool WAIT> __global__ void copy_kernel(const float *from, float *out) {
  MT_SHARED(float[4], here);
  if (threadIdx.x == 0) {
    copy_async(here, from, 16);
    copy_commit();
    if (WAIT) copy_wait<0>();
  }
  __syncthreads();
  if (threadIdx.x < 4) out[threadIdx.x] = here[threadIdx.x];
}

__global__ void divergent_kernel(float *out) {
  if (threadIdx.x < 32) __syncthreads();
  else out[threadIdx.x] = 1;
}
__global__ void two_barriers_kernel(float *out) {
  if (threadIdx.x < 32) __syncthreads();
  else __syncthreads();
  out[threadIdx.x] = 1;
}
__global__ void lost_lane_kernel(float *out) {
  if (threadIdx.x == 5) return;
  out[threadIdx.x] = __shfl_xor_sync(0xffffffff, 1.0f, 1);
}
__global__ void foreign_mask_kernel(float *out) { out[threadIdx.x] = __shfl_xor_sync(0x0000ffff, 1.0f, 1); }
__global__ void stuck_kernel(float *out) {
  if (threadIdx.x % 2) __syncthreads();
  out[threadIdx.x] = __shfl_xor_sync(0xffffffff, 1.0f, 1);
}

/* mma of A = 16x16 with A[i][k] = i + 2k and B = unit matrix columns: C = A's first 8 columns. */
__global__ void mma_kernel(float *out) {
  MT_SHARED(bf16[16][24], a);
  MT_SHARED(bf16[16][24], b);
  for (int i = threadIdx.x; i < 256; i += 32) {
    a[i / 16][i % 16] = from_float<bf16>((float)(i / 16 + 2 * (i % 16)));
    b[i / 16][i % 16] = from_float<bf16>(i / 16 == i % 16 ? 1.0f : 0.0f);
  }
  __syncthreads();
  int lane = threadIdx.x;
  uint32_t fa[4], fb[4];
  load_matrices(fa, &a[lane % 16][lane / 16 * 8]);
  load_transposed(fb, &b[lane % 8 + lane / 8 % 2 * 8][lane / 16 * 8]);
  float c[4] = {};
  multiply(c, fa, fb[0], fb[1], bf16());
  for (int e = 0; e < 4; e++) out[(lane / 4 + e / 2 * 8) * 8 + lane % 4 * 2 + e % 2] = c[e];
}

__global__ void add_kernel(float *to, float by) { to[threadIdx.x] += by; }

int failures;
float values[256];

std::string error() {
  cudaError_t e = cudaGetLastError();
  return e == cudaSuccess ? "" : cudaGetErrorString(e);
}

void expect(const char *name, bool ok, const std::string &got) {
  printf("%s: %s%s%s\n", ok ? "ok" : "FAILED", name, got.empty() ? "" : ": ", got.c_str());
  failures += !ok;
}

void must_fail(const char *name, const char *with) {
  std::string got = error();
  expect(name, got.find(with) != std::string::npos && got.find("checks.cpp:") != std::string::npos, got);
}

template <typename K> bool sums(K kernel) {
  MT_LAUNCH(kernel, 1, 64, 0, nullptr, values);
  for (int i = 0; i < 64; i++)
    if (values[i] != 2016) return false;
  return error().empty();
}

template <typename K> bool rounds(K kernel) {
  MT_LAUNCH(kernel, 1, 64, 0, nullptr, values);
  for (int i = 0; i < 128; i++)
    if (values[i] != i / 64 + 1) return false;
  return error().empty();
}

void check_orders() {
  using namespace mt_emu;
  const char *names[] = {"forward", "reverse", "random"};
  bool found_total = false, found_reuse = false;
  for (int order = FORWARD; order <= RANDOM; order++)
    for (int greedy = 0; greedy < 2; greedy++) {
      schedule.order = (Order)order, schedule.greedy = greedy;
      std::string name = std::string(" (") + names[order] + (greedy ? ", greedy)" : ", fair)");
      expect(("a sum behind a barrier" + name).c_str(), sums(total_kernel<true>), "");
      expect(("a buffer used again behind a barrier" + name).c_str(), rounds(reuse_kernel<true>), "");
      found_total |= !sums(total_kernel<false>);
      found_reuse |= !rounds(reuse_kernel<false>);
    }
  schedule = Schedule();
  expect("a missing barrier before reading is found by NaN", found_total, "");
  expect("a missing barrier before a buffer's reuse is found by an order", found_reuse, "");
}

void check_copies() {
  alignas(16) float from[4] = {1, 2, 3, 4};
  MT_LAUNCH(copy_kernel<true>, 1, 32, 0, nullptr, from, values);
  expect("an asynchronous copy", error().empty() && values[3] == 4, "");
  MT_LAUNCH(copy_kernel<false>, 1, 32, 0, nullptr, from, values);
  expect("a missing wait is found by NaN", error().empty() && values[3] != values[3], "");
}

void check_meetings() {
  MT_LAUNCH(divergent_kernel, 1, 64, 0, nullptr, values);
  must_fail("a barrier that half the block passes by", "returned while 32 threads wait");
  MT_LAUNCH(two_barriers_kernel, 1, 64, 0, nullptr, values);
  must_fail("two barriers at once", "waits at the barrier");
  MT_LAUNCH(lost_lane_kernel, 1, 32, 0, nullptr, values);
  must_fail("a lane that has returned", "has returned");
  MT_LAUNCH(foreign_mask_kernel, 1, 32, 0, nullptr, values);
  must_fail("a lane outside its mask", "not in its own mask");
  MT_LAUNCH(stuck_kernel, 1, 32, 0, nullptr, values);
  must_fail("a deadlock", "deadlock");
}

void check_mma() {
  MT_LAUNCH(mma_kernel, 1, 32, 0, nullptr, values);
  bool right = error().empty();
  for (int i = 0; i < 16; i++)
    for (int j = 0; j < 8; j++) right &= values[i * 8 + j] == i + 2 * j;
  expect("mma by the manual's fragments", right, "");
}

/* A stream that is captured, what is given to it meanwhile, and what that ends in. */
template <typename F> cudaError_t capture(cudaStream_t stream, cudaGraphExec_t *out, F calls) {
  cudaGraph_t graph;
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  calls();
  cudaError_t e = cudaStreamEndCapture(stream, &graph);
  if (e != cudaSuccess) return e;
  cudaGraphInstantiate(out, graph, 0);
  cudaGraphDestroy(graph);
  return cudaSuccess;
}

void check_graphs() {
  cudaStream_t stream;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  float *device, host[32] = {}, *pinned, by = 1;
  cudaMalloc(reinterpret_cast<void **>(&device), sizeof host);
  cudaHostAlloc(reinterpret_cast<void **>(&pinned), sizeof host, cudaHostAllocDefault);
  memset(pinned, 0, sizeof host);
  cudaGraphExec_t graph = nullptr;
  cudaMemcpyAsync(device, pinned, sizeof host, cudaMemcpyHostToDevice, stream);
  cudaError_t e = capture(stream, &graph, [&] {
    MT_LAUNCH(add_kernel, 1, 32, 0, stream, device, by);
    cudaMemcpyAsync(pinned, device, sizeof host, cudaMemcpyDeviceToHost, stream);
    MT_LAUNCH(add_kernel, 1, 32, 0, stream, device, 2 * by);
    by = 100;
  });
  cudaStreamSynchronize(stream);
  expect("nothing is done while it is captured", e == cudaSuccess && pinned[0] == 0, error());
  for (int i = 0; i < 3; i++) cudaGraphLaunch(graph, stream);
  cudaStreamSynchronize(stream);
  expect("a graph runs its nodes in order, with the arguments of then", pinned[31] == 7, error());

  cudaGraphExec_t none = nullptr;
  auto refused = [&](const char *name, cudaError_t want, auto call) {
    cudaError_t said = cudaSuccess, end = capture(stream, &none, [&] { said = call(); });
    expect(name, said == want && end == cudaErrorStreamCaptureInvalidated && !none, cudaGetErrorString(said));
    cudaGetLastError();
  };
  refused("a copy from pageable memory", cudaErrorStreamCaptureUnsupported, [&] { return cudaMemcpyAsync(device, host, sizeof host, cudaMemcpyHostToDevice, stream); });
  refused("waiting for a captured stream", cudaErrorStreamCaptureUnsupported, [&] { return cudaStreamSynchronize(stream); });
  refused("waiting for the device", cudaErrorStreamCaptureUnsupported, [&] { return cudaDeviceSynchronize(); });
  refused("taking memory", cudaErrorStreamCaptureUnsupported, [&] { void *p; return cudaMalloc(&p, 64); });
  refused("freeing memory", cudaErrorStreamCaptureUnsupported, [&] { return cudaFree(device); });
  cudaEvent_t event;
  cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  cudaEventRecord(event, stream);
  refused("following what was not captured", cudaErrorStreamCaptureIsolation, [&] { return cudaStreamWaitEvent(stream, event, 0); });
  capture(stream, &none, [&] { cudaEventRecord(event, stream); });
  expect("an event of a capture cannot be waited for", cudaEventSynchronize(event) == cudaErrorCapturedEvent, "");

  cudaFree(device);
  void *again;
  cudaMalloc(&again, sizeof host);
  e = cudaGraphLaunch(graph, stream);
  std::string said = cudaGetErrorString(e);
  expect("a graph of freed memory does not run", e != cudaSuccess && said.find("add_kernel") != std::string::npos, said);
}

} // namespace

int main(int count, char **words) {
  if (count == 3) { /* race NAME */
    std::string name = words[2];
    if (name == "sound") sums(total_kernel<true>), rounds(reuse_kernel<true>);
    if (name == "total") sums(total_kernel<false>);
    if (name == "reuse") rounds(reuse_kernel<false>);
    return 0;
  }
  check_orders();
  check_copies();
  check_meetings();
  check_mma();
  check_graphs();
  printf("%d checks failed\n", failures);
  return failures != 0;
}
