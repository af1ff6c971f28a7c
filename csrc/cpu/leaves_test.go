//go:build cgo

package cpu_test

import (
	"bytes"
	"fmt"
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

// Claim (gemm_packed.c): a product by leaves that goes through in parts of leaves has the bits of one that does not, as of few of
// its rows and columns.
func TestPartsOfLeaves(t *testing.T) {
	d := opened(t)
	defer d.Close()
	for _, k := range []int64{40960, 43200} { // leaves of blocks of one depth, and of several
		const m, n, rows, columns = 250, 260, 20, 30
		r := rand.New(rand.NewPCG(3, uint64(k)))
		all := device.MatmulArgs{C: random(d, r, m, n), A: random(d, r, m, k), B: random(d, r, k, n)}
		few := device.MatmulArgs{C: random(d, r, rows, columns), A: all.A.Slice(0, m-rows, rows), B: all.B.Slice(1, n-columns, columns)}
		for _, leaves := range []int32{1, 2, 8} {
			all.Leaves, few.Leaves = leaves, leaves
			d.Matmul(all)
			d.Matmul(few)
			if !bytes.Equal(bytesOf(d, few.C), bytesOf(d, all.C.Slice(0, m-rows, rows).Slice(1, n-columns, columns))) {
				t.Errorf("k = %d in %d leaves: the last rows and columns alone have other bits", k, leaves)
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

// Claim (op_sums.go): the sums of a leaf do not depend on the others.
func TestSumsOfLeaves(t *testing.T) {
	d, _ := common(t)
	devicetest.SumsOfLeaves(t, d)
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

// benchProduct is a product of GPT-2 124M with 4 x 512 tokens.
type benchProduct struct {
	name    string
	m, n, k int64
	leaves  int32 // 0: a gradient, on a grid
	dtype   device.DType
}

// args are the product's: as training with --layout-invariant asks for it, or without.
func (p benchProduct) args(d *device.Device, invariant bool) device.MatmulArgs {
	r := rand.New(rand.NewPCG(1, 2))
	operand := func(shape ...int64) device.Tensor {
		t := d.Arena.Alloc(device.Workspace, p.dtype, shape...)
		d.Copy(t, random(d, r, shape...))
		return t
	}
	if p.leaves > 0 {
		a := device.MatmulArgs{A: operand(p.m, p.k), B: operand(p.n, p.k), TransB: 1, C: operand(p.m, p.n)}
		if invariant {
			a.Leaves = p.leaves
		}
		return a
	}
	a := device.MatmulArgs{A: operand(p.k, p.m), B: operand(p.k, p.n), TransA: 1, Accumulate: 1, C: random(d, r, p.m, p.n)}
	if !invariant {
		return a
	}
	a.Chunk, a.Batch = 64, 4
	a.C, a.Grid, a.Peak = d.Arena.Alloc(device.Workspace, device.F64, p.m, p.n), d.Arena.Alloc(device.Workspace, device.F64, 1), d.Arena.Alloc(device.Workspace, device.F32, 1)
	d.Fill(a.C, 0)
	device.WriteSlice(d, a.Grid, []float64{0x1p-30})
	return a
}

// BenchmarkProductsByLeaves times products as training with --layout-invariant asks for them, and without.
func BenchmarkProductsByLeaves(b *testing.B) {
	const tokens, hidden, ffn, vocab = 2048, 768, 3072, 50304
	for _, p := range []benchProduct{
		{name: "fc1", m: tokens, n: ffn, k: hidden, leaves: 1}, {name: "projection", m: tokens, n: hidden, k: hidden, leaves: 8},
		{name: "fc2", m: tokens, n: hidden, k: ffn, leaves: 8}, {name: "fc1 gradient", m: ffn, n: hidden, k: tokens},
		{name: "fc2 gradient", m: hidden, n: ffn, k: tokens}, {name: "part of the head's gradient", m: vocab / 8, n: hidden, k: tokens},
	} {
		for _, dtype := range []device.DType{device.F32, device.BF16} {
			p.dtype = dtype
			b.Run(fmt.Sprintf("%s/%s/default", p.name, dtype), func(b *testing.B) {
				d := opened(b)
				defer d.Close()
				p.run(b, d, p.args(d, false))
			})
			b.Run(fmt.Sprintf("%s/%s/invariant", p.name, dtype), func(b *testing.B) {
				d, _ := common(b)
				p.run(b, d, p.args(d, true))
			})
		}
	}
}

func (p benchProduct) run(b *testing.B, d *device.Device, a device.MatmulArgs) {
	d.Matmul(a) // pages and caches
	for b.Loop() {
		d.Matmul(a)
	}
	b.ReportMetric(2*float64(p.m*p.n*p.k)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
}
