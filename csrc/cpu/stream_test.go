//go:build cgo

package cpu_test

import (
	"bytes"
	"testing"

	"monotron/csrc/device"
)

// Claim (matmul.c): results large enough to be written around the
// caches have the bits of the same rows in a call that is not.
func TestWrittenAroundTheCaches(t *testing.T) {
	d, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Arena.Close()
	s := d.Arena.Scope(device.Workspace)
	filled := func(dtype device.DType, salt int64, shape ...int64) device.Tensor {
		x := s.Alloc(dtype, shape...)
		values := make([]float64, x.Len())
		for i := range values {
			values[i] = element(int64(i), salt, 8) // sums so small that no gelu is subnormal, which bf16's conversions may flush
		}
		device.WriteSlice(d, x, device.FromFloat64(dtype, values))
		return x
	}
	same := func(what string, all, few device.Tensor) {
		t.Helper()
		got := device.ReadSlice[uint16](d, all)[:few.Len()]
		if !bytes.Equal(device.AsBytes(got), device.AsBytes(device.ReadSlice[uint16](d, few))) {
			t.Errorf("%s: bits differ", what)
		}
	}
	for _, epilogue := range []device.Epilogue{device.GeluTanhEpilogue, device.GeluErfEpilogue} {
		const n, k, many, some = 1024, 96, 2080, 1000 // aux of 4 MiB, and of 2
		a, b, bias := filled(device.BF16, 1, many, k), filled(device.BF16, 2, n, k), filled(device.BF16, 3, n)
		multiply := func(rows int64) (c, aux device.Tensor) {
			left := a
			left.Shape[0] = rows
			c, aux = s.Alloc(device.BF16, rows, n), s.Alloc(device.BF16, rows, n)
			d.Matmul(device.MatmulArgs{C: c, Aux: aux, A: left, B: b, Bias: bias, TransB: 1, Epilogue: epilogue})
			return c, aux
		}
		c, aux := multiply(many)
		fewC, fewAux := multiply(some)
		same("C with an epilogue", c, fewC)
		same("its aux", aux, fewAux)
		s.Release()
	}
	if err := d.Sync(); err != nil {
		t.Fatal(err)
	}
}
