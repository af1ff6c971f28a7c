//go:build cgo

package cpu_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"monotron/csrc/device"
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
// sums, have the bits of one that has all; so have some rows and columns alone, and AVX2 those of AVX-512.
func TestLeavesOfProductsAddUp(t *testing.T) {
	d, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	best := bestISA(t)
	for _, s := range [][3]int64{{5, 7, 64}, {33, 70, 512}, {300, 500, 768}, {64, 1200, 2112}, {1, 40, 16384}} {
		for _, stretches := range []int32{0, 2} {
			t.Run(fmt.Sprint(s, stretches), func(t *testing.T) {
				m, n, k := s[0], s[1], s[2]
				r := rand.New(rand.NewPCG(1, uint64(k)))
				a, b, all := random(d, r, m, k), random(d, r, n, k), random(d, r, m, n)
				full := device.MatmulArgs{C: all, A: a, B: b, TransB: 1, Leaves: 8, Stretches: stretches}
				d.Matmul(full)
				want := bytesOf(d, all)

				sum := halves(d, full)
				if !bytes.Equal(bytesOf(d, sum), want) {
					t.Error("two halves of the leaves add up to other bits")
				}
				rows, columns := (m+1)/2, (n+1)/2
				part := random(d, r, rows, columns)
				cut := full
				cut.C, cut.A, cut.B = part, a.Slice(0, m-rows, rows), b.Slice(0, n-columns, columns)
				d.Matmul(cut)
				if !bytes.Equal(bytesOf(d, part), bytesOf(d, all.Slice(0, m-rows, rows).Slice(1, n-columns, columns))) {
					t.Error("some rows and columns alone have other bits")
				}
				if best >= 2 {
					limitISA(1)
					d.Matmul(full)
					limitISA(best)
					if !bytes.Equal(bytesOf(d, all), want) {
						t.Error("AVX2 has other bits than AVX-512")
					}
				}
			})
		}
	}
}

// halves is the sum of two products, of half of the leaves of each stretch.
func halves(d *device.Device, full device.MatmulArgs) device.Tensor {
	stretches, k := int64(max(1, full.Stretches)), full.A.Shape[1]
	part := k / stretches / 2
	var sums [2]device.Tensor
	for half := range int64(2) {
		cut := func(t device.Tensor) device.Tensor {
			own := d.Arena.Alloc(device.Workspace, device.F32, t.Shape[0], k/2)
			for s := range stretches {
				d.Copy(own.Slice(1, s*part, part), t.Slice(1, s*k/stretches+half*part, part))
			}
			return own
		}
		sums[half] = d.Arena.Alloc(device.Workspace, device.F32, full.C.Dims()...)
		p := full
		p.C, p.A, p.B, p.Leaves = sums[half], cut(full.A), cut(full.B), full.Leaves/2
		d.Matmul(p)
	}
	d.Add(sums[0], sums[0], sums[1])
	return sums[0]
}

// Claim (docs/invariance.md): a gradient on a grid has the same bits whatever the samples of a
// micro-batch and the order in which they come.
func TestGradientsOnGridsHaveNoOrder(t *testing.T) {
	d, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	const m, n, chunk, positions, samples = 70, 130, 16, 64, 4
	r := rand.New(rand.NewPCG(2, 3))
	dy, x := random(d, r, positions*samples, m), random(d, r, positions*samples, n) // row i·samples+j
	grid := d.Arena.Alloc(device.Workspace, device.F64, 1)
	device.WriteSlice(d, grid, []float64{0x1p-30})
	made := func(take func(add func(a, b device.Tensor, batch int32))) []byte {
		c, peak := d.Arena.Zeroed(device.Workspace, device.F64, m, n), d.Arena.Zeroed(device.Workspace, device.F32, 1)
		take(func(a, b device.Tensor, batch int32) {
			d.Matmul(device.MatmulArgs{C: c, A: a, B: b, TransA: 1, Accumulate: 1, Grid: grid, Peak: peak, Chunk: chunk, Batch: batch})
		})
		return append(bytesOf(d, c), bytesOf(d, peak)...)
	}
	want := made(func(add func(a, b device.Tensor, batch int32)) { add(dy, x, samples) })
	one := func(t device.Tensor, sample int64) device.Tensor {
		return device.Strided(t.Slice(0, sample, 1).Data, t.DType, []int64{positions, t.Shape[1]}, []int64{samples * t.Stride[0], 1})
	}
	backwards := made(func(add func(a, b device.Tensor, batch int32)) {
		for sample := int64(samples - 1); sample >= 0; sample-- {
			for half := int64(1); half >= 0; half-- {
				add(one(dy, sample).Slice(0, half*positions/2, positions/2), one(x, sample).Slice(0, half*positions/2, positions/2), 1)
			}
		}
	})
	if !bytes.Equal(backwards, want) {
		t.Error("samples one by one, backwards, add up to other bits")
	}
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
