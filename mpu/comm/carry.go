package comm

import (
	"sync"
	"unsafe"

	"monotron/csrc/device"
)

// move sets n elements at each of `to` to the combination, in order, of those at
// `from`. One source is a copy. A target may be a source: every element is read
// everywhere before it is written anywhere.
type move struct {
	to, from []unsafe.Pointer
	n        int64
	dtype    device.DType
	reduce   ReduceOp
}

func combine(c *Call, to, from []device.Tensor) move {
	m := move{n: c.Count, dtype: c.DType, reduce: c.Reduce}
	for _, t := range from {
		m.from = append(m.from, t.Data)
	}
	for _, t := range to {
		if len(from) > 1 || t.Data != from[0].Data {
			m.to = append(m.to, t.Data)
		}
	}
	return m
}

// tile is how many elements are combined at once: the sum stays in the cache on
// its way from the sources to the targets.
const tile = 8192

// carry does all moves on the pool.
func carry(pool *device.Pool, moves []move) {
	var first []int64 // tile of each move
	total := int64(0)
	for _, m := range moves {
		first = append(first, total)
		if len(m.to) > 0 {
			total += (m.n + tile - 1) / tile
		}
	}
	pool.Run(total, func(_ int, at int64) {
		i := len(first) - 1
		for first[i] > at { // one without tiles begins where the next does
			i--
		}
		moves[i].tile((at - first[i]) * tile)
	})
}

// sums are the buffers of tiles under way.
var sums = sync.Pool{New: func() any { return new([3 * tile]float64) }}

// tile does the elements from `at` on.
func (m *move) tile(at int64) {
	n, size := min(tile, m.n-at), m.dtype.Size()
	place := func(p unsafe.Pointer) unsafe.Pointer { return unsafe.Add(p, at*size) }
	source := place(m.from[0])
	if len(m.from) > 1 {
		buffer := sums.Get().(*[3 * tile]float64)
		defer sums.Put(buffer)
		from := make([]unsafe.Pointer, len(m.from))
		for i, p := range m.from {
			from[i] = place(p)
		}
		source = unsafe.Pointer(buffer)
		combineTile(source, from, int(n), m.dtype, m.reduce)
	}
	bytes := unsafe.Slice((*byte)(source), n*size)
	for _, p := range m.to {
		copy(unsafe.Slice((*byte)(place(p)), n*size), bytes)
	}
}

// pair does a move of two sources to one target on this thread.
func (m *move) pair() {
	if m.dtype == device.F32 {
		view := func(p unsafe.Pointer) []float32 { return unsafe.Slice((*float32)(p), m.n) }
		into(view(m.to[0]), view(m.from[0]), view(m.from[1]), m.reduce)
		return
	}
	for at := int64(0); at < m.n; at += tile {
		m.tile(at)
	}
}

// combineTile sets n elements at out, which has room for three tiles of eight
// bytes, to the combination of those at from.
func combineTile(out unsafe.Pointer, from []unsafe.Pointer, n int, dtype device.DType, reduce ReduceOp) {
	switch dtype {
	case device.F32:
		fold[float32](out, from, n, reduce)
	case device.F64:
		fold[float64](out, from, n, reduce)
	case device.I32:
		fold[int32](out, from, n, reduce)
	case device.I64:
		fold[int64](out, from, n, reduce)
	case device.BF16:
		foldHalf(out, from, n, reduce, device.BF16ToF32, device.F32ToBF16)
	case device.F16:
		foldHalf(out, from, n, reduce, device.F16ToF32, device.F32ToF16)
	}
}

type number interface {
	float32 | float64 | int32 | int64
}

// fold combines in the elements' own type.
func fold[T number](out unsafe.Pointer, from []unsafe.Pointer, n int, reduce ReduceOp) {
	sum := unsafe.Slice((*T)(out), n)
	first := unsafe.Slice((*T)(from[0]), n)
	for _, p := range from[1:] {
		into(sum, first, unsafe.Slice((*T)(p), n), reduce)
		first = sum
	}
}

// foldHalf combines 16-bit values in f32 and rounds the result once.
func foldHalf(out unsafe.Pointer, from []unsafe.Pointer, n int, reduce ReduceOp, widen func([]float32, []uint16), narrow func([]uint16, []float32)) {
	sum := unsafe.Slice((*float32)(unsafe.Add(out, 8*tile)), n)
	next := unsafe.Slice((*float32)(unsafe.Add(out, 16*tile)), n)
	widen(sum, unsafe.Slice((*uint16)(from[0]), n))
	for _, p := range from[1:] {
		widen(next, unsafe.Slice((*uint16)(p), n))
		into(sum, sum, next, reduce)
	}
	narrow(unsafe.Slice((*uint16)(out), n), sum)
}

// into sets out[i] to the sum, or the larger, of a[i] and b[i]; a NaN stays one.
func into[T number](out, a, b []T, reduce ReduceOp) {
	a, b = a[:len(out)], b[:len(out)]
	if reduce == Max {
		for i := range out {
			out[i] = max(a[i], b[i])
		}
		return
	}
	for len(out) >= 4 {
		out[0], out[1], out[2], out[3] = a[0]+b[0], a[1]+b[1], a[2]+b[2], a[3]+b[3]
		out, a, b = out[4:], a[4:], b[4:]
	}
	for i := range out {
		out[i] = a[i] + b[i]
	}
}
