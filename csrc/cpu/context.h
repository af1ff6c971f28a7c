/* What a context owns in addition to its workspace. */
#ifndef MT_CONTEXT_H
#define MT_CONTEXT_H

#include "cpu.h"

typedef struct {
  void *onednn; /* primitives made for this context */
  char *room;
  int64_t room_bytes;
} mt_cpu_state;

/* The state of a context, made at first use; NULL without memory. */
mt_cpu_state *mt_cpu_state_of(mt_context *ctx);

/* `bytes` for one tile: the workspace, or memory that the context keeps for the
 * rare call that needs more. NULL, and the context's error, without memory. */
char *mt_cpu_room(mt_context *ctx, int64_t bytes);

#endif
