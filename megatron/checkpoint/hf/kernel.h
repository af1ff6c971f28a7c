#ifndef MT_HF_KERNEL_H
#define MT_HF_KERNEL_H

#include <stdint.h>

// dst[j*dst_stride+i] = src[i*src_stride+j] for i < rows and j < columns, which are
// multiples of the elements of a cache line; strides count elements.
void mt_turn16(uint16_t *dst, int64_t dst_stride, const uint16_t *src, int64_t src_stride, int64_t rows, int64_t columns);
void mt_turn32(uint32_t *dst, int64_t dst_stride, const uint32_t *src, int64_t src_stride, int64_t rows, int64_t columns);

#endif
