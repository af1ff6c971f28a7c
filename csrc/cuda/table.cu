/* The table of the CUDA device, and the calls that are not ops. */
#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "blaslt.h"
#include "cudnn.h"
#include "graphs.h"
#include "op.h"
#include "staging.h"
#include "streams.h"

#ifndef MT_ARCHITECTURES
#define MT_ARCHITECTURES "no GPU"
#endif

/* The oldest driver that this toolkit's runtime and kernels start on (CUDA's release notes,
 * minor version compatibility). */
#if CUDART_VERSION >= 13000
#define LEAST_DRIVER "580.65"
#else
#define LEAST_DRIVER "525.60"
#endif

/* What to do about errors that people meet. Those of the hardware and of a kernel show at
 * whatever is called later, and the process can do nothing more on the GPU. */
static const char *advice(cudaError_t e) {
  switch ((int)e) {
  case 35: /* cudaErrorInsufficientDriver */
    return "; this library needs driver " LEAST_DRIVER " or newer (nvidia-smi shows the installed version); in a container, start it with the GPUs (--gpus all)";
  case 46: /* cudaErrorDevicesUnavailable */
    return "; another process uses the GPU exclusively: nvidia-smi shows this process and the compute mode";
  case 802: /* cudaErrorSystemNotReady */
    return "; the switches between the GPUs do not run: install nvidia-fabricmanager in the version of the driver, and start it (systemctl start nvidia-fabricmanager)";
  case 803: /* cudaErrorSystemDriverMismatch */
    return "; the driver's library and the kernel module have different versions: reboot after an update of the driver; a container must not have its own libcuda.so.1";
  case 220: /* cudaErrorNvlinkUncorrectable */
    return "; a link between GPUs failed: resume from the last checkpoint on another host; dmesg shows Xid 74 for this link";
  case 214: /* cudaErrorECCUncorrectable */
    return "; the GPU's memory has an error: resume from the last checkpoint on another GPU; monotron doctor reports such errors";
  case 700: /* cudaErrorIllegalAddress; then the hardware's stack, an instruction, alignment, address space, program counter */
  case 714: case 715: case 716: case 717: case 718: case 719:
    return "; a kernel failed, in this op or an earlier one: resume from the last checkpoint; CUDA_LAUNCH_BLOCKING=1 shows the op";
  }
  return "";
}

int32_t mt_cuda_check(mt_context *ctx, cudaError_t e, const char *what) {
  if (e == cudaSuccess) return 0;
  snprintf(ctx->error, sizeof ctx->error, "%s: %s%s", what, cudaGetErrorString(e), advice(e));
  return 1;
}

int32_t mt_cuda_enter(mt_context *ctx) {
  ctx->error[0] = 0;
  return mt_cuda_check(ctx, cudaSetDevice(ctx->ordinal), "selecting the GPU");
}

bool mt_cuda_invariant = false; /* until all contexts are closed */
static std::atomic<int> contexts;
static void invariant() { mt_cuda_invariant = true; }

static const char *by_leaves = "own matrix products by leaves (--layout-invariant)";

static char described[2][512] = {"no GPU was opened", "no GPU was opened"}; /* the second one by leaves */

/* One line for the log: what computes, and what was found for it. */
static void describe_as(const cudaDeviceProp &gpu, const mt_stream *state) {
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  for (int leaves = 0; leaves < 2; leaves++)
    snprintf(described[leaves], sizeof described[leaves], "%s (sm_%d%d, %.0f GiB), CUDA %d.%d, driver for %d.%d, %s", gpu.name, gpu.major, gpu.minor,
             (double)gpu.totalGlobalMem / (1 << 30), runtime / 1000, runtime % 1000 / 10, driver / 1000, driver % 1000 / 10,
             leaves ? by_leaves : mt_blaslt_describe(state->blaslt));
}

__global__ void probe_kernel(int *out) {
  if (out) *out = 1;
}

static int32_t open_device(mt_context *ctx, int32_t ordinal) {
  int count = 0;
  cudaError_t e = cudaGetDeviceCount(&count);
  if (e != cudaSuccess || count == 0) {
    snprintf(ctx->error, sizeof ctx->error, "no usable GPU: %s%s", e == cudaSuccess ? "none is visible" : cudaGetErrorString(e), advice(e));
    return 1;
  }
  if (ordinal >= count) {
    snprintf(ctx->error, sizeof ctx->error, "GPU %d was requested, but the number of visible GPUs is %d", ordinal, count);
    return 1;
  }
  ctx->ordinal = ordinal;
  cudaDeviceProp gpu;
  if (mt_cuda_enter(ctx) || mt_cuda_check(ctx, cudaGetDeviceProperties(&gpu, ordinal), "reading the properties of the GPU")) return 1;
  /* A kernel that exists for this GPU, or none does. */
  cudaFuncAttributes probe;
  if ((e = cudaFuncGetAttributes(&probe, probe_kernel)) != cudaSuccess) {
    cudaGetLastError();
    snprintf(ctx->error, sizeof ctx->error, "%s is sm_%d%d, but the kernels are compiled for " MT_ARCHITECTURES ": %s", gpu.name, gpu.major, gpu.minor, cudaGetErrorString(e));
    return 1;
  }
  /* The stream, and the libraries that exist. */
  mt_stream *state = static_cast<mt_stream *>(calloc(1, sizeof *state));
  if (!state || mt_cuda_check(ctx, cudaStreamCreateWithFlags(&state->stream, cudaStreamNonBlocking), "creating a stream")) {
    free(state);
    return 1;
  }
  ctx->stream = state;
  state->processors = gpu.multiProcessorCount;
  state->blaslt = mt_blaslt_open();
  state->staging = mt_staging_open();
  describe_as(gpu, state);
  contexts++;
  return 0;
}

static void close_device(mt_context *ctx) {
  if (mt_cuda_enter(ctx)) return;
  mt_stream *state = state_of(ctx);
  cudaStreamSynchronize(state->stream);
  mt_blaslt_close(state->blaslt);
  mt_cudnn_close(state->cudnn);
  mt_staging_close(state->staging);
  cudaStreamDestroy(state->stream);
  free(state);
  ctx->stream = nullptr;
  if (--contexts == 0) mt_cuda_invariant = false;
}

static int32_t allocate(mt_context *ctx, int64_t bytes, void **out) {
  if (mt_cuda_enter(ctx)) return 1;
  cudaError_t e = cudaMalloc(out, bytes);
  if (e == cudaSuccess) return 0;
  cudaGetLastError(); /* later calls must not report it */
  if (e != cudaErrorMemoryAllocation) return mt_cuda_check(ctx, e, "allocating memory");
  size_t free = 0, total = 0;
  cudaMemGetInfo(&free, &total);
  snprintf(ctx->error, sizeof ctx->error, "the GPU has %zu of %zu bytes free, but %lld were requested", free, total, (long long)bytes);
  return 1;
}

static int32_t release(mt_context *ctx, void *p) { return mt_cuda_enter(ctx) || mt_cuda_check(ctx, cudaFree(p), "freeing memory"); }

static int32_t wait(mt_context *ctx) { return mt_cuda_enter(ctx) || mt_cuda_check(ctx, cudaStreamSynchronize(stream_of(ctx)), "waiting for the GPU"); }

static int32_t copy_bytes(mt_context *ctx, void *dst, const void *src, int64_t bytes, int32_t to_host) {
  if (mt_cuda_enter(ctx)) return 1;
  mt_staging *way = state_of(ctx)->staging;
  if (way) return mt_cuda_check(ctx, (to_host ? mt_staging_down : mt_staging_up)(way, stream_of(ctx), dst, src, bytes), "copying");
  cudaError_t e = cudaMemcpyAsync(dst, src, bytes, to_host ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice, stream_of(ctx));
  return mt_cuda_check(ctx, e, "copying") || wait(ctx);
}

static const char *describe() { return described[mt_cuda_invariant]; }
static const char *products(mt_context *ctx) { return mt_cuda_invariant ? by_leaves : mt_blaslt_describe(state_of(ctx)->blaslt); }
static const char *refused(mt_context *ctx) { return mt_blaslt_refused(state_of(ctx)->blaslt); }

#define DECLARE(id, name) extern const mt_op mt_cuda_##name;
MT_EACH_OP(DECLARE)
#define DECLARE_KNOWN(name) extern const uint32_t mt_cuda_known_##name;
MT_EACH_ENUMERATION(DECLARE_KNOWN)

extern "C" __attribute__((visibility("default"))) const mt_device_api *mt_device_api_get(void) {
  static mt_device_api api;
  api.version = MT_DEVICE_VERSION;
  api.bytes = sizeof api;
  api.ops = MT_OPS;
  api.sum = MT_OPS_SUM;
  api.host_memory = 0;
  api.open = open_device;
  api.close = close_device;
  api.alloc = allocate;
  api.release = release;
  api.copy = copy_bytes;
  api.sync = wait;
  api.describe = describe;
  api.products = products;
  api.refused = refused;
  api.invariant = invariant;
  api.streams = mt_cuda_streams();
  api.fuse_attention = mt_cudnn_fuse_attention;
  api.graphs = mt_cuda_graphs();
#define ENTER(id, name) api.op[id] = mt_cuda_##name;
  MT_EACH_OP(ENTER)
#define ENTER_KNOWN(name) api.known.name = mt_cuda_known_##name;
  MT_EACH_ENUMERATION(ENTER_KNOWN)
  return &api;
}
