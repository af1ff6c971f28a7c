package checkpoint

import (
	"fmt"
	"sort"

	"monotron/mpu"
)

// Part is a box of a tensor as it lies in a file.
type Part struct {
	Box     mpu.Piece
	Strides []int64                          // of its dimensions, in elements; nil: row-major
	ReadAt  func(dst []byte, at int64) error // bytes at.. of the stretch that starts at the box's first element
}

// readAhead is what is read at once where the wanted runs are short.
const readAhead = 256 << 10

// ReadParts fills dst with a box of a tensor that is made of parts; elements
// that no part holds keep their values.
func ReadParts(parts []Part, width int64, box mpu.Piece, dst []byte) error {
	for i := range parts {
		o := NewOverlap(parts[i].Box, box)
		if !o.OK {
			continue
		}
		if err := parts[i].copy(o, width, dst); err != nil {
			return err
		}
	}
	return nil
}

func (p *Part) copy(o *Overlap, width int64, dst []byte) error {
	if p.Strides != nil && !RowMajor(p.Box.Size, p.Strides) {
		return p.gather(o, width, dst)
	}
	_, end := o.Span()
	w := window{read: p.ReadAt, end: end * width}
	for o.OK {
		if err := w.readAt(dst[o.InB*width:(o.InB+o.N)*width], o.InA*width); err != nil {
			return err
		}
		o.Take(o.N)
	}
	return nil
}

// gather reads a part that lies in another order: all of it, then its elements
// one by one.
func (p *Part) gather(o *Overlap, width int64, dst []byte) error {
	last := int64(0)
	for d, s := range p.Strides {
		last += s * (p.Box.Size[d] - 1)
	}
	raw := make([]byte, (last+1)*width)
	if err := p.ReadAt(raw, 0); err != nil {
		return err
	}
	for o.OK {
		for i := range o.N {
			at, rest := int64(0), o.InA+i
			for d := len(p.Strides) - 1; d >= 0; d-- {
				at += rest % p.Box.Size[d] * p.Strides[d]
				rest /= p.Box.Size[d]
			}
			copy(dst[(o.InB+i)*width:(o.InB+i+1)*width], raw[at*width:])
		}
		o.Take(o.N)
	}
	return nil
}

// RowMajor reports whether strides are those of a contiguous tensor; a dimension
// of one element may have any.
func RowMajor(shape, strides []int64) bool {
	n := int64(1)
	for d := len(shape) - 1; d >= 0; d-- {
		if shape[d] != 1 && strides[d] != n {
			return false
		}
		n *= shape[d]
	}
	return true
}

// window reads short runs, which come in rising order, in larger ones.
type window struct {
	read func([]byte, int64) error
	end  int64
	buf  []byte
	at   int64
}

func (w *window) readAt(dst []byte, at int64) error {
	n := int64(len(dst))
	if n*8 >= readAhead {
		return w.read(dst, at)
	}
	if at < w.at || at+n > w.at+int64(len(w.buf)) {
		size := min(readAhead, w.end-at)
		if int64(cap(w.buf)) < size {
			w.buf = make([]byte, size)
		}
		w.buf, w.at = w.buf[:size], at
		if err := w.read(w.buf, at); err != nil {
			w.buf = w.buf[:0]
			return err
		}
	}
	copy(dst, w.buf[at-w.at:])
	return nil
}

// maxComparisons of boxes with each other; far above any layout's need.
const maxComparisons = 1 << 26

// Tile checks that boxes cover a tensor of this shape exactly once. used counts
// comparisons over several calls, so that hostile lists cannot take forever.
func Tile(shape []int64, boxes []mpu.Piece, used *int) error {
	total, kept := Volume(shape), int64(0)
	for i, b := range boxes {
		if !Inside(b, shape) {
			return fmt.Errorf("piece %d, from %v of size %v, is not inside the tensor", i, b.From, b.Size)
		}
		if kept += b.Len(); kept > total {
			return fmt.Errorf("its pieces have more elements than the tensor")
		}
	}
	if kept != total {
		return fmt.Errorf("its pieces cover only %d of %d elements, so a part is missing", kept, total)
	}
	return Disjoint(boxes, used)
}

// Disjoint checks that no two boxes share an element.
func Disjoint(boxes []mpu.Piece, used *int) error {
	order := append([]mpu.Piece(nil), boxes...)
	sort.SliceStable(order, func(a, b int) bool { return order[a].From[0] < order[b].From[0] })
	for i, a := range order {
		for _, b := range order[i+1:] {
			if b.From[0] >= a.From[0]+a.Size[0] {
				break
			}
			if *used++; *used > maxComparisons {
				return fmt.Errorf("the tensors have too many pieces to check whether pieces overlap")
			}
			if Meets(a, b) {
				return fmt.Errorf("the pieces from %v of size %v and from %v of size %v overlap", a.From, a.Size, b.From, b.Size)
			}
		}
	}
	return nil
}
