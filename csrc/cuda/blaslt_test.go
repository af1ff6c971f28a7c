//go:build cgo && linux

package cuda_test

import (
	"bytes"
	"strings"
	"testing"

	"monotron/csrc/cuda/fake"
	"monotron/csrc/device"
	"monotron/csrc/device/devicetest"
)

// Claim (docs/cuda.md): where the newest cuBLASLt does not start with this driver, the one of the
// CUDA before is taken; a product that a library refuses is made by our own kernels.
func TestOlderCuBLASLt(t *testing.T) {
	emulated(t)
	newer, older := fake.CuBLASLt(t, "130000", "1", false), fake.CuBLASLt(t, "120901", "0", false)
	for named, want := range map[string]string{
		newer + ":" + older:            "cuBLASLt 12.9.1",
		"/no/such/library.so:" + older: "cuBLASLt 12.9.1",
		newer:                          "own matrix products",
		"off":                          "own matrix products",
	} {
		t.Setenv("MONOTRON_CUBLASLT", named)
		d := openCopy(t)
		if got := d.Describe(); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", named, got, want)
		}
		if strings.HasSuffix(named, older) {
			devicetest.Smallest(t, d)
		}
		d.Close()
	}
}

// Claim: a library that chooses by alignment sums otherwise from another address, and yet every
// block of memory has the bits of the first: they lie alike, whatever was taken before.
func TestProductsByAlignment(t *testing.T) {
	emulated(t)
	t.Setenv("MONOTRON_CUBLASLT", fake.CuBLASLt(t, "130000", "0", true))
	d := openCopy(t)
	defer d.Close()
	const m, n, k = 5, 8, 96
	values := make([]float32, m*k)
	for i := range values {
		values[i] = float32(device.Mix(uint64(i))>>40)/(1<<24) - 0.5
	}
	by := d.Arena.Alloc(device.Workspace, device.F32, k, n)
	d.Uniform(device.UniformArgs{Out: by.Reshape(k * n), Step: d.Arena.Zeroed(device.Workspace, device.I64, 1)})
	product := func(a device.Tensor) []byte {
		device.WriteSlice(d, a, values)
		c := d.Arena.Alloc(device.Workspace, device.F32, m, n)
		d.Matmul(device.MatmulArgs{C: c, A: a, B: by})
		raw := make([]byte, c.Bytes())
		d.Read(raw, c)
		return raw
	}
	first := product(d.Arena.Alloc(device.Workspace, device.F32, m, k))
	for size := int64(1); size < 200; size += 9 {
		d.Arena.Alloc(device.Workspace, device.F32, size) // stays
		if !bytes.Equal(product(d.Arena.Alloc(device.Workspace, device.F32, m, k)), first) {
			t.Fatalf("behind a block of %d bytes the sum is another", 4*size)
		}
	}
	moved := d.Arena.Alloc(device.Workspace, device.F32, m*k+16).Slice(0, 16, m*k).Reshape(m, k)
	if bytes.Equal(product(moved), first) {
		t.Error("64 bytes further the sum is the same: this stand-in shows nothing")
	}
	if text := d.Refused(); text != "" || d.Sync() != nil {
		t.Errorf("refused: %q, %v", text, d.Err())
	}
}

// Claim: products that the library refuses are reported with their shapes, and how often.
func TestRefusedProductsAreReported(t *testing.T) {
	emulated(t)
	t.Setenv("MONOTRON_CUBLASLT", fake.CuBLASLt(t, "130000", "0", true))
	d := openCopy(t)
	defer d.Close()
	alloc := func(t device.DType, shape ...int64) device.Tensor {
		return d.Arena.Zeroed(device.Workspace, t, shape...)
	}
	for range 3 {
		d.Matmul(device.MatmulArgs{C: alloc(device.BF16, 4, 6), A: alloc(device.BF16, 4, 7), B: alloc(device.BF16, 7, 6)})
	}
	d.Matmul(device.MatmulArgs{C: alloc(device.F32, 4, 6), A: alloc(device.F32, 4, 8), B: alloc(device.F32, 8, 6)})
	d.Matmul(device.MatmulArgs{C: alloc(device.F32, 4, 6), A: alloc(device.BF16, 7, 4), B: alloc(device.BF16, 7, 6), TransA: 1, Accumulate: 1})
	d.Matmul(device.MatmulArgs{C: alloc(device.F32, 4, 6), A: alloc(device.F32, 4, 8), B: alloc(device.F32, 8, 6), Bias: alloc(device.F32, 6)})
	want := "bf16 [4, 6] of depth 7, 3 times; bf16 [4, 6] of depth 7 added to f32, 1 times; f32 [4, 6] of depth 8 with bias, 1 times"
	if got := d.Refused(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for i := range int64(4) {
		d.Matmul(device.MatmulArgs{C: alloc(device.BF16, 4, 8+i), A: alloc(device.BF16, 4, 7), B: alloc(device.BF16, 7, 8+i)})
	}
	if got, want := d.Refused(), want+"; bf16 [4, 8] of depth 7, 1 times; others, 3 times"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if err := d.Sync(); err != nil {
		t.Error(err)
	}
}
