package hf

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"monotron/fault"
)

// Elements move here as bytes of any width, so that values arrive bit for bit.

// ReadAt fills dst with the bytes from `at` of one of their tensors, row-major.
type ReadAt func(name string, dst []byte, at int64) error

// ReadBox fills dst, row-major, with a box of a Megatron tensor.
type ReadBox func(global string, from, size []int64, dst []byte) error

// bandBytes is what a transposition holds beside its result, in each goroutine.
const bandBytes = 1 << 20

// run is a stretch of rows that lie together on both sides.
type run struct {
	source         int
	ours, theirs   int64 // first row in the global tensor, in the source
	n              int64
	sourceRowWidth int64 // elements of a stored row
}

// runs lists the rows [from, to) of the rule's global tensor.
func (r *rule) runs(from, to int64) []run {
	var list []run
	for row := from; row < to; row++ {
		s, theirs := r.at(row)
		if k := len(list) - 1; k >= 0 && list[k].source == s && list[k].theirs+list[k].n == theirs {
			list[k].n++
			continue
		}
		width := int64(1)
		if shape := r.sources[s].Shape; len(shape) == 2 {
			width = shape[1]
		}
		list = append(list, run{s, row, theirs, 1, width})
		if r.row == nil { // one source, in order
			list[0].n = to - from
			return list
		}
	}
	return list
}

// Gather fills dst with a box of a Megatron tensor out of theirs; elements are
// width bytes wide.
func (mp *Mapping) Gather(dst []byte, global string, from, size []int64, width int64, read ReadAt) error {
	i, ok := mp.byGlobal[global]
	if !ok {
		return fault.Errorf(fault.Internal, "%s models have no tensor %q", mp.Family, global)
	}
	r := &mp.rules[i]
	first, columns := int64(0), int64(1)
	if len(size) == 2 {
		first, columns = from[1], size[1]
	}
	if int64(len(dst)) != size[0]*columns*width {
		return fault.Errorf(fault.Internal, "tensor %q: %d bytes for a box of %v elements", global, len(dst), size)
	}
	list := r.runs(from[0], from[0]+size[0])
	if src := &r.sources[0]; src.Transposed { // and then the only one
		return gatherColumns(dst, src, list, first, columns, width, read)
	}
	for _, run := range list {
		part := dst[(run.ours-from[0])*columns*width:][:run.n*columns*width]
		if err := gatherRows(part, &r.sources[run.source], run, first, columns, width, read); err != nil {
			return err
		}
	}
	return nil
}

// gatherRows reads rows, or the asked columns of each.
func gatherRows(dst []byte, src *Source, run run, first, columns, width int64, read ReadAt) error {
	whole := run.sourceRowWidth * width
	if columns == run.sourceRowWidth {
		n := (int64(len(dst)) + bandBytes - 1) / bandBytes
		return sideBySide(n, func(next func() (int64, bool)) error {
			for k, ok := next(); ok; k, ok = next() {
				at := k * bandBytes
				if err := read(src.Name, dst[at:min(at+bandBytes, int64(len(dst)))], run.theirs*whole+at); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for k := range run.n {
		if err := read(src.Name, dst[k*columns*width:][:columns*width], (run.theirs+k)*whole+first*width); err != nil {
			return err
		}
	}
	return nil
}

// gatherColumns reads stored rows, our columns, a band at a time and turns them.
// Of a stored row only the stretches that the runs need are read.
func gatherColumns(dst []byte, src *Source, list []run, first, columns, width int64, read ReadAt) error {
	stretches, at := columnStretches(list)
	last := stretches[len(stretches)-1]
	whole := last.at + last.to - last.from
	band := max(1, min(columns, bandBytes/(whole*width)))
	return sideBySide((columns+band-1)/band, func(next func() (int64, bool)) error {
		buf := make([]byte, band*whole*width)
		for k, ok := next(); ok; k, ok = next() {
			c := k * band
			n := min(band, columns-c)
			part := buf[:n*whole*width]
			if err := readStretches(part, src, stretches, first+c, n, width, read); err != nil {
				return err
			}
			for i, run := range list {
				row := run.ours - list[0].ours
				transpose(dst[(row*columns+c)*width:], columns, part[at[i]*width:], whole, n, run.n, width)
			}
		}
		return nil
	})
}

// sideBySide hands the numbers below n to as many goroutines as there are cores;
// work takes them from next until it is false.
func sideBySide(n int64, work func(next func() (int64, bool)) error) error {
	var taken atomic.Int64
	next := func() (int64, bool) {
		k := taken.Add(1) - 1
		return k, k < n
	}
	workers := int(min(n, int64(runtime.GOMAXPROCS(0))))
	if workers <= 1 {
		return work(next)
	}
	errs := make([]error, workers)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { errs[i] = work(next) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// stretch is a part of every stored row, and where it begins among the parts read.
type stretch struct{ from, to, at int64 }

// columnStretches are the stored columns that runs need, and where each run's begin.
func columnStretches(list []run) (stretches []stretch, at []int64) {
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return int(list[a].theirs - list[b].theirs) })
	at = make([]int64, len(list))
	held := int64(0)
	for _, i := range order {
		r := list[i]
		at[i] = held
		if k := len(stretches) - 1; k >= 0 && stretches[k].to == r.theirs {
			stretches[k].to += r.n
		} else {
			stretches = append(stretches, stretch{r.theirs, r.theirs + r.n, held})
		}
		held += r.n
	}
	return stretches, at
}

// readStretches fills dst with n stored rows from first.
func readStretches(dst []byte, src *Source, list []stretch, first, n, width int64, read ReadAt) error {
	row := src.Shape[1]
	if len(list) == 1 && list[0].to-list[0].from == row {
		return read(src.Name, dst, first*row*width)
	}
	at := int64(0)
	for r := first; r < first+n; r++ {
		for _, s := range list {
			bytes := (s.to - s.from) * width
			if err := read(src.Name, dst[at:at+bytes], (r*row+s.from)*width); err != nil {
				return err
			}
			at += bytes
		}
	}
	return nil
}

// Scatter fills dst with one of their tensors, out of Megatron's.
func (mp *Mapping) Scatter(dst []byte, name string, width int64, read ReadBox) error {
	at, ok := mp.byHF[name]
	if !ok {
		return fault.Errorf(fault.Internal, "%s models have no tensor %q", mp.Family, name)
	}
	r := &mp.rules[at[0]]
	rows, columns := r.size()
	src := &r.sources[at[1]]
	if n := elements(src.Shape); int64(len(dst)) != n*width {
		return fault.Errorf(fault.Internal, "tensor %q: %d bytes for %d elements", name, len(dst), n)
	}
	var buf []byte
	for _, run := range r.runs(0, rows) {
		if run.source != at[1] {
			continue
		}
		if !src.Transposed {
			part := dst[run.theirs*columns*width:][:run.n*columns*width]
			if err := read(r.global, r.corner(run.ours), r.extent(run.n), part); err != nil {
				return err
			}
			continue
		}
		band := max(1, min(run.n, bandBytes/(columns*width)))
		for k := int64(0); k < run.n; k += band {
			n := min(band, run.n-k)
			buf = slices.Grow(buf[:0], int(n*columns*width))[:n*columns*width]
			if err := read(r.global, r.corner(run.ours+k), r.extent(n), buf); err != nil {
				return err
			}
			transpose(dst[(run.theirs+k)*width:], run.sourceRowWidth, buf, columns, n, columns, width)
		}
	}
	return nil
}

// corner and extent are a box of whole rows of the global tensor.
func (r *rule) corner(row int64) []int64 {
	from := make([]int64, len(r.shape))
	from[0] = row
	return from
}

func (r *rule) extent(rows int64) []int64 {
	size := slices.Clone(r.shape)
	size[0] = rows
	return size
}

func elements(shape []int64) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	return n
}

// transpose writes dst[j*dstStride+i] = src[i*srcStride+j] for i < rows and
// j < columns; strides count elements.
func transpose(dst []byte, dstStride int64, src []byte, srcStride, rows, columns, width int64) {
	if rows == 0 || columns == 0 {
		return
	}
	switch width {
	case 2:
		transposed(as[uint16](dst), dstStride, as[uint16](src), srcStride, rows, columns)
	case 4:
		transposed(as[uint32](dst), dstStride, as[uint32](src), srcStride, rows, columns)
	case 8:
		transposed(as[uint64](dst), dstStride, as[uint64](src), srcStride, rows, columns)
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

// transposed goes by tiles of one cache line's width: a tile is read line by line
// and turned in the first cache, whatever the strides.
func transposed[T any](dst []T, dstStride int64, src []T, srcStride, rows, columns int64) {
	const tall, wide = 32, 16
	var tile [tall][wide]T
	for j0 := int64(0); j0 < columns; j0 += wide {
		w := min(wide, columns-j0)
		for i0 := int64(0); i0 < rows; i0 += tall {
			h := min(tall, rows-i0)
			for i := range h {
				copy(tile[i][:], src[(i0+i)*srcStride+j0:][:w])
			}
			for j := range w {
				out := dst[(j0+j)*dstStride+i0:][:h]
				for i := range out {
					out[i] = tile[i%tall][j%wide] // in bounds for all the compiler knows
				}
			}
		}
	}
}
