package preprocess

import (
	"unsafe"

	"monotron/dataset"
)

// stock has the buffers of a run. Each is reserved at a length that lines of
// longLine bytes fit in, but takes memory only where something was written, and what
// a long line took is given back after it. So no buffer is ever copied into a
// larger one, nothing is left to the collector, and the peak does not depend on which
// workers happened to meet the long lines. Longer lines are taken from the heap.
type stock struct{ all [][]byte }

// longLine is the longest line, in bytes, that the buffers are reserved for.
const longLine = 32 << 20

// buffer is an empty slice with that much capacity.
func (s *stock) buffer(capacity int) []byte {
	b := reserve(capacity)
	s.all = append(s.all, b)
	return b[:0]
}

// ids is a buffer for that many ids.
func (s *stock) ids(capacity int) []int32 {
	b := s.buffer(4 * capacity)
	return unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(b))), capacity)[:0]
}

// free ends the use of all buffers.
func (s *stock) free() {
	for _, b := range s.all {
		release(b)
	}
	s.all = nil
}

// capacity is that of the buffers for a block: of its text, of the tokens as in the
// file, and of the ids. A text has no more ids than bytes.
type capacity struct{ text, raw, ids int }

func sizeFor(line int64, d dataset.DType) capacity {
	n := int(min(line, longLine)) + blockBytes
	return capacity{text: 2 * n, raw: d.Size() * n, ids: n}
}
