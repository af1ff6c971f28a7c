//go:build cgo && amd64

package hf

/*
#cgo CFLAGS: -O3 -g0 -std=gnu11 -Wall
#include "kernel.h"
*/
import "C"

import "unsafe"

// turnTiles16 turns complete tiles: rows and columns are multiples of a cache line's elements.
func turnTiles16(dst []uint16, dstStride int64, src []uint16, srcStride, rows, columns int64) {
	C.mt_turn16((*C.uint16_t)(unsafe.SliceData(dst)), C.int64_t(dstStride), (*C.uint16_t)(unsafe.SliceData(src)), C.int64_t(srcStride), C.int64_t(rows), C.int64_t(columns))
}

// turnTiles32 is turnTiles16 for four bytes.
func turnTiles32(dst []uint32, dstStride int64, src []uint32, srcStride, rows, columns int64) {
	C.mt_turn32((*C.uint32_t)(unsafe.SliceData(dst)), C.int64_t(dstStride), (*C.uint32_t)(unsafe.SliceData(src)), C.int64_t(srcStride), C.int64_t(rows), C.int64_t(columns))
}
