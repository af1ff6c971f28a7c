/* What happens to a sum of a matrix product on its way to C. */
#ifndef MT_EPILOGUE_H
#define MT_EPILOGUE_H

#include "activation.h"
#include "op.h"

/* T: the dtype of A, B, bias and aux; C has it too, or f32. */
template <typename T> __device__ inline void finish(const mt_matmul_args &a, int64_t i, int64_t j, float sum) {
  int64_t at = i * a.c.stride[0] + j;
  if (a.accumulate) {
    data_of<float>(a.c)[at] += sum;
    return;
  }
  if (given(a.bias)) sum += to_float(data_of<T>(a.bias)[j]);
  if (a.epilogue != MT_NO_EPILOGUE) {
    data_of<T>(a.aux)[i * a.aux.stride[0] + j] = from_float<T>(sum);
    if (a.epilogue == MT_GELU_TANH_EPILOGUE) sum = gelu_tanh::value(sum);
    else if (a.epilogue == MT_GELU_ERF_EPILOGUE) sum = gelu_erf::value(sum);
  }
  if (a.c.dtype == MT_F32) data_of<float>(a.c)[at] = sum;
  else data_of<T>(a.c)[at] = from_float<T>(sum);
}

#endif
