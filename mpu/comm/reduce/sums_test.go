package reduce

import (
	"testing"
	"unsafe"

	"monotron/csrc/device"
	"monotron/mpu/comm"
)

// Claim: a Tree adds neighbours, then pairs of them; what aligned groups have added up so and the
// group of their sums give the same bits, which the order of the ranks does not.
func TestTree(t *testing.T) {
	values := []float32{1, 0x1p24, -0x1p24, 3, 5, 0x1p25, -0x1p25, 1}
	add := func(reduce comm.ReduceOp, values ...float32) float32 {
		var sum float32
		m := Move{To: []unsafe.Pointer{unsafe.Pointer(&sum)}, N: 1, DType: device.F32, Reduce: reduce}
		for i := range values {
			m.From = append(m.From, unsafe.Pointer(&values[i]))
		}
		m.tile(0)
		return sum
	}
	v := values
	want := ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]))
	if got := add(comm.Tree, v...); got != want {
		t.Errorf("8 ranks: %g, want %g", got, want)
	}
	if got := add(comm.Sum, v...); got == want {
		t.Error("the order of the ranks gives the same sum: the values prove nothing")
	}
	if got := add(comm.Tree, add(comm.Tree, v[:2]...), add(comm.Tree, v[2:4]...), add(comm.Tree, v[4:6]...), add(comm.Tree, v[6:]...)); got != want {
		t.Errorf("4 ranks with pairs: %g, want %g", got, want)
	}
	if got, want := add(comm.Tree, v[:6]...), ((v[0]+v[1])+(v[2]+v[3]))+(v[4]+v[5]); got != want {
		t.Errorf("6 ranks: %g, want %g", got, want)
	}
}
