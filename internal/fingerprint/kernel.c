//go:build cgo && amd64

// The sums of fingerprint.go, which says what they are.

#include "kernel.h"

static inline uint32_t factor(uint32_t at, uint32_t key) {
	uint32_t h = at * 0x9e3779b1u + key;
	h = (h ^ h >> 16) * 0x85ebca6bu;
	h = (h ^ h >> 13) * 0xc2b2ae35u;
	return h | 1;
}

// bits * f + f instead of (bits + 1) * f: both factors of the product have 32 bits.
#define SUM(NAME, TYPE) \
	__attribute__((target_clones("avx2", "default"))) void NAME(uint64_t *sum, const TYPE *x, int64_t n, uint32_t at, uint32_t key0, uint32_t key1) { \
		uint64_t a = 0, b = 0; \
		for (int64_t i = 0; i < n; i++) { \
			uint32_t bits = x[i], f = factor(at + (uint32_t)i, key0), g = factor(at + (uint32_t)i, key1); \
			a += (uint64_t)bits * f + f; \
			b += (uint64_t)bits * g + g; \
		} \
		sum[0] += a; \
		sum[1] += b; \
	}

SUM(mt_fingerprint8, uint8_t)
SUM(mt_fingerprint16, uint16_t)
SUM(mt_fingerprint32, uint32_t)
