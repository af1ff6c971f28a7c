//go:build cgo

package cpu_test

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"monotron/csrc/device"
	"monotron/csrc/device/devicetest"
)

// random is a tensor of the device with normal values.
func random(d *device.Device, r *rand.Rand, shape ...int64) device.Tensor {
	t := d.Arena.Alloc(device.Workspace, device.F32, shape...)
	values := make([]float32, t.Len())
	for i := range values {
		values[i] = float32(r.NormFloat64())
	}
	device.WriteSlice(d, t, values)
	return t
}

func bytesOf(d *device.Device, t device.Tensor) []byte {
	packed := d.Arena.Alloc(device.Workspace, t.DType, t.Dims()...)
	d.Copy(packed, t)
	raw := make([]byte, packed.Bytes())
	d.Read(raw, packed)
	return raw
}

// Claim (docs/invariance.md): ranks that have half of the leaves of a product each, and add their
// sums, have the bits of one that has all; so have some rows and columns alone.
func TestLeavesOfProductsAddUp(t *testing.T) {
	d := opened(t)
	defer d.Close()
	devicetest.LeavesAddUp(t, d)
}

// Claim (docs/invariance.md): a product by leaves has the same bits with AVX2 as with AVX-512.
func TestLeavesOfProductsByAVX2(t *testing.T) {
	d, best := opened(t), bestISA(t)
	defer d.Close()
	if best < 2 {
		t.Skip("this processor has no AVX-512")
	}
	for _, s := range [][3]int64{{5, 7, 64}, {33, 70, 512}, {300, 500, 768}, {64, 1200, 2112}, {1, 40, 16384}} {
		for _, stretches := range []int32{0, 2} {
			m, n, k := s[0], s[1], s[2]
			r := rand.New(rand.NewPCG(1, uint64(k)))
			a := device.MatmulArgs{C: random(d, r, m, n), A: random(d, r, m, k), B: random(d, r, n, k), TransB: 1, Leaves: 8, Stretches: stretches}
			d.Matmul(a)
			want := bytesOf(d, a.C)
			limitISA(1)
			d.Matmul(a)
			limitISA(best)
			if !bytes.Equal(bytesOf(d, a.C), want) {
				t.Errorf("%v in %d stretches: AVX2 has other bits than AVX-512", s, stretches)
			}
		}
	}
}

// Claim (docs/invariance.md): a gradient on a grid has the same bits whatever the samples of a
// micro-batch and the order in which they come.
func TestGradientsOnGridsHaveNoOrder(t *testing.T) {
	d := opened(t)
	defer d.Close()
	devicetest.GridsHaveNoOrder(t, d)
}

// Claim (docs/invariance.md): gradients of experts do not depend on which leaves come together.
func TestGroupsHaveNoOrder(t *testing.T) {
	d := opened(t)
	defer d.Close()
	devicetest.GroupsHaveNoOrder(t, d)
}

// Claim (docs/invariance.md): the probabilities of routers are added without rounding.
func TestBalancesAddUp(t *testing.T) {
	d := opened(t)
	defer d.Close()
	devicetest.BalancesAddUp(t, d)
}

// Claim (docs/invariance.md): with --layout-invariant rows, and heads of samples, do not depend on what else
// a call has, and not on how they lie in memory.
func TestAnyLayout(t *testing.T) {
	d, _ := common(t)
	devicetest.AnyLayout(t, d)
}

// Claim: a run with --layout-invariant says that its products are made by leaves and not by the matrix library.
func TestInvariantProductsAreDescribed(t *testing.T) {
	d, best := common(t)
	if text := d.Describe(); !strings.Contains(text, "by leaves") || strings.Contains(text, "oneDNN") {
		t.Errorf("with --layout-invariant the device is described as %q", text)
	}
	limitISA(best)
	if text := d.Describe(); strings.Contains(text, "by leaves") {
		t.Errorf("without it the device is described as %q", text)
	}
}
