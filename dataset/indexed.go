package dataset

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"

	"monotron/internal/exitcode"
)

// Source is numbered sequences of token ids: files (Indexed) or mock data.
type Source interface {
	Len() int64
	// Size is the number of tokens of sequence i.
	Size(i int64) int64
	// Longest is the largest Size.
	Longest() int64
	// Slice adds n tokens of sequence i, from token off on, to dst.
	Slice(i, off, n int64, dst []int32) ([]int32, error)
	// Where names token off of sequence i for an error message.
	Where(i, off int64) string
}

// Indexed reads a pair <prefix>.bin, <prefix>.idx. It is safe for use by several
// goroutines until Close.
type Indexed struct {
	prefix    string
	dtype     DType
	n         int64
	sizes     []byte // i32[n]
	pointers  []byte // i64[n]
	documents []byte // i64[documents+1]
	modes     []byte // i8[n], multimodal files only
	shift     int32  // how much higher than the ids tokens are stored
	at        tables
	tokens    int64
	longest   int64
	idx, bin  *blob
}

// Open maps a pair and checks the complete index: after it every Slice within
// Size is readable.
func Open(prefix string) (*Indexed, error) { return open(prefix, openOptions{mapBin: true, eod: -1}) }

// OpenUnmapped reads .bin through a file handle (--no-mmap-bin-files).
func OpenUnmapped(prefix string) (*Indexed, error) { return open(prefix, openOptions{eod: -1}) }

// tables are where the arrays begin in the index file, for messages.
type tables struct{ sizes, sizeStep, pointers, documents int64 }

type openOptions struct {
	mapBin     bool
	multimodal bool
	eod        int32 // ends the documents of a file without index
}

func open(prefix string, o openOptions) (x *Indexed, err error) {
	if IsTokenFile(prefix) {
		if pair, _ := strings.CutSuffix(prefix, ".bin"); exists(pair + ".idx") {
			return nil, halfOfPair(pair)
		}
		return OpenTokens(prefix, o.eod)
	}
	x = &Indexed{prefix: prefix}
	if x.idx, err = openBlob(prefix+".idx", true); err != nil {
		return nil, err
	}
	if x.bin, err = openBlob(prefix+".bin", o.mapBin); err != nil {
		return nil, errors.Join(err, x.idx.close())
	}
	if err = x.readIndex(o.multimodal); err != nil {
		return nil, errors.Join(err, x.Close())
	}
	return x, nil
}

// halfOfPair is the error for whoever names the .bin of a pair. Read as tokens without index it would have other
// documents, and other tokens if they take more than 2 bytes.
func halfOfPair(prefix string) error {
	return exitcode.Errorf(exitcode.Usage, "%s.bin belongs to %s.idx, which describes the tokens of the .bin file; give the common prefix of these two files, %s", prefix, prefix, prefix)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// readIndex finds the arrays in the mapped index and checks them.
func (x *Indexed) readIndex(multimodal bool) error {
	return Guard(x.prefix+".idx", func() error {
		err := x.parse(x.idx.data, multimodal)
		if err == nil {
			err = x.check()
		}
		if err == nil || exitcode.CodeOf(err) == exitcode.IO { // which names the file itself
			return err
		}
		return exitcode.Errorf(exitcode.BadData, "%s.idx: %w", x.prefix, err)
	})
}

// parse reads the header and finds the arrays.
func (x *Indexed) parse(idx []byte, multimodal bool) error {
	if strings.HasPrefix(string(idx[:min(len(idx), 8)]), oldMagic) {
		return x.parseOld(idx)
	}
	if len(idx) < headerBytes {
		return exitcode.Errorf(exitcode.BadData, "byte %d: the file ends inside the header of %d bytes", len(idx), headerBytes)
	}
	if string(idx[:len(idxMagic)]) != idxMagic {
		return exitcode.Errorf(exitcode.BadData, "byte 0: the file begins with %q; an index file begins with %q", idx[:9], idxMagic)
	}
	if v := binary.LittleEndian.Uint64(idx[9:]); v != idxVersion {
		return exitcode.Errorf(exitcode.BadData, "byte 9: the index has version %d; only version %d is supported", v, idxVersion)
	}
	x.dtype = DType(idx[17])
	if t := dtypes[x.dtype]; t.size == 0 || t.top < 0 {
		return exitcode.Errorf(exitcode.BadData, "byte 17: %s is not a supported data type for token ids", x.dtype)
	}
	n, d := binary.LittleEndian.Uint64(idx[18:]), binary.LittleEndian.Uint64(idx[26:])
	size := uint64(len(idx))
	if n <= size/12 && size == firstHeaderMM+12*n { // Megatron's very first files count no documents
		return x.parseFirst(idx, int64(n))
	}
	if n > size/12 || d > size/8 || d < 1 || size != headerBytes+12*n+8*d && size != headerBytes+13*n+8*d {
		return exitcode.Errorf(exitcode.BadData, "byte 18: %d sequences and %d document entries need %s bytes, but the file has %d", n, d, neededBytes(n, d), size)
	}
	if hasModes := n > 0 && size == headerBytes+13*n+8*d; n > 0 && hasModes != multimodal {
		if hasModes {
			return exitcode.Errorf(exitcode.BadData, "byte %d: the index has a mode for each sequence, which only merge_datasets --multimodal reads", headerBytes+12*n+8*d)
		}
		return exitcode.Errorf(exitcode.BadData, "byte %d: the index has no modes of sequences; leave --multimodal out", headerBytes+12*n+8*d)
	}
	x.n = int64(n)
	x.at = tables{headerBytes, 4, headerBytes + 4*x.n, headerBytes + 12*x.n}
	x.sizes, idx = idx[headerBytes:headerBytes+4*n], idx[headerBytes+4*n:]
	x.pointers, x.documents, x.modes = idx[:8*n], idx[8*n:8*n+8*d], idx[8*n+8*d:]
	return nil
}

// firstHeaderMM ends before the document count.
const firstHeaderMM = 26

func (x *Indexed) parseFirst(idx []byte, n int64) error {
	x.n, x.at = n, tables{firstHeaderMM, 4, firstHeaderMM + 4*n, 0}
	x.sizes, x.pointers = idx[firstHeaderMM:firstHeaderMM+4*n], idx[firstHeaderMM+4*n:]
	x.documents = everySequence(n)
	return nil
}

func neededBytes(n, d uint64) string {
	if n > math.MaxInt64/16 || d > math.MaxInt64/16 {
		return "far more"
	}
	return fmt.Sprintf("%d", headerBytes+12*n+8*d)
}

func (x *Indexed) pointer(i int64) int64 {
	return int64(binary.LittleEndian.Uint64(x.pointers[8*i:]))
}

func (x *Indexed) document(i int64) int64 {
	return int64(binary.LittleEndian.Uint64(x.documents[8*i:]))
}

// Prefix is the path the pair was opened with.
func (x *Indexed) Prefix() string { return x.prefix }

// DType is the type of the stored tokens.
func (x *Indexed) DType() DType { return x.dtype }

// Len counts sequences.
func (x *Indexed) Len() int64 { return x.n }

// Tokens counts the tokens of all sequences.
func (x *Indexed) Tokens() int64 { return x.tokens }

// Longest is the largest number of tokens of a sequence.
func (x *Indexed) Longest() int64 { return x.longest }

// Documents counts documents; the index stores one entry more.
func (x *Indexed) Documents() int64 { return int64(len(x.documents)/8) - 1 }

// Document is the range of sequences [first, end) of document i.
func (x *Indexed) Document(i int64) (first, end int64) { return x.document(i), x.document(i + 1) }

// Size is the number of tokens of sequence i. It reads the mapped index, as Document,
// Slice and Where do: a program calls them in a Guard.
func (x *Indexed) Size(i int64) int64 {
	return int64(binary.LittleEndian.Uint32(x.sizes[4*i:]))
}

// Sequence gives all tokens of sequence i.
func (x *Indexed) Sequence(i int64) (_ []int32, err error) {
	defer catching()()
	defer caught(x.prefix, &err)
	if i < 0 || i >= x.n {
		return nil, exitcode.Errorf(exitcode.BadData, "%s: sequence %d is out of range; the index has %d sequences", x.prefix, i, x.n)
	}
	return x.Slice(i, 0, x.Size(i), make([]int32, 0, x.Size(i)))
}

// Slice adds n tokens of sequence i, from token off on, to dst. A range beyond
// the sequence is an error (Megatron reads on into the next one).
func (x *Indexed) Slice(i, off, n int64, dst []int32) ([]int32, error) {
	if i < 0 || i >= x.n {
		return dst, exitcode.Errorf(exitcode.BadData, "%s: sequence %d is out of range; the index has %d sequences", x.prefix, i, x.n)
	}
	if off < 0 || n < 0 || off > x.Size(i) || n > x.Size(i)-off {
		return dst, exitcode.Errorf(exitcode.BadData, "%s: tokens %d to %d of sequence %d are out of range; the sequence has %d tokens", x.prefix, off, off+n, i, x.Size(i))
	}
	if n == 0 {
		return dst, nil
	}
	item := int64(x.dtype.Size())
	raw, err := x.bin.at(x.pointer(i)+off*item, n*item, nil)
	if err != nil {
		return dst, err
	}
	from := len(dst)
	if dst, err = x.dtype.decode(dst, raw); err != nil {
		return dst, exitcode.Errorf(exitcode.BadData, "%s: %w", x.Where(i, off), err)
	}
	if x.shift != 0 {
		for k := range dst[from:] {
			dst[from+k] -= x.shift
		}
	}
	return dst, nil
}

// Where names a token: file, byte, sequence and position in it.
func (x *Indexed) Where(i, off int64) string {
	return fmt.Sprintf("%s, byte %d (sequence %d, token %d)", x.bin.path, x.pointer(i)+off*int64(x.dtype.Size()), i, off)
}

// Close gives the mappings back; nothing read through x may be used after it.
func (x *Indexed) Close() error { return errors.Join(x.idx.close(), x.bin.close()) }
