#pragma once
#include <stdint.h>

// Each adds n elements, of the tensor those from index at on, to both sums.
void mt_fingerprint8(uint64_t *sum, const uint8_t *x, int64_t n, uint32_t at, uint32_t key0, uint32_t key1);
void mt_fingerprint16(uint64_t *sum, const uint16_t *x, int64_t n, uint32_t at, uint32_t key0, uint32_t key1);
void mt_fingerprint32(uint64_t *sum, const uint32_t *x, int64_t n, uint32_t at, uint32_t key0, uint32_t key1);
