package checkpoint

import "monotron/mpu"

// Overlap iterates over the elements that two boxes of one tensor share: as runs of
// elements that are contiguous in both boxes, in row-major order.
type Overlap struct {
	InA, InB, N int64 // what is left of the current stretch: element in a, in b, length
	OK          bool  // there is one

	outer        int   // dimensions that are counted; those behind make a stretch
	length       int64 // of every stretch
	count, size  []int64
	stepA, stepB []int64
}

// NewOverlap starts at the first run; OK is false if the boxes share nothing.
func NewOverlap(a, b mpu.Piece) *Overlap {
	rank := len(a.From)
	o := &Overlap{OK: true, size: make([]int64, rank), count: make([]int64, rank), stepA: make([]int64, rank), stepB: make([]int64, rank)}
	atA, atB := int64(1), int64(1)
	for d := rank - 1; d >= 0; d-- {
		from := max(a.From[d], b.From[d])
		o.size[d] = min(a.From[d]+a.Size[d], b.From[d]+b.Size[d]) - from
		if o.size[d] <= 0 {
			o.OK = false
			return o
		}
		o.stepA[d], o.stepB[d] = atA, atB
		o.InA += (from - a.From[d]) * atA
		o.InB += (from - b.From[d]) * atB
		atA *= a.Size[d]
		atB *= b.Size[d]
	}
	o.length, o.outer = o.size[rank-1], rank-1
	for o.outer > 0 && o.size[o.outer] == a.Size[o.outer] && o.size[o.outer] == b.Size[o.outer] {
		o.outer--
		o.length *= o.size[o.outer]
	}
	o.N = o.length
	return o
}

// Span is the range of a's elements from the first shared one to the end of the last
// shared one. Call it before Take.
func (o *Overlap) Span() (from, to int64) {
	to = o.InA + o.length
	for d := range o.outer {
		to += (o.size[d] - 1) * o.stepA[d]
	}
	return o.InA, to
}

// Take advances by n elements of the current run, and to the next run if that was
// all of it.
func (o *Overlap) Take(n int64) {
	o.InA, o.InB, o.N = o.InA+n, o.InB+n, o.N-n
	if o.N > 0 {
		return
	}
	o.InA, o.InB, o.N = o.InA-o.length, o.InB-o.length, o.length
	for d := o.outer - 1; d >= 0; d-- {
		o.count[d]++
		o.InA += o.stepA[d]
		o.InB += o.stepB[d]
		if o.count[d] < o.size[d] {
			return
		}
		o.InA -= o.count[d] * o.stepA[d]
		o.InB -= o.count[d] * o.stepB[d]
		o.count[d] = 0
	}
	o.OK = false
}

// Meets reports whether two boxes share an element.
func Meets(a, b mpu.Piece) bool {
	for d, from := range a.From {
		if from >= b.From[d]+b.Size[d] || b.From[d] >= from+a.Size[d] {
			return false
		}
	}
	return true
}

// Uncut is the box of a tensor of this shape.
func Uncut(shape []int64) mpu.Piece {
	return mpu.Piece{From: make([]int64, len(shape)), Size: shape}
}

// Inside reports whether a piece is a non-empty box of a tensor of this shape.
func Inside(p mpu.Piece, shape []int64) bool {
	if len(p.From) != len(shape) || len(p.Size) != len(shape) {
		return false
	}
	for d, n := range shape {
		if p.From[d] < 0 || p.Size[d] < 1 || p.Size[d] > n || p.From[d] > n-p.Size[d] {
			return false
		}
	}
	return true
}
