/* Flash-style attention (Dao, arXiv 2307.08691): blocks of scores, never all.
 * Forward packs keys and values once a call (phase 0), then makes blocks of
 * queries (phase 1), several side by side where keys are many. Backward is a tile
 * a head; where heads share keys, their gradients are added in a second phase, in
 * the order of heads. */
#include <stddef.h>

#include "attention.h"
#include "context.h"
#include "tile.h"

static attention_call resolve(const mt_attention_forward_args *f, const mt_attention_backward_args *g) {
  attention_call c = {.f = f, .g = g, .batch = f->batch, .groups = f->q.shape[1], .per_group = f->q.shape[2]};
  c.heads = c.groups * c.per_group;
  c.sq = f->q.shape[0] / c.batch;
  c.sk = f->k.shape[0] / c.batch;
  c.ahead = f->q_offset - f->k_offset;
  c.seen = mt_min(c.sk, c.ahead + c.sq);
  c.d = f->q.shape[3];
  c.padded = mt_up(c.d, ATT_PAD);
  c.element = mt_attention_kernels(f)->element;
  return c;
}

static int64_t forward_tiles(const void *args, int32_t phase) {
  attention_call c = resolve(args, NULL);
  if (phase == 0) return c.batch * c.groups * mt_ceil(c.seen, ATT_CHUNK);
  return phase == 1 ? c.batch * c.heads * mt_ceil(att_blocks(&c), att_together(&c)) : 0;
}

static int64_t forward_scratch(const void *args) {
  attention_call c = resolve(args, NULL);
  return c.batch * c.groups * att_shared_group(&c);
}

/* The last blocks of queries see most keys: they come first. */
static int32_t forward_run(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  attention_call c = resolve(args, NULL);
  const attention_kernels *k = mt_attention_kernels(c.f);
  int64_t pairs = c.batch * c.heads, index = tile % pairs;
  attention_head h = {index / c.heads, index % c.heads / c.per_group, index % c.heads};
  char *room = mt_cpu_room(ctx, att_forward_room(&c));
  if (!room) return 1;
  if (phase == 0) {
    int64_t group = tile % (c.batch * c.groups);
    k->pack(&c, group / c.groups, group % c.groups, tile / (c.batch * c.groups), (char *)scratch + group * att_shared_group(&c));
  } else {
    int64_t last = mt_ceil(att_blocks(&c), att_together(&c)) - 1;
    k->forward(&c, h, (last - tile / pairs) * att_together(&c), (char *)scratch + (h.sample * c.groups + h.group) * att_shared_group(&c), room);
  }
  return 0;
}

const mt_op mt_cpu_attention_forward = {forward_tiles, forward_scratch, forward_run};

/* f32 dK and dV of every head, where heads share keys. */
static int64_t partial_floats(const attention_call *c) { return c->per_group > 1 ? 2 * c->sk * c->d : 0; }

static int64_t backward_tiles(const void *args, int32_t phase) {
  const mt_attention_backward_args *g = args;
  attention_call c = resolve(&g->forward, g);
  if (phase == 0) return c.batch * c.heads;
  return phase == 1 && c.per_group > 1 ? c.batch * c.groups : 0;
}

static int64_t backward_scratch(const void *args) {
  const mt_attention_backward_args *g = args;
  attention_call c = resolve(&g->forward, g);
  return c.batch * c.heads * partial_floats(&c) * 4;
}

static int32_t backward_run(mt_context *ctx, const void *args, void *scratch, int32_t phase, int64_t tile) {
  const mt_attention_backward_args *g = args;
  attention_call c = resolve(&g->forward, g);
  const attention_kernels *k = mt_attention_kernels(c.f);
  if (phase == 1) {
    k->sum(&c, tile / c.groups, tile % c.groups, scratch);
    return 0;
  }
  attention_head h = {tile / c.heads, tile % c.heads / c.per_group, tile % c.heads};
  char *room = mt_cpu_room(ctx, att_backward_room(&c));
  if (!room) return 1;
  k->backward(&c, h, c.per_group > 1 ? (float *)scratch + tile * partial_floats(&c) : NULL, room);
  return 0;
}

const mt_op mt_cpu_attention_backward = {backward_tiles, backward_scratch, backward_run};
