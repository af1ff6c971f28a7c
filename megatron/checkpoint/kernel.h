#ifndef MT_FORMATS_KERNEL_H
#define MT_FORMATS_KERNEL_H

#include <stdint.h>

// mt_finite is how many of the words, from the first on and in complete strides of
// mt_finite_stride, have no element whose exponent is all ones.
enum { mt_finite_stride = 64 };
int64_t mt_finite(const uint64_t *words, int64_t n, uint64_t exponents, uint64_t low, uint64_t sign);

#endif
