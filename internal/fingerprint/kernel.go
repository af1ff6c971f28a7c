//go:build cgo && amd64

package fingerprint

/*
#cgo CFLAGS: -O3 -g0 -std=gnu11 -Wall
#include "kernel.h"
*/
import "C"

import "unsafe"

func add(s *Sum, data []byte, size int, at uint32, keys [2]uint32) {
	sum, x := (*C.uint64_t)(&s[0]), unsafe.Pointer(unsafe.SliceData(data))
	n, from, key0, key1 := C.int64_t(len(data)/size), C.uint32_t(at), C.uint32_t(keys[0]), C.uint32_t(keys[1])
	switch size {
	case 1:
		C.mt_fingerprint8(sum, (*C.uint8_t)(x), n, from, key0, key1)
	case 2:
		C.mt_fingerprint16(sum, (*C.uint16_t)(x), n, from, key0, key1)
	default:
		C.mt_fingerprint32(sum, (*C.uint32_t)(x), n, from, key0, key1)
	}
}
