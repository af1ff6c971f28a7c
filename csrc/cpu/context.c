#include "context.h"

#include <stdio.h>
#include <stdlib.h>

mt_cpu_state *mt_cpu_state_of(mt_context *ctx) {
  if (!ctx->stream) ctx->stream = calloc(1, sizeof(mt_cpu_state));
  return ctx->stream;
}

char *mt_cpu_room(mt_context *ctx, int64_t bytes) {
  if (bytes <= ctx->workspace_bytes) return ctx->workspace;
  mt_cpu_state *s = mt_cpu_state_of(ctx);
  if (s && bytes > s->room_bytes) {
    free(s->room);
    s->room = aligned_alloc(64, (size_t)(bytes + 63) / 64 * 64);
    s->room_bytes = s->room ? bytes : 0;
  }
  if (s && s->room) return s->room;
  snprintf(ctx->error, sizeof ctx->error, "%lld bytes of memory, which one tile needs, cannot be allocated", (long long)bytes);
  return NULL;
}
