/* Attention by cuDNN, opened at run time when it is asked for: nothing of it is needed to
 * build or to start. MONOTRON_CUDNN=off goes without, MONOTRON_CUDNN=PATH takes another
 * library. Calls that were announced and only those are computed by it. */
#ifndef MT_CUDNN_H
#define MT_CUDNN_H

#include "op.h"

struct mt_cudnn;

void mt_cudnn_close(mt_cudnn *c);

/* See device.h, fuse_attention. */
int32_t mt_cudnn_fuse_attention(mt_context *ctx, const mt_attention_backward_args *like, int64_t *workspace);

/* Enqueues a, or says in ctx->error why not; false: a was not announced, the caller computes it. */
bool mt_cudnn_attention_forward(mt_context *ctx, const mt_attention_forward_args &a);
bool mt_cudnn_attention_backward(mt_context *ctx, const mt_attention_backward_args &a);

#endif
