package gguf

import (
	"bufio"
	"io"
	"os"

	"monotron/internal/exitcode"
)

// Tensor is a tensor of a file.
type Tensor struct {
	Name   string
	Dims   []int64 // ggml's order: elements of a row first
	Type   Type
	Offset int64 // in the file
	Bytes  int64
}

// Elements counts all elements.
func (t Tensor) Elements() int64 {
	n := int64(1)
	for _, d := range t.Dims {
		n *= d
	}
	return n
}

// Shape is Dims reversed: row-major as everywhere else.
func (t Tensor) Shape() []int64 {
	shape := make([]int64, len(t.Dims))
	for i, d := range t.Dims {
		shape[len(shape)-1-i] = d
	}
	return shape
}

// File is an open GGUF file whose description was checked. Its methods may be
// called from several goroutines.
type File struct {
	Path    string
	Version uint32
	Keys    []string // of the metadata, as they follow each other
	Tensors []Tensor // as they are listed

	file   *os.File
	values map[string]Value
	index  map[string]int
}

// Is reports whether path is a file that begins as GGUF does.
func Is(path string) bool {
	f, err := exitcode.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var head [len(magic)]byte
	_, err = io.ReadFull(f, head[:])
	return err == nil && string(head[:]) == magic
}

// Open reads and checks the description of a file. A malformed file is
// exitcode.BadData with the byte where that was noticed, a missing one
// exitcode.NoInput.
func Open(path string) (*File, error) {
	f, err := exitcode.Open(path)
	if err != nil {
		return nil, err
	}
	g := &File{Path: path, file: f}
	if err := g.read(); err != nil {
		_ = f.Close() // opened for reading
		return nil, err
	}
	return g, nil
}

func (g *File) read() error {
	st, err := g.file.Stat()
	if err != nil {
		return exitcode.With(exitcode.IO, err)
	}
	// Header, metadata, descriptions of tensors, in the file's order; then where the data lies.
	h := &header{path: g.Path, in: bufio.NewReaderSize(g.file, 1<<20), size: st.Size()}
	version, tensors, keys, err := h.counts()
	if err != nil {
		return err
	}
	g.Version = version
	if g.Keys, g.values, err = h.metadata(keys); err != nil {
		return err
	}
	alignment, err := h.alignment(g.values)
	if err != nil {
		return err
	}
	g.index = map[string]int{}
	for i := range tensors {
		t, err := h.tensor(i)
		if err != nil {
			return err
		}
		if _, twice := g.index[t.Name]; twice {
			return h.bad("tensor %q occurs twice", t.Name)
		}
		g.index[t.Name] = i
		g.Tensors = append(g.Tensors, t)
	}
	return h.locate(g.Tensors, alignment)
}

// Close closes the file.
func (g *File) Close() error { return g.file.Close() }

// Value gives the metadata of a key; a key that is not there has a Value whose methods
// all answer with ok false.
func (g *File) Value(key string) (v Value, ok bool) {
	if v, ok = g.values[key]; !ok {
		v.kind = noValue
	}
	return v, ok
}

// Tensor finds a tensor by its name.
func (g *File) Tensor(name string) (t Tensor, ok bool) {
	i, ok := g.index[name]
	if !ok {
		return Tensor{}, false
	}
	return g.Tensors[i], true
}

// Float32 fills dst with the elements of a tensor from `first`, counted row-major,
// dequantised as ggml does. first and len(dst) may be any within the tensor.
func (g *File) Float32(t Tensor, dst []float32, first int64) error {
	const most = 64 << 10 // elements at a time
	block := t.Type.BlockElements()
	var raw []byte
	var spare []float32
	for len(dst) > 0 {
		skip := first % block
		n := min(int64(len(dst)), most-skip)
		padded := (skip + n + block - 1) / block * block
		raw = grown(raw, t.Type.Bytes(padded))
		if err := g.ReadAt(t, raw, t.Type.Bytes(first-skip)); err != nil {
			return err
		}
		if padded == n {
			Decode(dst[:n], t.Type, raw)
		} else {
			spare = grown(spare, padded)
			Decode(spare, t.Type, raw)
			copy(dst, spare[skip:skip+n])
		}
		dst, first = dst[n:], first+n
	}
	return nil
}

func grown[T any](b []T, n int64) []T {
	if int64(cap(b)) < n {
		return make([]T, n)
	}
	return b[:n]
}

// ReadAt fills dst with the stored bytes of a tensor from `at`.
func (g *File) ReadAt(t Tensor, dst []byte, at int64) error {
	if at < 0 || at+int64(len(dst)) > t.Bytes {
		return exitcode.Errorf(exitcode.Internal, "%s: internal error: bytes %d to %d of tensor %q were requested, but it has %d bytes; report this, and include the command line", g.Path, at, at+int64(len(dst)), t.Name, t.Bytes)
	}
	if _, err := g.file.ReadAt(dst, t.Offset+at); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return exitcode.Errorf(exitcode.IO, "%s: tensor %q: byte %d: %w", g.Path, t.Name, t.Offset+at, err)
	}
	return nil
}
