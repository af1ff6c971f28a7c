//go:build cgo && amd64

package jsonl

/*
#cgo CFLAGS: -O3 -g0 -std=gnu11 -Wall
#include "kernel.h"
*/
import "C"

import "unsafe"

var kernelUsable = C.mt_json_usable() != 0

// copyText copies the string that begins at src to dst, which has space for 32 bytes
// more than src holds, without its escapes: up to its closing quote, or to what is
// wrong with it. It says how much it read and wrote.
func copyText(dst, src []byte) (read, made int) {
	var n C.int64_t
	at := C.mt_json_text((*C.uint8_t)(unsafe.SliceData(src)), C.int64_t(len(src)), (*C.uint8_t)(unsafe.SliceData(dst)), &n)
	return int(at), int(n)
}
