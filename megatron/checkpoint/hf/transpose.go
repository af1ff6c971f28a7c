package hf

import (
	"fmt"
	"unsafe"
)

// lineBytes is the side of a transposition's tiles: lines of the caches are read
// once and written complete, whatever the strides.
const lineBytes = 64

// transpose writes dst[j*dstStride+i] = src[i*srcStride+j] for i < rows and
// j < columns; strides count elements.
func transpose(dst []byte, dstStride int64, src []byte, srcStride, rows, columns, width int64) {
	if rows == 0 || columns == 0 {
		return
	}
	switch width {
	case 2:
		turn(as[uint16](dst), dstStride, as[uint16](src), srcStride, rows, columns, turnTiles16)
	case 4:
		turn(as[uint32](dst), dstStride, as[uint32](src), srcStride, rows, columns, turnTiles32)
	case 8:
		turnPart(as[uint64](dst), dstStride, as[uint64](src), srcStride, rows, columns)
	default:
		panic(fmt.Sprintf("hf: transposition of elements of %d bytes", width))
	}
}

// as views bytes as elements; buffers come from the allocator or from offsets of
// complete elements in them.
func as[T any](b []byte) []T {
	var zero T
	n := len(b) / int(unsafe.Sizeof(zero))
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), n)
}

// fullTiles is the largest multiple of a tile's side, in elements of width bytes,
// that is not above n; n itself where that is none.
func fullTiles(n, width int64) int64 {
	side := lineBytes / width
	if n < side {
		return n
	}
	return n - n%side
}

// turn goes by complete tiles, and element by element at the edges.
func turn[T uint16 | uint32](dst []T, dstStride int64, src []T, srcStride, rows, columns int64, tiles func(dst []T, dstStride int64, src []T, srcStride, rows, columns int64)) {
	_, _ = src[(rows-1)*srcStride+columns-1], dst[(columns-1)*dstStride+rows-1] // all that is touched is before these
	side := lineBytes / int64(unsafe.Sizeof(src[0]))
	fullRows, fullColumns := rows-rows%side, columns-columns%side
	if fullRows > 0 && fullColumns > 0 {
		tiles(dst, dstStride, src, srcStride, fullRows, fullColumns)
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
