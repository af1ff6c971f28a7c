//go:build cgo

package cpu

import "testing"

// bestISA is the last of instructionSets that this machine has: kernels use no less again
// when t ends.
func bestISA(t *testing.T) int {
	best := len(instructionSets) - 1
	for !limitISA(best) {
		best--
	}
	t.Cleanup(func() { limitISA(best) })
	return best
}
