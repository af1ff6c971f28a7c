package dataset

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"unsafe"

	"monotron/internal/osadvice"
)

// Array is an index array as numpy stores it: little-endian items, C order. It
// is kept in that form because it may be a mapped cache file.
type Array struct {
	DType string  // numpy's: <i2, <i4, <u4, <i8
	Shape []int64 // one or two dimensions
	Data  []byte
	width int
}

// width is the bytes of an item of a type.
func width(dtype string) int64 { return int64(dtype[2] - '0') }

func newArray(dtype string, shape ...int64) Array {
	a := Array{DType: dtype, Shape: shape, width: int(width(dtype))}
	n := a.bytes()
	words := make([]uint64, (n+7)/8) // aligned for any item
	a.Data = unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), n)
	osadvice.HugePages(a.Data)
	return a
}

// bytes is what the items of a shape take.
func (a Array) bytes() int64 {
	n := int64(a.width)
	for _, s := range a.Shape {
		n *= s
	}
	return n
}

// items is a new array as numbers of its width. It needs an array of newArray's:
// a mapped file may not be aligned. Every machine Go knows and this program runs
// on has its low byte first, as the files do.
func items[T int16 | int32 | uint32 | int64](a Array) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(a.Data))), a.Len())
}

// Len counts all items.
func (a Array) Len() int64 { return int64(len(a.Data) / a.width) }

// At is item i in C order. No index value is negative.
func (a Array) At(i int64) int64 {
	switch a.width {
	case 4:
		return int64(binary.LittleEndian.Uint32(a.Data[4*i:]))
	case 2:
		return int64(binary.LittleEndian.Uint16(a.Data[2*i:]))
	}
	return int64(binary.LittleEndian.Uint64(a.Data[8*i:]))
}

func (a Array) set(i, v int64) {
	switch a.width {
	case 4:
		binary.LittleEndian.PutUint32(a.Data[4*i:], uint32(v))
	case 2:
		binary.LittleEndian.PutUint16(a.Data[2*i:], uint16(v))
	default:
		binary.LittleEndian.PutUint64(a.Data[8*i:], uint64(v))
	}
}

// NPYHeader is the head of the file that numpy.save writes for a (format 1.0).
func (a Array) NPYHeader() []byte {
	shape := make([]string, len(a.Shape))
	for i, s := range a.Shape {
		shape[i] = fmt.Sprint(s)
	}
	dims := strings.Join(shape, ", ")
	if len(shape) == 1 {
		dims += ","
	}
	dict := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", a.DType, dims)
	// numpy leaves space for the first dimension to grow to 21 digits, then fills
	// up to a multiple of 64, the last byte being a newline.
	n := 10 + len(dict) + 21 - len(shape[0]) + 1
	n = (n + 63) / 64 * 64
	head := append([]byte("\x93NUMPY\x01\x00"), 0, 0)
	binary.LittleEndian.PutUint16(head[8:], uint16(n-10))
	head = append(head, dict...)
	head = append(head, bytes.Repeat([]byte(" "), n-len(head)-1)...)
	return append(head, '\n')
}

// parseNPY gives the array of a .npy file that holds exactly this type and
// shape; ok is false for any other file.
func parseNPY(file []byte, dtype string, shape ...int64) (a Array, ok bool) {
	a = Array{DType: dtype, Shape: shape, width: int(width(dtype))}
	head, n := a.NPYHeader(), a.bytes()
	if len(file) < len(head) || !bytes.Equal(file[:len(head)], head) || int64(len(file)-len(head)) != n {
		return Array{}, false
	}
	a.Data = file[len(head):]
	return a, true
}
