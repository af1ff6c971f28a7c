//go:build cgo

package cpu_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"monotron/csrc/device"
)

// Claim: a product of few rows with a large matrix, which no tile needs packed, is
// computed all the same. C begins as NaN; elements are compared with sums in f64.
func TestProductsOfFewRows(t *testing.T) {
	d, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	const k = 768
	for _, dtype := range []device.DType{device.BF16, device.F16, device.F32} {
		for _, m := range []int64{33, 64, 128} {
			for _, n := range []int64{768, 2304} {
				s := d.Arena.Scope(device.Activations)
				a, b, c := s.Alloc(dtype, m, k), s.Alloc(dtype, n, k), s.Alloc(device.F32, m, n)
				x, w := values(d, a), values(d, b)
				nan := make([]float64, m*n)
				for i := range nan {
					nan[i] = math.NaN()
				}
				d.Write(c, device.FromFloat64(device.F32, nan))
				d.Matmul(device.MatmulArgs{C: c, A: a, B: b, TransB: 1})
				got := device.ReadSlice[float32](d, c)
				for i := range m * n {
					if i%97 != 0 {
						continue
					}
					want := 0.0
					for p := range int64(k) {
						want += x[i/n*k+p] * w[i%n*k+p]
					}
					if !(math.Abs(float64(got[i])-want) <= 1e-3) { // 768 products of up to 1/4, each within 2^-24
						t.Fatalf("%v %d x %d x %d: element %d is %g, want %g", dtype, m, n, k, i, got[i], want)
					}
				}
				s.Release()
			}
		}
	}
}

// values fills t with numbers between -1/2 and 1/2 and returns them as t holds them.
func values(d *device.Device, t device.Tensor) []float64 {
	r := rand.New(rand.NewPCG(1, uint64(t.Len())))
	v := make([]float64, t.Len())
	for i := range v {
		v[i] = r.Float64() - 0.5
	}
	raw := device.FromFloat64(t.DType, v)
	d.Write(t, raw)
	return device.ToFloat64(t.DType, raw)
}
