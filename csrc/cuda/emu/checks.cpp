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
  printf("%d checks failed\n", failures);
  return failures != 0;
}
