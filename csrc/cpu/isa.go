//go:build cgo

package cpu

// #include "isa_level.h"
import "C"

// InstructionSets are what kernels are compiled for, weakest first.
var InstructionSets = []string{"portable", "avx2", "avx512"}

// commonISA has kernels use no more than the sets that processors with AVX2 have.
func commonISA() { C.mt_isa_common() }

// LimitISA keeps kernels from using more than InstructionSets[level], for tests. It
// reports whether this machine has that set.
func LimitISA(level int) bool {
	C.mt_isa_limit(C.int(level))
	return int(C.mt_isa_level) == level
}
