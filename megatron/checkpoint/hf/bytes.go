package hf

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"monotron/internal/exitcode"
)

// Elements move here as bytes of any width, so that values arrive bit for bit.

// ReadAt fills dst with the bytes from `at` of one of their tensors, row-major.
type ReadAt func(name string, dst []byte, at int64) error

// ReadBox fills dst, row-major, with a box of a Megatron tensor.
type ReadBox func(global string, from, size []int64, dst []byte) error

// bandBytes is what a transposition allocates in addition to its result, in each goroutine.
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
		for _, n := range r.sources[s].Shape[1:] {
			width *= n
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
		return exitcode.Errorf(exitcode.Internal, "internal error: %s models have no tensor %q; report this, and include the command line", mp.Family, global)
	}
	r := &mp.rules[i]
	first, columns := int64(0), int64(1)
	if len(size) == 2 {
		first, columns = from[1], size[1]
	}
	if int64(len(dst)) != size[0]*columns*width {
		return exitcode.Errorf(exitcode.Internal, "internal error: tensor %q: a buffer of %d bytes does not fit a part of %v elements; report this, and include the command line", global, len(dst), size)
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
	full := run.sourceRowWidth * width
	if columns == run.sourceRowWidth {
		n := (int64(len(dst)) + bandBytes - 1) / bandBytes
		return sideBySide(n, func(next func() (int64, bool)) error {
			for k, ok := next(); ok; k, ok = next() {
				at := k * bandBytes
				if err := read(src.Name, dst[at:min(at+bandBytes, int64(len(dst)))], run.theirs*full+at); err != nil {
					return err
				}
			}
			return nil
		})
	}
	parts := []stretch{{first, first + columns, 0}}
	band := max(1, bandBytes/full)
	return sideBySide((run.n+band-1)/band, func(next func() (int64, bool)) error {
		for k, ok := next(); ok; k, ok = next() {
			at, n := k*band, min(band, run.n-k*band)
			if err := readStretches(dst[at*columns*width:][:n*columns*width], src, parts, run.theirs+at, n, width, read); err != nil {
				return err
			}
		}
		return nil
	})
}

// gatherColumns reads stored rows, our columns, a band at a time and turns them.
// Of a stored row only the stretches that the runs need are read.
func gatherColumns(dst []byte, src *Source, list []run, first, columns, width int64, read ReadAt) error {
	stretches, at := columnStretches(list)
	last := stretches[len(stretches)-1]
	full := last.at + last.to - last.from
	band := min(columns, fullTiles(max(1, bandBytes/(full*width)), width))
	return sideBySide((columns+band-1)/band, func(next func() (int64, bool)) error {
		buf := bands.Get().(*[]byte)
		defer bands.Put(buf)
		*buf = slices.Grow((*buf)[:0], int(band*full*width))[:band*full*width]
		for k, ok := next(); ok; k, ok = next() {
			c := k * band
			n := min(band, columns-c)
			part := (*buf)[:n*full*width]
			if err := readStretches(part, src, stretches, first+c, n, width, read); err != nil {
				return err
			}
			for i, run := range list {
				row := run.ours - list[0].ours
				transpose(dst[(row*columns+c)*width:], columns, part[at[i]*width:], full, n, run.n, width)
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
	inMemory := int64(0)
	for _, i := range order {
		r := list[i]
		at[i] = inMemory
		if k := len(stretches) - 1; k >= 0 && stretches[k].to == r.theirs {
			stretches[k].to += r.n
		} else {
			stretches = append(stretches, stretch{r.theirs, r.theirs + r.n, inMemory})
		}
		inMemory += r.n
	}
	return stretches, at
}

// shortest is the stretch, in bytes, that is worth a call of its own.
const shortest = 4096

// readStretches fills dst with stretches of n stored rows from first. Where they
// are short, complete rows are read and the rest dropped.
func readStretches(dst []byte, src *Source, list []stretch, first, n, width int64, read ReadAt) error {
	row := src.Shape[1]
	last := list[len(list)-1]
	inMemory := last.at + last.to - last.from
	if inMemory == row {
		return read(src.Name, dst, first*row*width)
	}
	if inMemory*width/int64(len(list)) < shortest && row < 16*inMemory {
		return readRows(dst, src, list, inMemory, first, n, width, read)
	}
	for r := range n {
		for _, s := range list {
			if err := read(src.Name, dst[(r*inMemory+s.at)*width:(r*inMemory+s.at+s.to-s.from)*width], ((first+r)*row+s.from)*width); err != nil {
				return err
			}
		}
	}
	return nil
}

// readRows is readStretches by complete rows.
func readRows(dst []byte, src *Source, list []stretch, inMemory, first, n, width int64, read ReadAt) error {
	row := src.Shape[1] * width
	buf := bands.Get().(*[]byte)
	defer bands.Put(buf)
	band := min(n, max(1, bandBytes/row))
	*buf = slices.Grow((*buf)[:0], int(band*row))[:band*row]
	for at := int64(0); at < n; at += band {
		raw := (*buf)[:min(band, n-at)*row]
		if err := read(src.Name, raw, (first+at)*row); err != nil {
			return err
		}
		for r := int64(0); r*row < int64(len(raw)); r++ {
			for _, s := range list {
				copy(dst[((at+r)*inMemory+s.at)*width:], raw[r*row+s.from*width:r*row+s.to*width])
			}
		}
	}
	return nil
}

// bands are buffers for stored rows; touching new memory costs as much as filling it.
var bands = sync.Pool{New: func() any { return new([]byte) }}

// Scatter fills dst with one of their tensors, out of Megatron's.
func (mp *Mapping) Scatter(dst []byte, name string, width int64, read ReadBox) error {
	at, ok := mp.byHF[name]
	if !ok {
		return exitcode.Errorf(exitcode.Internal, "internal error: %s models have no tensor %q; report this, and include the command line", mp.Family, name)
	}
	rows := mp.rules[at[0]].sources[at[1]].Shape[0]
	return mp.ScatterRows(dst, name, 0, rows, width, read)
}

// ScatterRows is Scatter of their rows [from, to).
func (mp *Mapping) ScatterRows(dst []byte, name string, from, to, width int64, read ReadBox) error {
	if mp.slabs[name] != nil {
		return mp.scatterSlabs(dst, name, from, to, width, read)
	}
	// The rule that the tensor belongs to, and which of its sources it is.
	at, ok := mp.byHF[name]
	if !ok {
		return exitcode.Errorf(exitcode.Internal, "internal error: %s models have no tensor %q; report this, and include the command line", mp.Family, name)
	}
	r := &mp.rules[at[0]]
	rows, columns := r.size()
	src := &r.sources[at[1]]
	if n := elements(src.Shape[1:]) * (to - from); int64(len(dst)) != n*width {
		return exitcode.Errorf(exitcode.Internal, "internal error: tensor %q: a buffer of %d bytes does not fit %d elements; report this, and include the command line", name, len(dst), n)
	}
	// Runs of neighbouring rows of ours that this tensor has, transposed or as they are.
	for _, run := range r.runs(0, rows) {
		if run.source != at[1] {
			continue
		}
		if src.Transposed {
			if err := r.turnRows(dst, run, from, to, width, read); err != nil {
				return err
			}
			continue
		}
		first, end := max(from, run.theirs), min(to, run.theirs+run.n)
		if first >= end {
			continue
		}
		part := dst[(first-from)*columns*width:][:(end-first)*columns*width]
		if err := read(r.global, r.corner(run.ours+first-run.theirs), r.extent(end-first), part); err != nil {
			return err
		}
	}
	return nil
}

// turnRows writes the part of a run, our rows and so their columns, that lies in
// their rows [from, to), which are our columns.
func (r *rule) turnRows(dst []byte, run run, from, to, width int64, read ReadBox) error {
	buf := bands.Get().(*[]byte)
	defer bands.Put(buf)
	band := min(run.n, fullTiles(max(1, bandBytes/((to-from)*width)), width))
	for k := int64(0); k < run.n; k += band {
		n := min(band, run.n-k)
		*buf = slices.Grow((*buf)[:0], int(n*(to-from)*width))[:n*(to-from)*width]
		if err := read(r.global, []int64{run.ours + k, from}, []int64{n, to - from}, *buf); err != nil {
			return err
		}
		transpose(dst[(run.theirs+k)*width:], run.sourceRowWidth, *buf, to-from, n, to-from, width)
	}
	return nil
}

// corner and extent are a box of complete rows of the global tensor.
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
