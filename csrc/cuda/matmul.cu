/* The matrix product: by cuBLASLt where it is found and can, else by our kernels, whose sums
 * have one order whatever the number of rows. */
#include "blaslt.h"
#include "gemm.h"

static void matmul(mt_context *ctx, const mt_matmul_args &a, void *) {
  if (mt_cuda_leaves(ctx, a.leaves > 0 || given(a.grid), "matmul")) return;
  if (length(a.c) == 0 || (!a.by_row && mt_blaslt_matmul(ctx, a))) return;
  if (a.a.dtype == MT_F32) mt_gemm_f32(stream_of(ctx), a);
  else mt_gemm_half(stream_of(ctx), a);
}

MT_KNOWN(epilogue, MT_BIT(MT_NO_EPILOGUE) | MT_BIT(MT_GELU_TANH_EPILOGUE) | MT_BIT(MT_GELU_ERF_EPILOGUE)) /* epilogue.h */
MT_OP(matmul, nullptr)
