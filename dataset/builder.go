package dataset

import (
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"monotron/fault"
)

// Builder writes a pair <prefix>.bin, <prefix>.idx, document by document. The
// files appear under their names in Finalize, .idx last; Abort leaves nothing.
type Builder struct {
	prefix    string
	dtype     DType
	bin       *newFile
	lengths   []int32
	documents []int64 // boundaries; documents[0] = 0
	tokens    int64
	raw       []byte
}

// NewBuilder starts a pair. The folder of prefix must exist.
func NewBuilder(prefix string, dtype DType) (*Builder, error) {
	bin, err := createFile(prefix + ".bin")
	if err != nil {
		return nil, err
	}
	return &Builder{prefix: prefix, dtype: dtype, bin: bin, documents: []int64{0}}, nil
}

// AddDocument adds one document: tokens cut into sequences of the given
// lengths. No lengths is an empty document: a boundary without a sequence.
func (b *Builder) AddDocument(tokens []int32, lengths []int32) (err error) {
	if b.raw, err = b.dtype.Append(b.raw[:0], tokens); err != nil {
		return err
	}
	return b.AddEncoded(b.raw, lengths)
}

// AddEncoded is AddDocument for tokens already in the file's form (DType.Append).
func (b *Builder) AddEncoded(raw []byte, lengths []int32) error {
	sum := int64(0)
	for _, n := range lengths {
		sum += int64(n)
	}
	if sum*int64(b.dtype.Size()) != int64(len(raw)) {
		return fault.Errorf(fault.Internal, "%s: %d bytes of %s for sequences of %d tokens", b.prefix, len(raw), b.dtype, sum)
	}
	if _, err := b.bin.Write(raw); err != nil {
		return fault.Errorf(fault.IO, "%s.bin: %w", b.prefix, err)
	}
	b.lengths = append(b.lengths, lengths...)
	b.documents = append(b.documents, int64(len(b.lengths)))
	b.tokens += sum
	return nil
}

// addIndexed copies all documents of another pair.
func (b *Builder) addIndexed(x *Indexed) error {
	if x.dtype != b.dtype {
		return fault.Errorf(fault.BadData, "%s holds %s, the pairs before it %s; only pairs of one type can be merged", x.prefix, x.dtype, b.dtype)
	}
	if _, err := io.Copy(b.bin, io.NewSectionReader(x.bin, 0, x.bin.size)); err != nil {
		return fault.Errorf(fault.IO, "%s.bin: copying %s: %w", b.prefix, x.bin.path, err)
	}
	base := int64(len(b.lengths))
	for i := int64(0); i < x.n; i++ {
		b.lengths = append(b.lengths, int32(x.Size(i)))
	}
	for i := int64(1); i <= x.Documents(); i++ {
		b.documents = append(b.documents, base+x.document(i))
	}
	b.tokens += x.tokens
	return nil
}

// Documents, Sequences and Tokens count what was added.
func (b *Builder) Documents() int64 { return int64(len(b.documents) - 1) }
func (b *Builder) Sequences() int64 { return int64(len(b.lengths)) }
func (b *Builder) Tokens() int64    { return b.tokens }

// Finalize writes the index and gives both files their names. An older .idx goes
// first, so that no moment shows it beside the new .bin.
func (b *Builder) Finalize() error {
	defer b.bin.abort()
	idx, err := createFile(b.prefix + ".idx")
	if err != nil {
		return err
	}
	defer idx.abort()
	if err := errors.Join(b.writeIndex(idx), b.bin.sync(), idx.sync()); err != nil {
		return err
	}
	if err := os.Remove(b.prefix + ".idx"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fault.With(fault.IO, err)
	}
	if err := errors.Join(b.bin.publish(), idx.publish()); err != nil {
		return err
	}
	syncDir(filepath.Dir(b.prefix))
	return nil
}

// Abort drops what was written. After Finalize it does nothing.
func (b *Builder) Abort() { b.bin.abort() }

func (b *Builder) writeIndex(w io.Writer) error {
	le := binary.LittleEndian
	head := append([]byte(idxMagic), make([]byte, headerBytes-len(idxMagic))...)
	le.PutUint64(head[9:], idxVersion)
	head[17] = byte(b.dtype)
	le.PutUint64(head[18:], uint64(len(b.lengths)))
	le.PutUint64(head[26:], uint64(len(b.documents)))
	at, item, pointers := int64(0), int64(b.dtype.Size()), make([]byte, 0, 8*len(b.lengths))
	for _, n := range b.lengths {
		pointers = le.AppendUint64(pointers, uint64(at))
		at += int64(n) * item
	}
	for _, part := range []any{head, b.lengths, pointers, b.documents} {
		if err := binary.Write(w, le, part); err != nil {
			return fault.Errorf(fault.IO, "%s.idx: %w", b.prefix, err)
		}
	}
	return nil
}

// Merge joins pairs into a new one, in the order given.
func Merge(out string, prefixes []string) (err error) {
	var b *Builder
	for _, p := range prefixes {
		x, err := Open(p)
		if err == nil && b == nil {
			b, err = NewBuilder(out, x.dtype)
		}
		if err == nil {
			err = b.addIndexed(x)
		}
		if x != nil {
			err = errors.Join(err, x.Close())
		}
		if err != nil {
			if b != nil {
				b.Abort()
			}
			return err
		}
	}
	if b == nil {
		return fault.Errorf(fault.NoInput, "%s: there is nothing to merge", out)
	}
	return b.Finalize()
}
