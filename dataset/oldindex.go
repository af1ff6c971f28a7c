package dataset

import (
	"encoding/binary"
	"errors"
	"io"

	"monotron/internal/exitcode"
)

// The .idx file of --dataset-impl lazy and cached, which Megatron wrote until
// 2023: 8 bytes of magic, u64 version, u64 dtype, u64 bytes a token, u64 items
// n, u64 sizes s, u64 document entries d, then i64 arrays: dim_offsets[n+1]
// (where an item's sizes begin: all items have one), data_offsets[n+1] (in
// tokens), sizes[s], boundaries[d].
const (
	oldMagic  = "TNTIDX\x00\x00"
	oldHeader = 56
	// firstHeader is that of Megatron's very first files, as of fairseq's: no
	// document entries, and every token stored one higher.
	firstHeader = 48
)

func (b *Builder) writeOldIndex(w io.Writer) error {
	n := b.done.Sequences
	_, err := io.WriteString(w, oldMagic)
	err = errors.Join(err, writeLongs(w, idxVersion, int64(b.DType), int64(b.DType.Size()), n, n, b.done.Documents+1))
	for i := int64(0); i <= n && err == nil; i++ {
		err = writeLongs(w, i)
	}
	return errors.Join(err,
		b.eachLength(offsets(w, 1)), writeLongs(w, b.done.Tokens),
		b.eachLength(func(n int64) error { return writeLongs(w, n) }),
		writeLongs(w, 0), copyFrom(w, b.bounds))
}

// parseOld reads that index into arrays of the new form.
func (x *Indexed) parseOld(idx []byte) error {
	if len(idx) < firstHeader {
		return exitcode.Errorf(exitcode.BadData, "byte %d: the file ends inside the header of %d bytes", len(idx), oldHeader)
	}
	// The header: version, type, bytes of a token, items, sizes.
	long := func(at int64) uint64 { return binary.LittleEndian.Uint64(idx[at:]) }
	version, code, item, n, s := long(8), long(16), long(24), long(32), long(40)
	if version != idxVersion {
		return exitcode.Errorf(exitcode.BadData, "byte 8: the index has version %d; only version %d is supported", version, idxVersion)
	}
	if code > 255 || dtypes[DType(code)].top < 0 || item == 0 || uint64(DType(code).Size()) != item {
		return exitcode.Errorf(exitcode.BadData, "byte 16: %s of %d bytes is not a supported data type for token ids", DType(code&255), item)
	}
	x.dtype = DType(code)
	// Counts are bounded by the file's size before anything is made of them.
	size := uint64(len(idx))
	if n != s {
		return exitcode.Errorf(exitcode.BadData, "byte 32: there are %d items, but %d sizes; every item must have one dimension", n, s)
	}
	if n > size/24 {
		return exitcode.Errorf(exitcode.BadData, "byte 32: %d items do not fit into the %d bytes of the file", n, size)
	}
	// Two ages of the format: a header with or without the number of documents.
	arrays := 8 * (3*n + 2)
	start, d := uint64(oldHeader), uint64(0)
	if size == firstHeader+arrays {
		start, x.shift = firstHeader, 1
	} else if size < oldHeader {
		return exitcode.Errorf(exitcode.BadData, "byte %d: the file ends inside the header of %d bytes", size, oldHeader)
	} else if d = long(48); d < 1 || d > size/8 || size != oldHeader+arrays+8*d {
		return exitcode.Errorf(exitcode.BadData, "byte 32: %d items and %d document entries do not match the %d bytes of the file", n, d, size)
	}
	return x.convertOld(idx, int64(start), int64(n), int64(d))
}

// convertOld copies arrays that begin at byte start. d = 0: a document for every
// sequence.
func (x *Indexed) convertOld(idx []byte, start, n, d int64) error {
	long := func(array, i int64) int64 { return int64(binary.LittleEndian.Uint64(idx[start+8*(array+i):])) }
	dims, data, sizes, bounds := int64(0), n+1, 2*n+2, 3*n+2
	x.at = tables{start + 8*sizes, 8, start + 8*data, start + 8*bounds}
	x.n, x.sizes, x.pointers = n, make([]byte, 0, 4*n), make([]byte, 0, 8*n)
	for i := range n {
		length := long(sizes, i)
		switch {
		case long(dims, i) != i:
			return exitcode.Errorf(exitcode.BadData, "byte %d: the sizes of item %d begin at index %d instead of %d; every item must have one dimension", start+8*(dims+i), i, long(dims, i), i)
		case length < 0 || length > 1<<31-1:
			return exitcode.Errorf(exitcode.BadData, "byte %d: sequence %d has the length %d; lengths are 0 to 2147483647", start+8*(sizes+i), i, length)
		case long(data, i) < 0 || long(data, i) > x.bin.size:
			return exitcode.Errorf(exitcode.BadData, "byte %d: sequence %d starts at token %d, which is beyond the end of %s, which has %d bytes", start+8*(data+i), i, long(data, i), x.bin.path, x.bin.size)
		}
		x.sizes = binary.LittleEndian.AppendUint32(x.sizes, uint32(length))
		x.pointers = binary.LittleEndian.AppendUint64(x.pointers, uint64(long(data, i)*int64(x.dtype.Size())))
	}
	if d > 0 {
		x.documents = idx[start+8*bounds:]
		return nil
	}
	x.documents = everySequence(n)
	return nil
}

// everySequence are the boundaries where each sequence is a document.
func everySequence(n int64) []byte {
	out := make([]byte, 0, 8*(n+1))
	for i := range n + 1 {
		out = binary.LittleEndian.AppendUint64(out, uint64(i))
	}
	return out
}
