//go:build cgo && amd64

#include "kernel.h"

// The inner loop has no way out, so that the compiler makes vectors of it.
int64_t mt_finite(const uint64_t *words, int64_t n, uint64_t exponents, uint64_t low, uint64_t sign) {
	int64_t at = 0;
	for (; at + mt_finite_stride <= n; at += mt_finite_stride) {
		uint64_t found = 0;
		for (int i = 0; i < mt_finite_stride; i++) found |= (words[at + i] & exponents) + low;
		if (found & sign) break;
	}
	return at;
}
