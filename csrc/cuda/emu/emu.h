/* CUDA's names on a CPU: read in place of cuda_runtime.h, so that one source is
 * compiled by nvcc for GPUs and by g++ for tests.
 *
 * Every CUDA thread is a fiber; the blocks of a grid run one after the other on
 * their stream's thread. What a GPU leaves undefined is made to show: shared memory
 * starts as NaN, the order of threads is a setting (schedule.h), a barrier that
 * not all threads reach, an exchange whose lanes disagree and a deadlock fail
 * with file and line, and an asynchronous copy lands only at its wait. */
#ifndef MT_EMU_H
#define MT_EMU_H

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tuple>

#include "graph.h"
#include "stream.h"
#include "types.h"

#define __global__ static
#define __device__
#define __host__
#define __launch_bounds__(...)
#define __grid_constant__

struct uint3 { unsigned x, y, z; };
struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

namespace mt_emu {

struct Block;

/* Where a thread stands in the source. */
struct Place {
  const char *file;
  int line;
};

/* A running CUDA thread, as kernels see it. */
struct Thread {
  uint3 index, block_index;
  dim3 block_size, grid_size;
  unsigned lane;
};
extern thread_local Thread *self __attribute__((tls_model("initial-exec")));

/* Ends the kernel: the launch fails with this text, behind the kernel's and thread's names. */
void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

void barrier(Place at);

/* The lanes of `mask` meet: each leaves `bytes` of input (40 at most); the last one
 * to come runs work(in, out, mask) over all lanes' slots; each gets its own output. */
struct Slot { alignas(8) unsigned char bytes[40]; };
typedef void (*Work)(const Slot *in, Slot *out, unsigned mask);
const Slot &meet(Place at, unsigned mask, const void *in, size_t bytes, Work work);

void *shared(const void *site, size_t bytes); /* of this block; one piece a site */
void *dynamic_shared();

void copy_async(void *dst, const void *src, size_t bytes, size_t room); /* the rest of `room`: zeros */
void copy_commit();
void copy_wait(int groups); /* until at most so many of the newest are under way */

/* Whether a GPU takes such a launch; where not, the error is the calling thread's. */
bool fits(const char *name, dim3 grid, dim3 block, size_t dynamic);
void run(const char *name, dim3 grid, dim3 block, size_t dynamic, const std::function<void()> &thread);

template <typename K, typename... A>
void launch(const char *name, dim3 grid, dim3 block, size_t dynamic, cudaStream_t stream, K kernel, A... args) {
  if (!fits(name, grid, block, dynamic)) return;
  std::function<void()> thread = [=] { kernel(args...); };
  std::tuple<A...> arguments(args...);
  set_error(submit(stream, name, [=] { run(name, grid, block, dynamic, thread); }, &arguments, sizeof arguments));
}

template <typename T> T shuffle(Place at, unsigned mask, T value, unsigned from) {
  struct In { T value; unsigned from; } in = {value, from};
  static_assert(sizeof in <= sizeof(Slot), "a shuffled value is too large");
  const Slot &out = meet(at, mask, &in, sizeof in, [](const Slot *in, Slot *out, unsigned mask) {
    for (unsigned lane = 0; lane < 32; lane++) {
      if (!(mask >> lane & 1)) continue;
      unsigned from = reinterpret_cast<const In *>(&in[lane])->from;
      if (mask >> from & 1) memcpy(&out[lane], &in[from], sizeof(T)); /* else what a GPU leaves undefined: the old bytes */
    }
  });
  T result;
  memcpy(&result, &out, sizeof(T));
  return result;
}

unsigned ballot(Place at, unsigned mask, bool vote);
void sync_warp(Place at, unsigned mask);

} // namespace mt_emu

#define MT_HERE (mt_emu::Place{__FILE__, __LINE__})
#define threadIdx (mt_emu::self->index)
#define blockIdx (mt_emu::self->block_index)
#define blockDim (mt_emu::self->block_size)
#define gridDim (mt_emu::self->grid_size)

#define __syncthreads() mt_emu::barrier(MT_HERE)
#define __syncwarp() mt_emu::sync_warp(MT_HERE, ~0u)
#define __shfl_sync(mask, v, lane) mt_emu::shuffle(MT_HERE, mask, v, (lane) & 31)
#define __shfl_xor_sync(mask, v, by) mt_emu::shuffle(MT_HERE, mask, v, mt_emu::self->lane ^ (by))
#define __ballot_sync(mask, v) mt_emu::ballot(MT_HERE, mask, v)
#define __all_sync(mask, v) (mt_emu::ballot(MT_HERE, mask, v) == (mask))

#define MT_SHARED(T, x)        \
  static char mt_site_##x;     \
  mt_type<T> &x = *static_cast<mt_type<T> *>(mt_emu::shared(&mt_site_##x, sizeof(mt_type<T>)))
#define MT_DYN_SHARED(T, x) T *x = static_cast<T *>(mt_emu::dynamic_shared())
#define MT_LAUNCH(kernel, grid, block, smem, stream, ...) \
  mt_emu::launch(#kernel, grid, block, smem, stream, kernel, __VA_ARGS__)

/* One thread of the CPU runs a block, so that nothing comes between; atomic for the
 * race check. */
template <typename T> T atomicAdd(T *at, T by) {
  T old = *at;
  __atomic_store_n(at, old + by, __ATOMIC_RELAXED);
  return old;
}

inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline double __dmul_rn(double x, double y) { return x * y; }
inline int __float_as_int(float f) { int x; memcpy(&x, &f, 4); return x; }
inline float __int_as_float(int x) { float f; memcpy(&f, &x, 4); return f; }

#endif
