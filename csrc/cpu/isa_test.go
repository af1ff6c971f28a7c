//go:build cgo

package cpu_test

import (
	"testing"

	"monotron/csrc/cpu"
	"monotron/csrc/device"
)

// No test is in package cpu itself: go test would compile all of its C a second time.

var instructionSets = cpu.InstructionSets

func Open() (*device.Device, error) { return cpu.Open() }
func limitISA(level int) bool       { return cpu.LimitISA(level) }

// bestISA is the last of instructionSets that this machine has: kernels use no less again
// when t ends.
func bestISA(t testing.TB) int {
	best := len(instructionSets) - 1
	for !limitISA(best) {
		best--
	}
	t.Cleanup(func() { limitISA(best) })
	return best
}
