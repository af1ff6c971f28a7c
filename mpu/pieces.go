package mpu

// Piece maps a box of a named global tensor to a stretch of a local buffer.
// Everything that must know about layouts (initial values, checkpoints, verify,
// conversion, norms) goes by pieces and by nothing else.
type Piece struct {
	From  []int64 // corner of the box in the global tensor
	Size  []int64 // of the box
	Local int64   // element of the local buffer where the box starts, row-major, contiguous
}

// Len is the number of elements of the box.
func (p Piece) Len() int64 {
	n := int64(1)
	for _, s := range p.Size {
		n *= s
	}
	return n
}

// runs lists the global index of the start of each contiguous stretch of the
// box, and their common length in elements.
func (p Piece) runs(global []int64) (starts []int64, length int64) {
	last := len(global) - 1
	length = p.Size[last]
	stride := global[last]
	starts = []int64{p.From[last]}
	for d := last - 1; d >= 0; d-- {
		if length == stride && len(starts) == 1 { // rows lie back to back
			starts[0] = p.From[d] * stride
			length *= p.Size[d]
		} else {
			var next []int64
			for i := range p.Size[d] {
				for _, s := range starts {
					next = append(next, (p.From[d]+i)*stride+s)
				}
			}
			starts = next
		}
		stride *= global[d]
	}
	return starts, length
}

// Runs calls f for each stretch of the box that is contiguous in the global
// tensor of that shape: its first element there, its first in the local buffer, its
// length.
func (p Piece) Runs(global []int64, f func(at, local, n int64)) {
	starts, n := p.runs(global)
	for i, at := range starts {
		f(at, p.Local+int64(i)*n, n)
	}
}

// Stretch translates elements [from, from+n) of a local buffer, a ZeRO shard for
// one, into pieces of the global tensor: what the given pieces, which describe the
// complete buffer, have in it. The results' Local counts from `from`; padding between
// pieces is in none. A stretch that begins and ends inside rows of a box of rank r
// is 2r-1 boxes at most.
func Stretch(pieces []Piece, from, n int64) []Piece {
	var out []Piece
	for _, p := range pieces {
		lo, hi := max(from, p.Local), min(from+n, p.Local+p.Len())
		if lo >= hi {
			continue
		}
		c := cutter{box: p, local: lo - from}
		c.cut(0, lo-p.Local, hi-p.Local)
		out = append(out, c.out...)
	}
	return out
}

// cutter turns a flat range of a row-major box into boxes, in order.
type cutter struct {
	box   Piece
	fixed []int64 // indices of the leading dimensions
	local int64   // where the next box starts
	out   []Piece
}

// cut adds elements [from, to) of the sub-box at c.fixed, whose first dimension is d.
func (c *cutter) cut(d int, from, to int64) {
	if from == to {
		return
	}
	inner := int64(1)
	for _, s := range c.box.Size[d+1:] {
		inner *= s
	}
	first, last := from/inner, to/inner
	if from%inner == 0 && to%inner == 0 {
		c.add(d, first, last-first)
		return
	}
	if first == last { // within one index
		c.inside(d, first, from-first*inner, to-first*inner)
		return
	}
	if from%inner != 0 {
		c.inside(d, first, from-first*inner, inner)
		first++
	}
	if last > first {
		c.add(d, first, last-first)
	}
	c.inside(d, last, 0, to-last*inner)
}

// inside cuts a range of the sub-box at index i of dimension d.
func (c *cutter) inside(d int, i, from, to int64) {
	c.fixed = append(c.fixed, i)
	c.cut(d+1, from, to)
	c.fixed = c.fixed[:d]
}

// add is n complete indices of dimension d.
func (c *cutter) add(d int, first, n int64) {
	p := Piece{Local: c.local}
	for k, i := range c.fixed {
		p.From, p.Size = append(p.From, c.box.From[k]+i), append(p.Size, 1)
	}
	p.From, p.Size = append(p.From, c.box.From[d]+first), append(p.Size, n)
	p.From, p.Size = append(p.From, c.box.From[d+1:]...), append(p.Size, c.box.Size[d+1:]...)
	c.local += p.Len()
	c.out = append(c.out, p)
}
