package dataset

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"

	"monotron/internal/atomicfile"
	"monotron/internal/exitcode"
)

// Format is how a Builder's tokens are laid out in files.
type Format int

const (
	Pair    Format = iota // .bin and .idx, Megatron's (MMIDIDX)
	OldPair               // .bin and .idx of --dataset-impl lazy and cached (TNTIDX)
	LLMC                  // one .bin with llm.c's header
	Raw                   // one .bin of bare u16 tokens, nanoGPT's
)

// hasIndex: the format has an .idx file.
func (f Format) hasIndex() bool { return f == Pair || f == OldPair }

// BuilderConfig says what a Builder writes.
type BuilderConfig struct {
	Prefix     string
	DType      DType
	Format     Format
	Multimodal bool // sequences have modes; Pair only
	// Resumable keeps unfinished files under fixed names when the process dies.
	// A Builder opened with From continues them.
	Resumable bool
	From      *Mark
}

// Mark is a position from which a Builder can be resumed: how much was safely on disk.
type Mark struct {
	Bytes     int64 `json:"bytes"` // of .bin
	Documents int64 `json:"documents"`
	Sequences int64 `json:"sequences"`
	Tokens    int64 `json:"tokens"`
}

// Builder writes token files document by document, in memory that does not grow:
// lengths and boundaries wait in files of their own until Finalize. The files
// appear under their names in Finalize, .idx last; Abort leaves nothing.
type Builder struct {
	BuilderConfig
	bin     *newFile
	lengths *newFile // i32 each
	bounds  *newFile // i64 each: sequences before the end of each document
	modes   *newFile // i8 each, multimodal only
	idx     *newFile // from Prepare on
	done    Mark
	raw     []byte
	small   []byte
}

// NewBuilder starts a pair. The folder of prefix must exist.
func NewBuilder(prefix string, dtype DType) (*Builder, error) {
	return OpenBuilder(BuilderConfig{Prefix: prefix, DType: dtype})
}

// OpenBuilder starts the files of c, or continues them.
func OpenBuilder(c BuilderConfig) (*Builder, error) {
	b := &Builder{BuilderConfig: c}
	if c.From != nil {
		b.done = *c.From
	}
	if err := b.openFiles(); err != nil {
		b.Abort()
		return nil, err
	}
	if c.Format == LLMC && b.bin.at == 0 {
		if _, err := b.bin.Write(make([]byte, llmcHeader)); err != nil {
			return nil, exitcode.With(exitcode.IO, err)
		}
	}
	return b, nil
}

func (b *Builder) openFiles() error {
	open := func(to **newFile, name string, at int64) (err error) {
		if b.Resumable {
			*to, err = continueFile(b.Prefix+name, at)
		} else {
			*to, err = createFile(b.Prefix + name)
		}
		return err
	}
	if err := open(&b.bin, ".bin", b.done.Bytes); err != nil {
		return err
	}
	if err := open(&b.lengths, ".lengths", 4*b.done.Sequences); err != nil {
		return err
	}
	if b.Multimodal {
		if err := open(&b.modes, ".modes", b.done.Sequences); err != nil {
			return err
		}
	}
	return open(&b.bounds, ".bounds", 8*b.done.Documents)
}

// files are all that are open.
func (b *Builder) files() (list []*newFile) {
	for _, f := range []*newFile{b.bin, b.lengths, b.bounds, b.modes, b.idx} {
		if f != nil {
			list = append(list, f)
		}
	}
	return list
}

// AddDocument adds one document: tokens cut into sequences of the given
// lengths. No lengths is an empty document: a boundary without a sequence.
func (b *Builder) AddDocument(tokens []int32, lengths []int32) (err error) {
	if b.raw, err = b.DType.Append(b.raw[:0], tokens); err != nil {
		return err
	}
	return b.AddEncoded(b.raw, lengths, []int32{int32(len(lengths))})
}

// AddEncoded adds documents whose tokens are already in the file's form
// (DType.Append): lengths of all sequences, and how many of these each document
// has.
func (b *Builder) AddEncoded(raw []byte, lengths, perDoc []int32) error {
	b.small = b.small[:0]
	sum := int64(0)
	for _, n := range lengths {
		sum += int64(n)
		b.small = binary.LittleEndian.AppendUint32(b.small, uint32(n))
	}
	if sum*int64(b.DType.Size()) != int64(len(raw)) {
		return exitcode.Errorf(exitcode.Internal, "%s: internal error: %d bytes of %s do not match sequences of %d tokens; report this, and include the command line", b.Prefix, len(raw), b.DType, sum)
	}
	_, err := b.bin.Write(raw)
	_, err2 := b.lengths.Write(b.small)
	b.small = b.small[:0]
	for _, n := range perDoc {
		b.done.Sequences += int64(n)
		b.small = binary.LittleEndian.AppendUint64(b.small, uint64(b.done.Sequences))
	}
	_, err3 := b.bounds.Write(b.small)
	if err := errors.Join(err, err2, err3); err != nil {
		return exitcode.Errorf(exitcode.IO, "%s.bin: %w", b.Prefix, err)
	}
	b.done.Documents += int64(len(perDoc))
	b.done.Tokens += sum
	return nil
}

// addIndexed copies all documents of another pair.
func (b *Builder) addIndexed(x *Indexed) error {
	if x.dtype != b.DType {
		return exitcode.Errorf(exitcode.BadData, "%s has tokens of type %s, but the pairs before it have type %s; only pairs of the same type can be merged", x.prefix, x.dtype, b.DType)
	}
	_, err := io.Copy(b.bin, io.NewSectionReader(x.bin, 0, x.bin.size))
	_, err2 := b.lengths.Write(x.sizes)
	if b.Multimodal {
		_, err3 := b.modes.Write(x.modes)
		err = errors.Join(err, err3)
	}
	for i := int64(1); i <= x.Documents() && err == nil; i++ {
		b.small = binary.LittleEndian.AppendUint64(b.small[:0], uint64(b.done.Sequences+x.document(i)))
		_, err = b.bounds.Write(b.small)
	}
	if err := errors.Join(err, err2); err != nil {
		return exitcode.Errorf(exitcode.IO, "%s.bin: copying %s: %w", b.Prefix, x.bin.path, err)
	}
	b.done.Sequences += x.n
	b.done.Documents += x.Documents()
	b.done.Tokens += x.tokens
	return nil
}

// Documents, Sequences and Tokens count what was added.
func (b *Builder) Documents() int64 { return b.done.Documents }
func (b *Builder) Sequences() int64 { return b.done.Sequences }
func (b *Builder) Tokens() int64    { return b.done.Tokens }

// Save writes everything added so far to disk, and returns how much that is.
func (b *Builder) Save() (Mark, error) {
	for _, f := range b.files() {
		if err := f.save(); err != nil {
			return Mark{}, err
		}
	}
	b.done.Bytes = b.bin.at
	return b.done, nil
}

// Prepare completes the files under their temporary names.
func (b *Builder) Prepare() error {
	switch {
	case b.Format == LLMC:
		if err := b.fillLLMC(); err != nil {
			return err
		}
	case b.Format.hasIndex():
		if err := b.makeIndex(); err != nil {
			return err
		}
	}
	return b.bin.sync()
}

func (b *Builder) makeIndex() (err error) {
	for _, f := range b.files() {
		err = errors.Join(err, f.flush())
	}
	if err != nil {
		return exitcode.Errorf(exitcode.IO, "%s.bin: %w", b.Prefix, err)
	}
	if b.Resumable {
		b.idx, err = continueFile(b.Prefix+".idx", 0)
	} else {
		b.idx, err = createFile(b.Prefix + ".idx")
	}
	if err != nil {
		return err
	}
	if b.Format == OldPair {
		err = b.writeOldIndex(b.idx)
	} else {
		err = b.writeIndex(b.idx)
	}
	if err != nil {
		return exitcode.Errorf(exitcode.IO, "%s.idx: %w", b.Prefix, err)
	}
	return b.idx.sync()
}

// Finalize completes the files and gives them their names. An older .idx goes
// first, so that it never exists with the new .bin.
func (b *Builder) Finalize() error {
	defer b.Abort()
	if err := b.Prepare(); err != nil {
		return err
	}
	return b.Publish()
}

// Publish gives prepared files their names.
func (b *Builder) Publish() error {
	defer b.Abort()
	if err := removeOld(b.Prefix + ".idx"); err != nil {
		return err
	}
	err := b.bin.publish()
	if err == nil && b.Format.hasIndex() {
		err = b.idx.publish()
	}
	return err
}

// PublishPrepared is Publish for the files of a process that died in it.
func PublishPrepared(c BuilderConfig) error {
	names := []string{c.Prefix + ".bin"}
	if c.Format.hasIndex() {
		names = append(names, c.Prefix+".idx")
	}
	if _, err := os.Stat(partial(names[0])); err == nil {
		if err := removeOld(c.Prefix + ".idx"); err != nil {
			return err
		}
	}
	for _, name := range names {
		if err := atomicfile.Publish(partial(name), name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	RemovePartial(c)
	return nil
}

// RemovePartial drops what a dead process left behind.
func RemovePartial(c BuilderConfig) {
	for _, ext := range []string{".bin", ".idx", ".lengths", ".bounds", ".modes"} {
		os.Remove(partial(c.Prefix + ext))
	}
}

func removeOld(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return exitcode.With(exitcode.IO, err)
	}
	return nil
}

// Abort drops what was written. After Finalize it does nothing.
func (b *Builder) Abort() {
	for _, f := range b.files() {
		f.abort()
	}
}

func (b *Builder) writeIndex(w io.Writer) error {
	le := binary.LittleEndian
	head := append([]byte(idxMagic), make([]byte, headerBytes-len(idxMagic))...)
	le.PutUint64(head[9:], idxVersion)
	head[17] = byte(b.DType)
	le.PutUint64(head[18:], uint64(b.done.Sequences))
	le.PutUint64(head[26:], uint64(b.done.Documents)+1)
	_, err := w.Write(head)
	return errors.Join(err,
		copyFrom(w, b.lengths),
		b.eachLength(offsets(w, int64(b.DType.Size()))),
		writeLongs(w, 0), copyFrom(w, b.bounds),
		copyFrom(w, b.modes))
}

// offsets gives a function that writes where each sequence starts, in units of
// a token's size.
func offsets(w io.Writer, unit int64) func(n int64) error {
	at := int64(0)
	return func(n int64) error {
		err := writeLongs(w, at)
		at += n * unit
		return err
	}
}

// eachLength goes through the lengths written so far.
func (b *Builder) eachLength(do func(n int64) error) error {
	r := bufio.NewReaderSize(io.NewSectionReader(b.lengths.file, 0, 4*b.done.Sequences), 1<<16)
	var word [4]byte
	for range b.done.Sequences {
		if _, err := io.ReadFull(r, word[:]); err != nil {
			return err
		}
		if err := do(int64(int32(binary.LittleEndian.Uint32(word[:])))); err != nil {
			return err
		}
	}
	return nil
}

func copyFrom(w io.Writer, f *newFile) error {
	if f == nil {
		return nil
	}
	_, err := io.Copy(w, io.NewSectionReader(f.file, 0, f.at))
	return err
}

func writeLongs(w io.Writer, values ...int64) error {
	var word [8]byte
	for _, v := range values {
		binary.LittleEndian.PutUint64(word[:], uint64(v))
		if _, err := w.Write(word[:]); err != nil {
			return err
		}
	}
	return nil
}

// Merge joins pairs into a new one, in the order given.
func Merge(c BuilderConfig, prefixes []string) (err error) {
	var b *Builder
	for _, p := range prefixes {
		x, err := open(p, openOptions{mapBin: true, multimodal: c.Multimodal})
		if err == nil && b == nil {
			c.DType = x.dtype
			b, err = OpenBuilder(c)
		}
		if err == nil {
			err = Guard(p, func() error { return b.addIndexed(x) })
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
		return exitcode.Errorf(exitcode.Internal, "%s: internal error: no pairs to merge were given; report this, and include the command line", c.Prefix)
	}
	return b.Finalize()
}
