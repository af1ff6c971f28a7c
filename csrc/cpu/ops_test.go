//go:build cgo

package cpu

import (
	"testing"

	"monotron/csrc/device"
	"monotron/csrc/device/devicetest"
)

func open(t *testing.T) *device.Device {
	t.Helper()
	d, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Every instruction set gives the oracle's values.
func TestValuesOfInstructionSets(t *testing.T) {
	d := open(t)
	defer limitISA(len(instructionSets) - 1)
	for level, name := range instructionSets {
		t.Run(name, func(t *testing.T) {
			if !limitISA(level) {
				t.Skipf("this machine has no %s", name)
			}
			devicetest.Values(t, d)
		})
	}
}
