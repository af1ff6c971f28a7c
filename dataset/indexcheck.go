package dataset

import (
	"encoding/binary"
	"runtime"

	"golang.org/x/sync/errgroup"

	"monotron/internal/exitcode"
)

// spanEntries is the least number of entries that is worth a goroutine of its own.
const spanEntries = 1 << 20

// inSpans calls f for the parts [from, to) of n entries, a goroutine each, and gives the error
// of the first part that has one. Part k is [n k / parts, n (k+1) / parts).
func (x *Indexed) inSpans(n int64, f func(part int, from, to int64) error) error {
	parts := spans(n)
	errs := make([]error, parts)
	var group errgroup.Group
	for k := range parts {
		from, to := n/int64(parts)*int64(k), n/int64(parts)*int64(k+1)
		if k == parts-1 {
			to = n
		}
		group.Go(func() error { // a read of a mapped file faults in the goroutine that does it
			errs[k] = Guard(x.idx.path, func() error { return f(k, from, to) })
			return nil
		})
	}
	_ = group.Wait() // errs has them, in the order of the file
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// spans is the number of parts that inSpans makes of n entries.
func spans(n int64) int {
	return int(min(int64(runtime.GOMAXPROCS(0)), n/spanEntries+1))
}

// check reads the arrays: lengths are not negative, offsets rise without overlap and stay within
// .bin, and the boundaries of documents rise to the number of sequences. It sets the counts.
func (x *Indexed) check() error {
	tokens, longest := make([]int64, spans(x.n)), make([]int64, spans(x.n))
	err := x.inSpans(x.n, func(part int, from, to int64) (err error) {
		tokens[part], longest[part], err = x.checkSequences(from, to)
		return err
	})
	if err != nil {
		return err
	}
	for part := range tokens {
		x.tokens += tokens[part]
		x.longest = max(x.longest, longest[part])
	}
	if end := x.end(x.n); end != x.bin.size {
		return exitcode.Errorf(exitcode.BadData, "the sequences end at byte %d of %s, which has %d bytes: the two files do not match", end, x.bin.path, x.bin.size)
	}
	return x.checkDocuments()
}

// end is the byte of .bin at which the sequences before number i end.
func (x *Indexed) end(i int64) int64 {
	if i == 0 {
		return 0
	}
	return x.pointer(i-1) + x.Size(i-1)*int64(x.dtype.Size())
}

// checkSequences checks sequences [from, to) and gives the sum and the maximum of their lengths.
func (x *Indexed) checkSequences(from, to int64) (tokens, longest int64, err error) {
	item, end, bin := int64(x.dtype.Size()), x.end(from), x.bin.size
	sizes, pointers := x.sizes[4*from:4*to], x.pointers[8*from:8*to]
	for i := from; len(sizes) >= 4 && len(pointers) >= 8; i++ {
		size, at := int64(int32(binary.LittleEndian.Uint32(sizes))), int64(binary.LittleEndian.Uint64(pointers))
		if size < 0 || at < end || at > bin || size*item > bin-at {
			return 0, 0, x.sequenceError(i, end)
		}
		sizes, pointers = sizes[4:], pointers[8:]
		end = at + size*item
		tokens += size
		longest = max(longest, size)
	}
	return tokens, longest, nil
}

// sequenceError says what is wrong with sequence i, before which the sequences end at byte end.
func (x *Indexed) sequenceError(i, end int64) error {
	size, at := int32(x.Size(i)), x.pointer(i)
	switch {
	case size < 0:
		return exitcode.Errorf(exitcode.BadData, "byte %d: sequence %d has the negative length %d", x.at.sizes+x.at.sizeStep*i, i, size)
	case at < end:
		return exitcode.Errorf(exitcode.BadData, "byte %d: sequence %d starts at byte %d of the .bin file, but the previous sequence ends at byte %d", x.at.pointers+8*i, i, at, end)
	}
	return exitcode.Errorf(exitcode.BadData, "byte %d: sequence %d, with %d tokens from byte %d, ends beyond the end of %s, which has %d bytes: the two files do not match, or one of them was truncated", x.at.pointers+8*i, i, size, at, x.bin.path, x.bin.size)
}

// checkDocuments checks that the boundaries rise from 0 to the number of sequences.
func (x *Indexed) checkDocuments() error {
	start := x.at.documents
	err := x.inSpans(x.Documents()+1, func(_ int, from, to int64) error {
		last := int64(0)
		if from > 0 {
			last = x.document(from - 1)
		}
		for i := from; i < to; i++ {
			v := x.document(i)
			if v < last || v > x.n || i == 0 && v != 0 {
				return exitcode.Errorf(exitcode.BadData, "byte %d: document boundary %d is at sequence %d, but must be between %d (the previous boundary) and %d (the number of sequences)", start+8*i, i, v, last, x.n)
			}
			last = v
		}
		return nil
	})
	if err != nil {
		return err
	}
	if last := x.document(x.Documents()); last != x.n {
		return exitcode.Errorf(exitcode.BadData, "byte %d: the last document ends at sequence %d, but there are %d sequences", start+8*x.Documents(), last, x.n)
	}
	return nil
}
