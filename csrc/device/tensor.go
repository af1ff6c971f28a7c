package device

import (
	"fmt"
	"strings"
	"unsafe"
)

// MaxRank is the largest number of dimensions of a Tensor.
const MaxRank = 4

// Tensor is a view of device memory: a pointer, a shape and strides in
// elements. It owns nothing. The zero Tensor means "not given". Its layout is
// mt_tensor's in device.h.
type Tensor struct {
	Data   unsafe.Pointer
	DType  DType
	Rank   int32
	Shape  [MaxRank]int64
	Stride [MaxRank]int64
}

// View makes a contiguous tensor over data.
func View(data unsafe.Pointer, dtype DType, shape ...int64) Tensor {
	if len(shape) == 0 || len(shape) > MaxRank {
		panic(fmt.Sprintf("device: a tensor cannot have %d dimensions", len(shape)))
	}
	t := Tensor{Data: data, DType: dtype, Rank: int32(len(shape))}
	step := int64(1)
	for i := len(shape) - 1; i >= 0; i-- {
		t.Shape[i], t.Stride[i] = shape[i], step
		step *= shape[i]
	}
	return t
}

// Given reports whether t is a tensor and not the zero Tensor.
func (t Tensor) Given() bool { return t.Rank > 0 }

// Dims is the shape as a slice.
func (t Tensor) Dims() []int64 { return t.Shape[:t.Rank] }

// Len is the number of elements.
func (t Tensor) Len() int64 {
	n := int64(1)
	for _, d := range t.Dims() {
		n *= d
	}
	return n
}

// Bytes is the memory of a contiguous tensor of this shape.
func (t Tensor) Bytes() int64 { return t.Len() * t.DType.Size() }

// Last is the size of the last dimension.
func (t Tensor) Last() int64 { return t.Shape[t.Rank-1] }

// Rows is the number of vectors along the last dimension.
func (t Tensor) Rows() int64 { return t.Len() / max(1, t.Last()) }

// Contiguous reports whether the elements lie back to back in row-major order.
func (t Tensor) Contiguous() bool {
	step := int64(1)
	for i := int(t.Rank) - 1; i >= 0; i-- {
		if t.Shape[i] != 1 && t.Stride[i] != step {
			return false
		}
		step *= t.Shape[i]
	}
	return true
}

// Reshape views a contiguous tensor under another shape of the same length.
func (t Tensor) Reshape(shape ...int64) Tensor {
	v := View(t.Data, t.DType, shape...)
	if !t.Contiguous() || v.Len() != t.Len() {
		panic(fmt.Sprintf("device: cannot view %v as %v", t, shape))
	}
	return v
}

// Slice views n indices from `from` on of dimension dim.
func (t Tensor) Slice(dim int, from, n int64) Tensor {
	if from < 0 || n < 0 || from+n > t.Shape[dim] {
		panic(fmt.Sprintf("device: slice %d+%d of dimension %d of %v", from, n, dim, t))
	}
	t.Data = unsafe.Add(t.Data, from*t.Stride[dim]*t.DType.Size())
	t.Shape[dim] = n
	return t
}

// At views the sub-tensor at index i of the first dimension.
func (t Tensor) At(i int64) Tensor {
	v := t.Slice(0, i, 1)
	copy(v.Shape[:], v.Shape[1:])
	copy(v.Stride[:], v.Stride[1:])
	v.Rank--
	v.Shape[v.Rank], v.Stride[v.Rank] = 0, 0
	return v
}

// Strided views data with given strides; the QKV heads inside one buffer need it.
func Strided(data unsafe.Pointer, dtype DType, shape, stride []int64) Tensor {
	t := View(data, dtype, shape...)
	copy(t.Stride[:], stride)
	return t
}

func (t Tensor) String() string {
	if !t.Given() {
		return "none"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s%v", t.DType, t.Dims())
	if !t.Contiguous() {
		fmt.Fprintf(&b, "/%v", t.Stride[:t.Rank])
	}
	return b.String()
}
