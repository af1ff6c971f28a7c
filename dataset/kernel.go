//go:build cgo && amd64

package dataset

/*
#cgo CFLAGS: -O3 -g0 -std=gnu11 -Wall
#cgo LDFLAGS: -lm
#include "kernel.h"
*/
import "C"

import (
	"math"
	"slices"
	"unsafe"
)

var shuffleInC, blendInC = C.mt_shuffle_usable() != 0, C.mt_blend_usable() != 0

// shuffleKernel shuffles a, fewer than 2^32 items.
func shuffleKernel(m *mersenne, a []uint32) {
	C.mt_shuffle((*C.mt_mersenne)(unsafe.Pointer(m)), (*C.uint32_t)(unsafe.SliceData(a)), C.int64_t(len(a)))
}

// blendKernel fills the arrays of a blend from step t on, before which counts
// samples of each member were taken, and gives the counts after it; false where
// this is not for kernel.c.
func blendKernel(shares []float64, left, counts []int64, t int64, member []int16, number []int64) ([]int64, bool) {
	n := (len(shares) + 7) &^ 7
	if !blendInC || n > C.mt_blend_members || len(member) == 0 {
		return nil, false
	}
	padded, taken, rest := make([]float64, n), make([]float64, n), make([]int64, n)
	copy(padded, shares)
	for i := range taken {
		taken[i] = math.Inf(1)
		if i < len(shares) && left[i] > counts[i] {
			taken[i], rest[i] = float64(counts[i]), left[i]-counts[i]
		}
	}
	C.mt_blend((*C.double)(unsafe.SliceData(padded)), (*C.double)(unsafe.SliceData(taken)), (*C.int64_t)(unsafe.SliceData(rest)), C.int64_t(n),
		C.int64_t(t), C.int64_t(len(member)), (*C.int16_t)(unsafe.SliceData(member)), (*C.int64_t)(unsafe.SliceData(number)))
	after := slices.Clone(counts)
	for i := range after {
		if left[i] > counts[i] {
			after[i] = left[i] - rest[i]
		}
	}
	return after, true
}
