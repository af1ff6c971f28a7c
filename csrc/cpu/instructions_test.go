//go:build cgo

package cpu_test

import (
	"testing"

	"monotron/csrc/device"
)

// Claim (instructions.c): every instruction set has multiply-adds whose operations are
// counted, dtypes without own ones get those of f32, and measurements end.
func TestInstructions(t *testing.T) {
	d, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Arena.Close()
	best := bestISA(t)
	for level := range best + 1 {
		limitISA(level)
		f32 := d.Instructions(device.F32)
		if f32 == nil || !(f32.Alone() > 0) || !(f32.Together() > 0) {
			t.Fatalf("%s: f32 has %+v", instructionSets[level], f32)
		}
		for _, dtype := range []device.DType{device.BF16, device.F16} {
			i := d.Instructions(dtype)
			if i == nil || !(i.Alone() > 0) {
				t.Errorf("%s: %s has %+v", instructionSets[level], dtype, i)
			} else if (dtype == device.F16 || level < best) && i.Name != f32.Name {
				t.Errorf("%s: %s is said to have %s", instructionSets[level], dtype, i.Name)
			}
		}
	}
}
