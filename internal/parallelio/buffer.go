package parallelio

import (
	"io"
	"sync"
	"unsafe"
)

// Buffer is memory for a transfer, used again after Free: touching new memory costs
// as much as filling it.
type Buffer struct {
	Bytes []byte
	all   []byte
}

// Buffers of least to most bytes are of one size: one fits all.
const least, most = 32 << 10, 12 << 20

const pooled = most + 2*alignment // Bytes may begin anywhere in a page

var pool = sync.Pool{New: func() any { return &Buffer{all: make([]byte, pooled)} }}

// NewBuffer is a Buffer of n bytes for what goes to byte `at` of a file: its position
// in a page of memory is that in a page of the file, so that Take needs no copy.
func NewBuffer(n, at int64) *Buffer {
	b := &Buffer{}
	if n > least && n <= most {
		b = pool.Get().(*Buffer)
	} else {
		b.all = make([]byte, n+2*alignment)
	}
	start := int64(-uintptr(unsafe.Pointer(&b.all[0]))&(alignment-1)) + at&(alignment-1)
	b.Bytes = b.all[start : start+n : start+n]
	return b
}

// Footprint is the memory that a Buffer of n bytes takes.
func Footprint(n int64) int64 {
	if n > least {
		return max(n, most)
	}
	return n
}

// Free gives the memory back.
func (b *Buffer) Free() {
	if len(b.all) == pooled {
		pool.Put(b)
	}
}

// Taker is a Writer that may keep bytes, without a copy, until it calls back.
type Taker interface {
	io.Writer
	// Take appends b, which belongs to the Taker until it calls back; that it does
	// in any case, from any goroutine.
	Take(b []byte, back func()) error
}

// Take appends b to w, without a copy if w can.
func Take(w io.Writer, b []byte, back func()) error {
	if t, ok := w.(Taker); ok {
		return t.Take(b, back)
	}
	defer back()
	_, err := w.Write(b)
	return err
}
