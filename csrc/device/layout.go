//go:build cgo

package device

/*
#include "device.h"
static int64_t mt_size(int op) {
  static const int64_t sizes[] = {
  sizeof(mt_matmul_args), sizeof(mt_norm_forward_args), sizeof(mt_norm_backward_args), sizeof(mt_activation_forward_args),
  sizeof(mt_activation_backward_args), sizeof(mt_rope_args), sizeof(mt_attention_forward_args), sizeof(mt_attention_backward_args),
  sizeof(mt_embedding_forward_args), sizeof(mt_embedding_backward_args), sizeof(mt_cross_entropy_stats_args),
  sizeof(mt_cross_entropy_loss_args), sizeof(mt_cross_entropy_grad_args), sizeof(mt_dropout_add_args), sizeof(mt_dropout_backward_args),
  sizeof(mt_column_sum_args), sizeof(mt_add_args), sizeof(mt_copy_args), sizeof(mt_fill_args), sizeof(mt_uniform_args),
  sizeof(mt_grad_stats_args), sizeof(mt_weighted_sum_args), sizeof(mt_grad_scale_args), sizeof(mt_adamw_args), sizeof(mt_sgd_args),
  };
  return sizes[op];
}
*/
import "C"

// cSize is the size of op's argument struct as C sees it.
func cSize(op Op) int64 { return int64(C.mt_size(C.int(op))) }
