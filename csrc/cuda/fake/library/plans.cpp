// Asks a real libcudnn.so.9 to build plans for our attention graphs on GPUs that are only
// described (cuDNN 9.8 and newer can): it recognises the graphs, chooses engines and
// compiles kernels; nothing is run. Called by scripts/cudnn-plans.sh.
//   plans LIBRARY
#include <cstdio>
#include <cstring>

#include "../../cudnn_attention.h"

using namespace cudnn;

namespace {

struct gpu {
  const char *name;
  int major, processors, shared, l2; /* shared: bytes a block may have */
};
const gpu gpus[] = {{"NVIDIA H200", 9, 132, 232448, 62914560}, {"NVIDIA A100-SXM4-80GB", 8, 108, 166912, 41943040}, {"NVIDIA B200", 10, 148, 232448, 132644864}};

void describe(char (&out)[1024], const gpu &g) {
  snprintf(out, sizeof out,
           "{\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],\"regsPerBlock\":65536,\"multiProcessorCount\":%d,\"smCountOrigin\":0,"
           "\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":%d,\"reservedSharedMemoryPerBlock\":1024,"
           "\"oversizedSharedMemoryPerBlock\":%d,\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,"
           "\"pciDeviceId\":0,\"isTccDriver\":0,\"supportCoopLaunch\":1,\"totalGlobalMem\":85899345920,\"smClockRateKHz\":1410000,\"memClockRateKHz\":1593000,"
           "\"memoryBusWidth\":5120,\"l2CacheSize\":%d,\"cudaDeviceId\":0,\"deviceVer\":%d,\"driverVer\":13000,\"deviceName\":\"%s\"}",
           g.processors, g.shared, g.shared, g.l2, g.major * 100, g.name);
}

struct wanted { int64_t batch, heads, groups, positions, channels; data type; };

// GPT-2 124M and 1.5B, Llama 8B cut, and odd sizes.
const wanted shapes[] = {{16, 12, 12, 1024, 64, BF16}, {4, 25, 25, 1024, 64, BF16}, {1, 32, 8, 2048, 128, BF16}, {4, 12, 12, 1024, 64, F16},
                         {2, 4, 4, 1000, 64, BF16},    {2, 3, 3, 65, 32, BF16},     {1, 2, 1, 17, 8, BF16},      {2, 4, 2, 129, 80, F16}};

void put(int64_t (&to)[3], int64_t batch, int64_t head, int64_t position) { to[0] = batch, to[1] = head, to[2] = position; }

// Strides of [positions, batch, groups, (queries of the group, key, value), channels]; grouped queries lie apart, as cudnn.cu copies them.
attention_shape shape_of(const wanted &w, bool backward) {
  attention_shape s;
  memset(&s, 0, sizeof s);
  s.batch = w.batch, s.heads = w.heads, s.groups = w.groups, s.positions = w.positions, s.channels = w.channels, s.type = w.type, s.backward = backward;
  int64_t d = w.channels, group = (w.heads / w.groups + 2) * d, row = w.groups * group, plain = w.heads * d;
  bool together = w.heads > w.groups && w.groups > 1;
  put(s.q, together ? plain : row, w.heads == w.groups ? group : d, w.batch * (together ? plain : row));
  put(s.k, row, group, w.batch * row), put(s.v, row, group, w.batch * row);
  put(s.o, plain, d, w.batch * plain), put(s.d_o, plain, d, w.batch * plain);
  memcpy(s.d_q, s.q, sizeof s.q), memcpy(s.d_k, s.k, sizeof s.k), memcpy(s.d_v, s.v, sizeof s.v);
  return s;
}

bool build(const api &call, const gpu &on, const wanted &w, bool backward) {
  graph g;
  begin(&g, &call, nullptr);
  const char *what = "describing a GPU";
  char text[1024];
  describe(text, on);
  desc_t device = descriptor(&g, DEVICE, what);
  set(&g, device, DEVICE_JSON, CHAR, strlen(text) + 1, text, what);
  finalize(&g, device, what);
  attention_shape s = shape_of(w, backward);
  backward ? backward_graph(&g, s) : forward_graph(&g, s);
  plan p = {};
  bool recognised = finish(&g), built = recognised && choose(&g, device, backward ? backward_engine(on.major) : nullptr, &p);
  printf("%s %s %lldx%lld, %lld heads (%lld of keys) of %lld: %s", built ? "plan built" : recognised ? "NO PLAN" : "NO GRAPH", backward ? "backward" : "forward",
         (long long)w.batch, (long long)w.positions, (long long)w.heads, (long long)w.groups, (long long)w.channels, w.type == BF16 ? "bf16" : "f16");
  if (built) printf(", workspace %.1f MB\n", p.workspace / 1e6);
  else printf(": %s\n", g.error);
  drop(&g);
  return built;
}

} // namespace

int main(int, char **words) {
  api call;
  const char *why = "";
  if (!open_api(&call, words[1], &why)) {
    puts(why);
    return 66;
  }
  int failed = 0;
  for (const gpu &on : gpus) {
    char refusal[160] = "";
    printf("cuDNN %zu, for an %s that is described, not there:\n", call.version(), on.name);
    if (!backward_repeats((int)call.version(), on.major, 0, refusal)) {
      printf("refused: %s\n", refusal);
      continue;
    }
    for (const wanted &w : shapes)
      for (int backward = 0; backward < 2; backward++) failed += !build(call, on, w, backward);
  }
  return failed != 0;
}
