/* What the attention files share: a call resolved into sizes, how it is cut, and
 * the kernels of an instruction set.
 *
 * Everything is computed transposed, with queries along the vector lanes:
 * Sᵀ = K·Qᵀ, Oᵀ += Vᵀ·Pᵀ. So a softmax is made lane by lane, a dropout mask
 * comes out in place (the four words of a Philox call are four keys), and P and
 * dS are made in the form in which the next product reads them. */
#ifndef MT_ATTENTION_H
#define MT_ATTENTION_H

#include "cpu.h"
#include "functions.h"
#include "tile.h"

enum {
  ATT_PAD = 32,      /* sizes of blocks and of d are multiples: no kernel has edges */
  ATT_QUERIES = 64,  /* of a forward block */
  ATT_KEYS = 128,    /* of a forward block */
  ATT_TOGETHER = 8,  /* blocks of queries that a forward tile has at most */
  ATT_NEAR = 512 << 10, /* bytes of a head's keys and values that a core's cache keeps from one block of queries to the next */
  ATT_BQUERIES = 128, ATT_BKEYS = 64, /* of a backward block */
  ATT_STRETCH = 1024, /* queries that backward takes at a time: with what they need they stay in a core's cache */
  ATT_CHUNK = 512,   /* keys packed by a tile of forward's first phase */
  ATT_AHEAD = 16     /* rows fetched before they are needed */
};

typedef struct {
  const mt_attention_forward_args *f;
  const mt_attention_backward_args *g;  /* NULL in forward */
  int64_t batch, groups, per_group, heads;
  int64_t sq, sk, seen;                 /* queries; keys; keys that some query sees */
  int64_t ahead;                        /* keys before the first query's own */
  int64_t d, padded;                    /* channels; the same as a multiple of ATT_PAD */
  int64_t element;                      /* bytes of a packed value */
} attention_call;

/* The heads of one tile. */
typedef struct { int64_t sample, group, head; } attention_head; /* head: of all */

typedef struct {
  int64_t element;
  void (*pack)(const attention_call *c, int64_t sample, int64_t group, int64_t chunk, char *shared);
  void (*forward)(const attention_call *c, attention_head h, int64_t block, const char *shared, char *room);
  /* partial: f32 dK and dV [sk, d] of this head, where heads share them */
  void (*backward)(const attention_call *c, attention_head h, float *partial, char *room);
  void (*sum)(const attention_call *c, int64_t sample, int64_t group, float *partial);
} attention_kernels;

const attention_kernels *mt_attention_amx(void);    /* bf16; NULL where it cannot be compiled */
const attention_kernels *mt_attention_bf16(void);   /* bf16 by AVX512_BF16; NULL where there is none */
const attention_kernels *mt_attention_paired(void); /* bf16 by any set, with the bits of mt_attention_amx */

/* Those of a call: of the best set also with --layout-invariant. */
const attention_kernels *mt_attention_kernels(const mt_attention_forward_args *f);

/* The sum of x·y over a row, in the order of vectors as wide as those of mt_isa_level. */
float mt_attention_dot(const float *x, const float *y, int64_t n);

/* First element of row i of a head in a tensor [s·b, groups, heads, d]; rows lie
 * att_step elements apart. */
static inline char *att_row(const attention_call *c, const mt_tensor *t, attention_head h, int64_t i) {
  int64_t in_group = t->shape[2] == 1 ? 0 : h.head - h.group * c->per_group;
  int64_t at = (i * c->batch + h.sample) * t->stride[0] + h.group * t->stride[1] + in_group * t->stride[2];
  return (char *)t->data + at * (t->dtype == MT_F32 ? 4 : 2);
}

static inline int64_t att_step(const attention_call *c, const mt_tensor *t) { return c->batch * t->stride[0]; }

static inline float *att_lse(const attention_call *c, attention_head h) {
  const mt_tensor *t = &c->f->lse;
  return (float *)t->data + h.sample * t->stride[0] + h.head * t->stride[1];
}

/* Shared memory of forward: all keys as rows [seen, padded], then all values
 * transposed in blocks of ATT_KEYS, [blocks, padded, ATT_KEYS], of each group. */
static inline int64_t att_shared_group(const attention_call *c) { return 2 * mt_up(c->seen, ATT_KEYS) * c->padded * c->element; }

/* Blocks of queries, and how many of them are a forward tile. */
static inline int64_t att_blocks(const attention_call *c) { return mt_ceil(c->sq, ATT_QUERIES); }

static inline int64_t att_together(const attention_call *c) { return att_shared_group(c) > ATT_NEAR ? ATT_TOGETHER : 1; }

/* Space of a tile, in the order in which the tiles lay it out. */
static inline int64_t att_common_room(const attention_call *c) { return ATT_QUERIES * (ATT_KEYS * (4 + c->element) + c->padded * 4); }

static inline int64_t att_own_room(const attention_call *c) { return ATT_QUERIES * (c->padded * (c->element + 4) + 20); }

static inline int64_t att_forward_room(const attention_call *c) { return att_common_room(c) + att_together(c) * att_own_room(c); }

static inline int64_t att_stretch(const attention_call *c) { return c->sq < ATT_STRETCH ? mt_up(c->sq, ATT_BQUERIES) : ATT_STRETCH; }

static inline int64_t att_backward_room(const attention_call *c) {
  return att_stretch(c) * (c->padded * (4 * c->element + 4) + 16) + mt_up(c->sk, ATT_BKEYS) * c->padded * 8 + ATT_BKEYS * c->padded * 3 * c->element +
         ATT_BKEYS * ATT_BQUERIES * (8 + 3 * c->element) + ATT_BQUERIES * c->padded * 4;
}

#endif
