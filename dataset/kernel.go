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

var shuffleInC, blendInC, shortInC = C.mt_shuffle_usable() != 0, C.mt_blend_usable() != 0, C.mt_short_usable() != 0

// shortKernel writes ids as u16 to to and returns their bits, or-ed.
func shortKernel(to []byte, ids []int32) uint32 {
	return uint32(C.mt_short((*C.uint16_t)(unsafe.Pointer(unsafe.SliceData(to))), (*C.int32_t)(unsafe.SliceData(ids)), C.int64_t(len(ids))))
}

// shuffleKernel shuffles a, fewer than 2^32 items.
func shuffleKernel(m *mersenne, a []uint32) {
	C.mt_shuffle((*C.mt_mersenne)(unsafe.Pointer(m)), (*C.uint32_t)(unsafe.SliceData(a)), C.int64_t(len(a)))
}

// blendKernel fills the arrays of a blend from step t on, in runs of equal length:
// before each, counts samples of each member were taken. It gives the counts after
// each; nil where this is not for kernel.c.
func blendKernel(shares []float64, left []int64, counts [][]int64, t int64, member []int16, number []int64) [][]int64 {
	n, runs := (len(shares)+63)&^63, len(counts)
	if !blendInC || n > C.mt_blend_members || len(member) == 0 {
		return nil
	}
	padded, taken, rest := make([]float64, n), make([]float64, n*runs), make([]int64, n*runs)
	copy(padded, shares)
	for k := range taken {
		taken[k] = math.Inf(1)
		if i := k % n; i < len(shares) && left[i] > counts[k/n][i] {
			taken[k], rest[k] = float64(counts[k/n][i]), left[i]-counts[k/n][i]
		}
	}
	C.mt_blend((*C.double)(unsafe.SliceData(padded)), (*C.double)(unsafe.SliceData(taken)), (*C.int64_t)(unsafe.SliceData(rest)), C.int64_t(n),
		C.int64_t(t), C.int64_t(len(member)/runs), C.int(runs), (*C.int16_t)(unsafe.SliceData(member)), (*C.int64_t)(unsafe.SliceData(number)))
	after := make([][]int64, runs)
	for r := range after {
		after[r] = slices.Clone(counts[r])
		for i := range shares {
			if left[i] > counts[r][i] {
				after[r][i] = left[i] - rest[r*n+i]
			}
		}
	}
	return after
}
