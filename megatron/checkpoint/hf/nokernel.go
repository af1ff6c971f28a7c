//go:build !cgo || !amd64

package hf

import "unsafe"

// turnTiles16 turns complete tiles: rows and columns are multiples of a cache line's elements.
func turnTiles16(dst []uint16, dstStride int64, src []uint16, srcStride, rows, columns int64) {
	turnByWords(dst, dstStride, src, srcStride, rows, columns, tile16)
}

// turnTiles32 is turnTiles16 for four bytes.
func turnTiles32(dst []uint32, dstStride int64, src []uint32, srcStride, rows, columns int64) {
	turnByWords(dst, dstStride, src, srcStride, rows, columns, tile32)
}

// blockColumns are turned down all rows before the next ones, so that the lines of
// the result that a block writes stay cached between its tiles.
const blockColumns = 32

// turnByWords goes by square tiles, their lines as words of eight bytes.
func turnByWords[T uint16 | uint32](dst []T, dstStride int64, src []T, srcStride, rows, columns int64, tile func(dst *T, dstStride int64, t *lines)) {
	var t lines
	size := int64(unsafe.Sizeof(src[0]))
	wide := lineBytes / size
	for j0 := int64(0); j0 < columns; j0 += blockColumns {
		for i := int64(0); i < rows; i += wide {
			for j := j0; j < min(j0+blockColumns, columns); j += wide {
				t.read(unsafe.Pointer(&src[i*srcStride+j]), uintptr(srcStride*size), wide)
				tile(&dst[j*dstStride+i], dstStride, &t)
			}
		}
	}
}

// lines are a tile's rows as words of eight bytes, at most 32 of them.
type lines [lineBytes / 2][lineBytes / 8]uint64

func (t *lines) read(src unsafe.Pointer, stride uintptr, rows int64) {
	for i := range uintptr(rows) {
		t[i] = *(*[lineBytes / 8]uint64)(unsafe.Add(src, i*stride))
	}
}

// tile32 turns 16 x 16 elements of four bytes, two rows and two columns at a
// time. Words are little-endian, as on every machine this program runs on.
func tile32(dst *uint32, dstStride int64, t *lines) {
	const low = 1<<32 - 1
	for k := range uintptr(lineBytes / 8) {
		even := (*[lineBytes / 8]uint64)(unsafe.Add(unsafe.Pointer(dst), 2*k*uintptr(dstStride)*4))
		odd := (*[lineBytes / 8]uint64)(unsafe.Add(unsafe.Pointer(dst), (2*k+1)*uintptr(dstStride)*4))
		for m := range lineBytes / 8 {
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
		var out [4]*[lineBytes / 8]uint64
		for c := range uintptr(4) {
			out[c] = (*[lineBytes / 8]uint64)(unsafe.Add(unsafe.Pointer(dst), (4*k+c)*uintptr(dstStride)*2))
		}
		for m := range lineBytes / 8 {
			a, b, c, d := t[4*m][k], t[4*m+1][k], t[4*m+2][k], t[4*m+3][k]
			out[0][m] = a&low | b&low<<16 | c&low<<32 | d<<48
			out[1][m] = a>>16&low | b&(low<<16) | c&(low<<16)<<16 | d>>16<<48
			out[2][m] = a>>32&low | b>>32&low<<16 | c&(low<<32) | d>>32<<48
			out[3][m] = a>>48 | b>>48<<16 | c>>48<<32 | d>>48<<48
		}
	}
}
