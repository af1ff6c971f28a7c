package offload

import (
	"errors"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"unsafe"

	"monotron/csrc/device"
	"monotron/internal/atomicfile"
	"monotron/internal/exitcode"
)

// File is a device.Store in a file of its size. What begins and ends at pages, in the file and
// in memory, goes past the page cache where the file system can do that; the rest goes
// through it and is dropped there at once.
type File struct {
	path   string
	rank   int
	plain  *os.File
	direct *os.File // nil: this file system has no such access
}

// create makes the file, with space on the disk for all of it where the file system can say
// that beforehand.
func create(path string, rank int, bytes int64) (*File, error) {
	f := &File{path: path, rank: rank}
	var err error
	if f.plain, err = atomicfile.Scratch(path, 0o600); err != nil {
		return nil, exitcode.Errorf(exitcode.IO, "--offload-folder: rank %d: cannot create %s: %w", rank, path, inner(err))
	}
	if err = f.plain.Truncate(0); err == nil { // what a killed run left
		err = reserve(f.plain, bytes)
	}
	if err != nil {
		_ = errors.Join(f.plain.Close(), os.Remove(path)) // the error before it is the one to tell
		return nil, f.trouble("allocate space for", bytes, 0, err)
	}
	f.direct = openDirect(path)
	return f, nil
}

func (f *File) close() error {
	if f.direct == nil {
		return f.plain.Close()
	}
	return errors.Join(f.direct.Close(), f.plain.Close())
}

// trouble is an error of this file, with what to do.
func (f *File) trouble(what string, bytes, at int64, err error) error {
	advice := "restart the run from its last checkpoint"
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		advice = "free some space, or name a folder on another disk; " + advice
	}
	return exitcode.Errorf(exitcode.IO, "--offload-folder: rank %d: cannot %s %d bytes at byte %d of %s: %w; %s", f.rank, what, bytes, at, f.path, inner(err), advice)
}

// inner is the error without the path, which is said once.
func inner(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// streams of one long read or write, so that the disk has something to do while one of them
// returns; each takes parts of so many bytes.
const (
	streams   = 4
	partBytes = 2 << 20
)

// ReadAt fills dst from byte `at` on.
func (f *File) ReadAt(dst []byte, at int64) error {
	if f.direct != nil && !paged(dst, at) {
		n := len(dst) &^ (device.PageSize - 1)
		if n == 0 || !paged(dst[:n], at) {
			n = 0
		}
		if err := f.around(dst[n:], at+int64(n)); err != nil || n == 0 {
			return err
		}
		dst = dst[:n]
	}
	return f.each(dst, at, func(part []byte, at int64) error {
		if f.direct != nil {
			_, err := f.direct.ReadAt(part, at)
			return f.read(err, len(part), at)
		}
		_, err := f.plain.ReadAt(part, at)
		forget(f.plain, at, int64(len(part)), false)
		return f.read(err, len(part), at)
	})
}

func (f *File) read(err error, n int, at int64) error {
	if err == nil {
		return nil
	}
	return f.trouble("read", int64(n), at, err)
}

// WriteAt writes src from byte `at` on.
func (f *File) WriteAt(src []byte, at int64) error {
	return f.each(src, at, func(part []byte, at int64) (err error) {
		if f.direct != nil && paged(part, at) {
			_, err = f.direct.WriteAt(part, at)
		} else if _, err = f.plain.WriteAt(part, at); err == nil {
			err = forget(f.plain, at, int64(len(part)), true)
		}
		if err == nil {
			return nil
		}
		return f.trouble("write", int64(len(part)), at, err)
	})
}

// around reads pages into a buffer of its own, and copies what is wanted.
func (f *File) around(dst []byte, at int64) error {
	buf := device.Pages(min(partBytes, (at%device.PageSize+int64(len(dst))+device.PageSize-1)&^(device.PageSize-1)))
	for len(dst) > 0 {
		skip := at % device.PageSize
		n := min(int64(len(dst)), partBytes-skip)
		part := buf[:(skip+n+device.PageSize-1)&^(device.PageSize-1)]
		if _, err := f.direct.ReadAt(part, at-skip); err != nil {
			return f.trouble("read", n, at, err)
		}
		copy(dst[:n], part[skip:])
		dst, at = dst[n:], at+n
	}
	return nil
}

// paged reports whether bytes in memory and in the file begin and end at pages.
func paged(b []byte, at int64) bool {
	return len(b) > 0 && uintptr(unsafe.Pointer(&b[0]))%device.PageSize == 0 && at%device.PageSize == 0 && len(b)%device.PageSize == 0
}

// each does work on the parts of b, some at a time; the error is of one of those that failed.
func (f *File) each(b []byte, at int64, work func(part []byte, at int64) error) error {
	if len(b) <= partBytes {
		return work(b, at)
	}
	var (
		running sync.WaitGroup
		mu      sync.Mutex
		next    int
		failed  error
	)
	// Threads take the next part until none is left or one has failed: no part waits for a slow neighbour.
	take := func() (from int, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		from, next = next, next+partBytes
		return from, from < len(b) && failed == nil
	}
	for range streams {
		running.Go(func() {
			for from, ok := take(); ok; from, ok = take() {
				if err := work(b[from:min(len(b), from+partBytes)], at+int64(from)); err != nil {
					mu.Lock()
					failed = err
					mu.Unlock()
				}
			}
		})
	}
	running.Wait()
	return failed
}
