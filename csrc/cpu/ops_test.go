//go:build cgo

package cpu_test

import (
	"testing"

	"monotron/csrc/device/devicetest"
)

// The instruction sets below this machine's best, which TestValues runs, give
// the oracle's values too.
func TestValuesOfWeakerInstructionSets(t *testing.T) {
	d, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	best := bestISA(t)
	for level, name := range instructionSets[:best] {
		t.Run(name, func(t *testing.T) {
			limitISA(level)
			devicetest.Values(t, d)
		})
	}
}
