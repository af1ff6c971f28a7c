package torchdist

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"monotron/internal/exitcode"
	"monotron/internal/pickle"
	"monotron/megatron/checkpoint"
)

// maxOpen is how many chunks are kept opened: their bytes are checked when they
// are opened, so that reading one piece by piece does not check it each time.
const maxOpen = 512

// bytesOf reads chunks and objects out of the .distcp files.
type bytesOf struct {
	dir string

	mu     sync.Mutex
	files  map[string]*os.File
	opened map[location]*pickle.Tensor
}

// at is the file at a location.
func (b *bytesOf) at(p location) (*pickle.File, error) {
	f := b.files[p.file]
	if f == nil {
		var err error
		if f, err = exitcode.Open(filepath.Join(b.dir, p.file)); err != nil {
			return nil, err
		}
		b.files[p.file] = f
	}
	return pickle.Read(fmt.Sprintf("%s at byte %d", f.Name(), p.offset), io.NewSectionReader(f, p.offset, p.length), p.length)
}

// object reads [value], as objects are stored.
func (b *bytesOf) object(p location) (pickle.Value, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f, err := b.at(p)
	if err != nil {
		return nil, err
	}
	if items, ok := f.Root.(*pickle.List); ok && len(items.Items) == 1 {
		return items.Items[0], nil
	}
	return f.Root, nil
}

// tensor opens a chunk, which must be what the metadata says.
func (b *bytesOf) tensor(s *stored, c chunk) (*pickle.Tensor, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t := b.opened[c.location]; t != nil {
		return t, nil
	}
	f, err := b.at(c.location)
	if err != nil {
		return nil, err
	}
	t, ok := f.Root.(*pickle.Tensor)
	if !ok || t.DType != s.dtype || fmt.Sprint(t.Shape) != fmt.Sprint(c.box.Size) || !t.Contiguous() {
		return nil, exitcode.Errorf(exitcode.BadData, "%s is not a contiguous %s%v, although .metadata declares it as one", f.Name, s.dtype, c.box.Size)
	}
	if len(b.opened) >= maxOpen {
		clear(b.opened)
	}
	b.opened[c.location] = t
	return t, nil
}

// parts are a tensor's chunks.
func (b *bytesOf) parts(s *stored) []checkpoint.Part {
	parts := make([]checkpoint.Part, len(s.chunks))
	for i, c := range s.chunks {
		parts[i] = checkpoint.Part{Box: c.box, ReadAt: b.reader(s, c, 0)}
	}
	return parts
}

// reader reads a chunk from byte `from` on.
func (b *bytesOf) reader(s *stored, c chunk, from int64) func(dst []byte, at int64) error {
	return func(dst []byte, at int64) error {
		t, err := b.tensor(s, c)
		if err == nil {
			err = t.ReadAt(dst, from+at)
		}
		if err != nil {
			return exitcode.Errorf(codeOr(err), "tensor %q: %w", s.key, err)
		}
		return nil
	}
}

func codeOr(err error) exitcode.Code {
	if c := exitcode.CodeOf(err); c != exitcode.Internal {
		return c
	}
	return exitcode.BadData
}

func (b *bytesOf) close() error {
	var errs []error
	for _, f := range b.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
