//go:build cgo && amd64

package checkpoint

/*
#cgo CFLAGS: -O3 -g0 -std=gnu11 -Wall
#include "kernel.h"
*/
import "C"

import "unsafe"

// finiteBytes is how many bytes, from the first on, surely hold no element whose
// exponent is all ones.
func finiteBytes(raw []byte, e exponent) int {
	if len(raw) < 8*C.mt_finite_stride {
		return 0
	}
	words := (*C.uint64_t)(unsafe.Pointer(unsafe.SliceData(raw)))
	return 8 * int(C.mt_finite(words, C.int64_t(len(raw)/8), C.uint64_t(e.word), C.uint64_t(e.low), C.uint64_t(e.sign)))
}
