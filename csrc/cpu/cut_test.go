//go:build cgo

package cpu_test

import (
	"testing"

	"monotron/csrc/device"
)

// Claim (matmul.c): every shape is cut in finitely many tries. The sizes step
// through all effects of rounding to full units.
func TestMatmulCutsEveryShape(t *testing.T) {
	d, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Arena.Close()
	const k = 1024
	for _, m := range []int64{8, 32, 100, 193, 500} {
		for n := int64(160); n < 2600; n += 95 {
			s := d.Arena.Scope(device.Workspace)
			a, b := s.Alloc(device.F32, m, k), s.Alloc(device.F32, k, n)
			d.Fill(a, 1)
			d.Fill(b, 1)
			c := s.Alloc(device.F32, m, n)
			d.Matmul(device.MatmulArgs{C: c, A: a, B: b})
			got := device.ReadSlice[float32](d, c)
			if got[0] != k || got[m*n-1] != k {
				t.Errorf("%dx%dx%d: corners %g, %g", m, n, k, got[0], got[m*n-1])
			}
			s.Release()
		}
	}
}
