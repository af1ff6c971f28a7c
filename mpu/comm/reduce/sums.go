// Package reduce moves and adds the bytes of ranks whose memory is the host's: in rank
// order or as a tree over the ranks, by tiles on the process's pool, 16-bit values in f32 and rounded once. What
// goroutines and processes sum is therefore alike to the bit.
package reduce

import (
	"math/bits"
	"sync"
	"unsafe"

	"monotron/csrc/device"
	"monotron/mpu/comm"
)

// Move sets N elements at each of To to the combination, in order, of those at
// From. One source is a copy. A target may be a source: every element is read
// everywhere before it is written anywhere.
type Move struct {
	To, From []unsafe.Pointer
	N        int64
	DType    device.DType
	Reduce   comm.ReduceOp
}

// Between is the move of n elements of tensors; a target that is the one source is
// left as it is.
func Between(n int64, dtype device.DType, reduce comm.ReduceOp, to, from []device.Tensor) Move {
	m := Move{N: n, DType: dtype, Reduce: reduce}
	for _, t := range from {
		m.From = append(m.From, t.Data)
	}
	for _, t := range to {
		if len(from) > 1 || t.Data != from[0].Data {
			m.To = append(m.To, t.Data)
		}
	}
	return m
}

// Tile is how many elements are combined at once: the sum stays in the cache on
// its way from the sources to the targets.
const Tile = 8192

// Carry does all moves on the pool.
func Carry(pool *device.Pool, moves []Move) {
	var first []int64 // tile of each move
	total := int64(0)
	for _, m := range moves {
		first = append(first, total)
		if len(m.To) > 0 {
			total += (m.N + Tile - 1) / Tile
		}
	}
	pool.Run(total, func(_ int, at int64) {
		i := len(first) - 1
		for first[i] > at { // one without tiles begins where the next does
			i--
		}
		moves[i].tile((at - first[i]) * Tile)
	})
}

// sums are the buffers of tiles under way.
var sums = sync.Pool{New: func() any { return new([3 * Tile]float64) }}

// Tile does the elements from `at` on.
func (m *Move) tile(at int64) {
	n, size := min(Tile, m.N-at), m.DType.Size()
	advance := func(p unsafe.Pointer) unsafe.Pointer { return unsafe.Add(p, at*size) }
	source := advance(m.From[0])
	if len(m.From) > 1 {
		buffer := sums.Get().(*[3 * Tile]float64)
		defer sums.Put(buffer)
		from := make([]unsafe.Pointer, len(m.From))
		for i, p := range m.From {
			from[i] = advance(p)
		}
		source = unsafe.Pointer(buffer)
		combineTile(source, from, int(n), m.DType, m.Reduce)
	}
	bytes := unsafe.Slice((*byte)(source), n*size)
	for _, p := range m.To {
		copy(unsafe.Slice((*byte)(advance(p)), n*size), bytes)
	}
}

// Pair does a move of two sources to one target on this thread.
func (m *Move) Pair() {
	if m.DType == device.F32 {
		view := func(p unsafe.Pointer) []float32 { return unsafe.Slice((*float32)(p), m.N) }
		into(view(m.To[0]), view(m.From[0]), view(m.From[1]), m.Reduce)
		return
	}
	for at := int64(0); at < m.N; at += Tile {
		m.tile(at)
	}
}

// combineTile sets n elements at out, which has space for three tiles of eight
// bytes, to the combination of those at from.
func combineTile(out unsafe.Pointer, from []unsafe.Pointer, n int, dtype device.DType, reduce comm.ReduceOp) {
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
func fold[T number](out unsafe.Pointer, from []unsafe.Pointer, n int, reduce comm.ReduceOp) {
	sum := unsafe.Slice((*T)(out), n)
	first := unsafe.Slice((*T)(from[0]), n)
	if reduce == comm.Tree && len(from) > 2 {
		foldTree(sum, from)
		return
	}
	for _, p := range from[1:] {
		into(sum, first, unsafe.Slice((*T)(p), n), reduce)
		first = sum
	}
}

// foldTree adds as comm.Tree says: a subtree of as many as a power of two allows, and the rest.
func foldTree[T number](sum []T, from []unsafe.Pointer) {
	if len(from) == 1 {
		copy(sum, unsafe.Slice((*T)(from[0]), len(sum)))
		return
	}
	left := 1 << (bits.Len(uint(len(from)-1)) - 1)
	rest := make([]T, len(sum))
	foldTree(sum, from[:left])
	foldTree(rest, from[left:])
	into(sum, sum, rest, comm.Sum)
}

// foldHalf combines 16-bit values in f32 and rounds the result once.
func foldHalf(out unsafe.Pointer, from []unsafe.Pointer, n int, reduce comm.ReduceOp, widen func([]float32, []uint16), narrow func([]uint16, []float32)) {
	sum := unsafe.Slice((*float32)(unsafe.Add(out, 8*Tile)), n)
	next := unsafe.Slice((*float32)(unsafe.Add(out, 16*Tile)), n)
	widen(sum, unsafe.Slice((*uint16)(from[0]), n))
	for _, p := range from[1:] {
		widen(next, unsafe.Slice((*uint16)(p), n))
		into(sum, sum, next, reduce)
	}
	narrow(unsafe.Slice((*uint16)(out), n), sum)
}

// into sets out[i] to the sum, or the larger, of a[i] and b[i]; a NaN stays one.
func into[T number](out, a, b []T, reduce comm.ReduceOp) {
	a, b = a[:len(out)], b[:len(out)]
	if reduce == comm.Max {
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
