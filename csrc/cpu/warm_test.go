//go:build cgo

package cpu_test

import (
	"testing"
	"time"

	"monotron/csrc/device"
)

// Claim: an op can be asked how long it takes with its data in the caches, and one that adds to
// nothing leaves the same behind.
func TestWarm(t *testing.T) {
	d, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	a, c := d.Arena.Alloc(device.Activations, device.F32, 1<<16), d.Arena.Alloc(device.Activations, device.F32, 1<<16)
	d.Fill(a, 3)
	var took time.Duration
	d.Observe = func(c device.Call) { took = c.Warm() }
	d.Copy(c, a)
	d.Observe = nil
	if err := d.Sync(); err != nil {
		t.Fatal(err)
	}
	if took <= 0 {
		t.Errorf("a copy from the caches takes %s", took)
	}
	for i, x := range device.ReadSlice[float32](d, c) {
		if x != 3 {
			t.Fatalf("element %d is %g, not 3", i, x)
		}
	}
}
