/* Runs recorded calls (record_test.go) in a process of its own, so that a race or
 * address checker can watch the kernels: every tensor is a block of its own, as long as
 * what the op may touch. Prints how many calls ran; fails with the first that did. */
#include "../../device/device.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

extern "C" const mt_device_api *mt_device_api_get(void);

namespace {

FILE *file;

template <typename T> T next() {
  T x;
  if (fread(&x, sizeof x, 1, file) != 1) {
    fprintf(stderr, "the record ends in the middle of a call\n");
    exit(65);
  }
  return x;
}

std::vector<char> bytes(int64_t n) {
  std::vector<char> b(n);
  if (n > 0 && fread(b.data(), n, 1, file) != 1) exit(65);
  return b;
}

/* One call: op, arguments, the memory they point into, and where in it. */
bool call(const mt_device_api *api, mt_context *ctx) {
  int32_t op;
  if (fread(&op, sizeof op, 1, file) != 1) return false;
  std::vector<char> args = bytes(next<int32_t>());
  std::vector<void *> blocks(next<int32_t>());
  for (void *&b : blocks) {
    std::vector<char> content = bytes(next<int64_t>());
    b = aligned_alloc(64, (content.size() + 63) & ~(size_t)63);
    b = realloc(b, content.size()); /* so that the end is where the block ends */
    if ((uintptr_t)b % 16) abort();
    memcpy(b, content.data(), content.size());
  }
  for (int32_t n = next<int32_t>(); n > 0; n--) {
    int32_t offset = next<int32_t>(), block = next<int32_t>();
    char *at = static_cast<char *>(blocks[block]) + next<int64_t>();
    memcpy(&args[offset], &at, sizeof at);
  }
  int64_t room = api->op[op].scratch ? api->op[op].scratch(args.data()) : 0;
  void *scratch = malloc(room);
  if (api->op[op].run(ctx, args.data(), scratch, 0, 0)) {
    fprintf(stderr, "op %d: %s\n", op, ctx->error);
    exit(1);
  }
  free(scratch);
  for (void *b : blocks) free(b);
  return true;
}

} // namespace

int main(int, char **words) {
  file = fopen(words[1], "rb");
  const mt_device_api *api = mt_device_api_get();
  mt_context ctx = {};
  if (!file || api->open(&ctx, 0)) return 66;
  int calls = 0;
  while (call(api, &ctx)) calls++;
  api->close(&ctx);
  printf("%d calls\n", calls);
  return 0;
}
