//go:build cgo

package cpu

// #include "isa_level.h"
import "C"

// instructionSets are what kernels are compiled for, weakest first.
var instructionSets = []string{"portable", "avx2", "avx512"}

// limitISA keeps kernels from using more than instructionSets[level]. It
// tells whether this machine has that set.
func limitISA(level int) bool {
	C.mt_isa_limit(C.int(level))
	return int(C.mt_isa_level) == level
}
