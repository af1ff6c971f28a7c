package dataset

import (
	"io"
	"os"
	"runtime/debug"

	"github.com/edsrzf/mmap-go"

	"monotron/internal/exitcode"
)

// blob is a file's bytes: memory-mapped, or read as needed from a handle.
type blob struct {
	path string
	data mmap.MMap // nil when empty or not mapped
	file *os.File  // nil when mapped
	size int64
}

// openBlob opens path; a missing file is exitcode.NoInput.
func openBlob(path string, mapped bool) (*blob, error) {
	f, err := exitcode.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, exitcode.With(exitcode.IO, err)
	}
	b := &blob{path: path, file: f, size: info.Size()}
	if !mapped {
		return b, nil
	}
	b.file = nil
	if b.size > 0 { // an empty file cannot be mapped
		if b.data, err = mmap.Map(f, mmap.RDONLY, 0); err != nil {
			f.Close()
			return nil, exitcode.Errorf(exitcode.IO, "%s cannot be mapped into memory: %w", path, err)
		}
	}
	return b, exitcode.With(exitcode.IO, f.Close())
}

// at gives n bytes from off; the caller has checked them against size. scratch
// is used when the file is not mapped.
func (b *blob) at(off, n int64, scratch []byte) ([]byte, error) {
	if b.file == nil {
		return b.data[off : off+n], nil
	}
	if int64(cap(scratch)) < n {
		scratch = make([]byte, n)
	}
	scratch = scratch[:n]
	if got, err := b.file.ReadAt(scratch, off); int64(got) < n {
		return nil, exitcode.Errorf(exitcode.IO, "%s: reading %d bytes at byte %d: %w", b.path, n, off, err)
	}
	return scratch, nil
}

// Guard calls read, which reads mapped bytes of the file or files named what. Where their
// disk fails, or a file was cut, it is an error (exitcode.IO). Bytes that another goroutine
// reads need a Guard there.
func Guard(what string, read func() error) (err error) {
	defer catching()()
	defer caught(what, &err)
	return read()
}

// caught, deferred behind catching, makes an error of reading mapped bytes that no longer exist: the file was
// cut while in use, or its disk failed.
func caught(what string, err *error) {
	switch e := recover().(type) {
	case nil:
	case interface{ Addr() uintptr }: // a fault, package runtime/debug
		*err = exitcode.Errorf(exitcode.IO, "%s can no longer be read: a file was truncated while in use, or its disk failed", what)
	default:
		panic(e)
	}
}

// catching lets faults of this goroutine panic; what it returns undoes that.
func catching() func() {
	before := debug.SetPanicOnFault(true)
	return func() { debug.SetPanicOnFault(before) }
}

func (b *blob) close() error {
	if b.data != nil {
		return exitcode.With(exitcode.IO, b.data.Unmap())
	}
	if b.file != nil {
		return exitcode.With(exitcode.IO, b.file.Close())
	}
	return nil
}

// ReadAt reads the file as an io.ReaderAt does.
func (b *blob) ReadAt(p []byte, off int64) (n int, err error) {
	if b.file != nil {
		return b.file.ReadAt(p, off)
	}
	if off >= b.size {
		return 0, io.EOF
	}
	err = Guard(b.path, func() error {
		n = copy(p, b.data[off:])
		return nil
	})
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}
