package ref

import (
	"unsafe"

	"monotron/csrc/device"
)

// load widens len(dst) adjacent elements of t, from element offset at on.
func load(dst []float64, t device.Tensor, at int64) {
	if len(dst) > 0 {
		device.LoadFloat64(dst, t.DType, unsafe.Add(t.Data, at*t.DType.Size()))
	}
}

// store rounds src to adjacent elements of t, from element offset at on.
func store(t device.Tensor, at int64, src []float64) {
	if len(src) > 0 {
		device.StoreFloat64(unsafe.Add(t.Data, at*t.DType.Size()), t.DType, src)
	}
}

// rowAt is the element offset of vector r along the last dimension.
func rowAt(t device.Tensor, r int64) int64 {
	at := int64(0)
	for i := int(t.Rank) - 2; i >= 0; i-- {
		at += r % t.Shape[i] * t.Stride[i]
		r /= t.Shape[i]
	}
	return at
}

func loadRow(dst []float64, t device.Tensor, r int64)  { load(dst, t, rowAt(t, r)) }
func storeRow(t device.Tensor, r int64, src []float64) { store(t, rowAt(t, r), src) }

// vector is a complete contiguous tensor; nil when it is not given.
func vector(t device.Tensor) []float64 {
	if !t.Given() {
		return nil
	}
	v := make([]float64, t.Len())
	load(v, t, 0)
	return v
}

// one is element i of a contiguous tensor.
func one(t device.Tensor, i int64) float64 {
	var v [1]float64
	load(v[:], t, i)
	return v[0]
}

func setOne(t device.Tensor, i int64, x float64) {
	v := [1]float64{x}
	store(t, i, v[:])
}

// ids is a contiguous i32 tensor.
func ids(t device.Tensor) []int32 {
	if t.Len() == 0 {
		return nil
	}
	return unsafe.Slice((*int32)(t.Data), t.Len())
}

// roundTo makes of x what a tensor of type d would hold.
func roundTo(x []float64, d device.DType) {
	if len(x) > 0 {
		wide := make([]float64, len(x)) // no type is wider
		device.StoreFloat64(unsafe.Pointer(&wide[0]), d, x)
		device.LoadFloat64(x, d, unsafe.Pointer(&wide[0]))
	}
}
