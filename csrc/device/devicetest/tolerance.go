package devicetest

import (
	"bytes"
	"fmt"
	"math"

	"monotron/csrc/device"
)

// Tol bounds |got − want| by Abs + Rel·|want|.
type Tol struct {
	Abs, Rel float64
	Zeros    bool // exact zeros are at the same indexes: masks are equal
}

var (
	exact    = Tol{}
	anything = Tol{Abs: math.Inf(1)} // not checked
)

const eps32 = 0x1p-23 // distance of 1 and the next float32

// ulp bounds the distance of neighbours at 1; at x it is at most ulp·|x|.
func ulp(d device.DType) float64 {
	return map[device.DType]float64{device.F32: eps32, device.BF16: 0x1p-7, device.F16: 0x1p-10, device.F64: 0x1p-52}[d]
}

// tol is for results of dtype d that are sums of k terms in f32 where the
// oracle sums in f64. A sum of k terms whose partial sums are as large as `scale`
// makes k roundings of random sign, about √k·eps·scale/2 together; 4 instead of
// 1/2 allows for other orders and for a few steps around the sum. Storing
// rounds both sides once: they may end one ulp apart in d (f32: 4, because its
// last operations round in d as well). Half an ulp of f16's subnormals is Abs.
func tol(d device.DType, k int64, scale float64) Tol {
	t := Tol{Abs: 4 * eps32 * math.Sqrt(float64(max(1, k))) * scale, Rel: ulp(d)}
	switch d {
	case device.F32:
		t.Rel *= 4
	case device.F16:
		t.Abs += 0x1p-24
	case device.F64:
		t.Rel = 4 * eps32
	}
	return t
}

// rounded allows for a value of size `scale` inside the op that a kernel may
// keep in dtype d.
func (t Tol) rounded(d device.DType, scale float64) Tol {
	t.Abs += ulp(d) * scale
	return t
}

// masked asks for equal zeros.
func (t Tol) masked() Tol {
	t.Zeros = true
	return t
}

// compare says where the same buffer on another device is not equal.
func (b *buffer) compare(got buffer) error {
	// Inputs: the same on both devices, and unchanged.
	if !bytes.Equal(b.before, got.before) {
		return fmt.Errorf("the case is wrong: its inputs differ between the two devices")
	}
	if !b.out {
		if !bytes.Equal(got.before, got.after) {
			return fmt.Errorf("the op changed this input")
		}
		return nil
	}
	// Outputs: each element within its tolerance.
	d := b.full.DType
	want, have := device.ToFloat64(d, b.after), device.ToFloat64(d, got.after)
	bad, worst, first := 0, 0.0, -1
	for i, w := range want {
		if b.tol.equal(have[i], w) {
			continue
		}
		bad++
		worst = math.Max(worst, math.Abs(have[i]-w))
		if first < 0 {
			first = i
		}
	}
	if bad == 0 {
		return nil
	}
	return fmt.Errorf("%s: %d of %d elements are wrong; the first, at %v, is %.9g, want %.9g (±%.2g); the largest error is %.3g",
		b.full, bad, len(want), indexOf(b.full, first), have[first], want[first], b.tol.Abs+b.tol.Rel*math.Abs(want[first]), worst)
}

func (t Tol) equal(got, want float64) bool {
	if got == want || math.IsInf(t.Abs, 1) || math.IsNaN(got) && math.IsNaN(want) {
		return true
	}
	if t.Zeros && (got == 0) != (want == 0) {
		return false
	}
	return math.Abs(got-want) <= t.Abs+t.Rel*math.Abs(want) // false for NaN and inf
}

// indexOf is the index of element i of a contiguous tensor.
func indexOf(t device.Tensor, i int) []int64 {
	at := make([]int64, t.Rank)
	for k := int(t.Rank) - 1; k >= 0; k-- {
		at[k] = int64(i) % t.Shape[k]
		i /= int(t.Shape[k])
	}
	return at
}
