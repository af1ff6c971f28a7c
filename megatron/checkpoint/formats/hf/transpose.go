package hf

import (
	"fmt"
	"unsafe"
)

// A tile of a transposition is as wide as a cache line of the source and goes
// whole into the first cache: lines are read once, whatever the strides, and
// written in stretches. Tiles go through blocks of blockColumns, so that the
// lines of the result that a block writes stay cached between its tiles.
const (
	lineBytes    = 64
	tileRows     = 32
	blockColumns = 32
)

// transpose writes dst[j*dstStride+i] = src[i*srcStride+j] for i < rows and
// j < columns; strides count elements.
func transpose(dst []byte, dstStride int64, src []byte, srcStride, rows, columns, width int64) {
	if rows == 0 || columns == 0 {
		return
	}
	switch width {
	case 2:
		turn(as[uint16](dst), dstStride, as[uint16](src), srcStride, rows, columns, tile16)
	case 4:
		turn(as[uint32](dst), dstStride, as[uint32](src), srcStride, rows, columns, tile32)
	case 8:
		turnPart(as[uint64](dst), dstStride, as[uint64](src), srcStride, rows, columns)
	default:
		panic(fmt.Sprintf("hf: transposition of elements of %d bytes", width))
	}
}

// as views bytes as elements; buffers come from the allocator or from offsets of
// whole elements in them.
func as[T any](b []byte) []T {
	var zero T
	n := len(b) / int(unsafe.Sizeof(zero))
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), n)
}

// turn goes by whole tiles, and element by element at the edges.
func turn[T uint16 | uint32](dst []T, dstStride int64, src []T, srcStride, rows, columns int64, tile func(dst *T, dstStride int64, t *lines)) {
	var zero T
	var t lines
	wide := int64(lineBytes / unsafe.Sizeof(zero))
	fullRows, fullColumns := rows/tileRows*tileRows, columns/wide*wide
	for j0 := int64(0); j0 < fullColumns; j0 += blockColumns {
		end := min(j0+blockColumns, fullColumns)
		for i := int64(0); i < fullRows; i += tileRows {
			for j := j0; j < end; j += wide {
				_, _ = src[(i+tileRows-1)*srcStride+j+wide-1], dst[(j+wide-1)*dstStride+i+tileRows-1] // all that the tile touches is before these
				t.read(unsafe.Pointer(&src[i*srcStride+j]), uintptr(srcStride)*unsafe.Sizeof(zero))
				tile(&dst[j*dstStride+i], dstStride, &t)
			}
		}
	}
	if fullColumns < columns {
		turnPart(dst[fullColumns*dstStride:], dstStride, src[fullColumns:], srcStride, rows, columns-fullColumns)
	}
	if fullRows < rows {
		turnPart(dst[fullRows:], dstStride, src[fullRows*srcStride:], srcStride, rows-fullRows, fullColumns)
	}
}

// turnPart goes element by element.
func turnPart[T any](dst []T, dstStride int64, src []T, srcStride, rows, columns int64) {
	for j := range columns {
		for i := range rows {
			dst[j*dstStride+i] = src[i*srcStride+j]
		}
	}
}

// lines are a tile's rows as words of eight bytes.
type lines [tileRows][lineBytes / 8]uint64

func (t *lines) read(src unsafe.Pointer, stride uintptr) {
	for i := range uintptr(tileRows) {
		t[i] = *(*[lineBytes / 8]uint64)(unsafe.Add(src, i*stride))
	}
}

// tile32 turns 32 x 16 elements of four bytes, two rows and two columns at a
// time. Words are little-endian, as on every machine this program runs on.
func tile32(dst *uint32, dstStride int64, t *lines) {
	const low = 1<<32 - 1
	for k := range uintptr(lineBytes / 8) {
		even := (*[tileRows / 2]uint64)(unsafe.Add(unsafe.Pointer(dst), 2*k*uintptr(dstStride)*4))
		odd := (*[tileRows / 2]uint64)(unsafe.Add(unsafe.Pointer(dst), (2*k+1)*uintptr(dstStride)*4))
		for m := range tileRows / 2 {
			a, b := t[2*m][k], t[2*m+1][k]
			even[m] = a&low | b<<32
			odd[m] = a>>32 | b&^low
		}
	}
}

// tile16 turns 32 x 32 elements of two bytes, four rows and four columns at a time.
func tile16(dst *uint16, dstStride int64, t *lines) {
	const low = 1<<16 - 1
	for k := range uintptr(lineBytes / 8) {
		var out [4]*[tileRows / 4]uint64
		for c := range uintptr(4) {
			out[c] = (*[tileRows / 4]uint64)(unsafe.Add(unsafe.Pointer(dst), (4*k+c)*uintptr(dstStride)*2))
		}
		for m := range tileRows / 4 {
			a, b, c, d := t[4*m][k], t[4*m+1][k], t[4*m+2][k], t[4*m+3][k]
			out[0][m] = a&low | b&low<<16 | c&low<<32 | d<<48
			out[1][m] = a>>16&low | b&(low<<16) | c&(low<<16)<<16 | d>>16<<48
			out[2][m] = a>>32&low | b>>32&low<<16 | c&(low<<32) | d>>32<<48
			out[3][m] = a>>48 | b>>48<<16 | c>>48<<32 | d>>48<<48
		}
	}
}
