package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"monotron/internal/atomicfile"
	"monotron/internal/exitcode"
)

// Folder is a Store in a local folder: keys are paths of files. An ETag is a file's size and
// time of change.
type Folder struct{ Root string }

// Name is the path of the object's file.
func (d Folder) Name(key string) string { return filepath.Join(d.Root, filepath.FromSlash(key)) }

func (d Folder) path(key string) (string, error) {
	if !filepath.IsLocal(filepath.FromSlash(key)) {
		return "", exitcode.Errorf(exitcode.Usage, "store: key %q leads out of the folder %s; give a relative path", key, d.Root)
	}
	return d.Name(key), nil
}

func etagOf(st fs.FileInfo) string { return fmt.Sprintf("%x-%x", st.Size(), st.ModTime().UnixNano()) }

// Open opens the object's file: what is read is one content, whatever takes its name.
func (d Folder) Open(_ context.Context, key string) (*File, error) {
	path, err := d.path(key)
	if err != nil {
		return nil, err
	}
	f, err := exitcode.Open(path)
	if exitcode.CodeOf(err) == exitcode.NoInput {
		return nil, coded(&Error{Op: "open", Name: path, Attempts: 1, Why: fs.ErrNotExist})
	}
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err != nil {
		_ = f.Close() // nothing was read
		return nil, exitcode.With(exitcode.IO, err)
	}
	read := func(p []byte, off int64) error {
		_, err := f.ReadAt(p, off)
		return exitcode.With(exitcode.IO, err)
	}
	return &File{Object{key, st.Size(), etagOf(st)}, path, read, f.Close}, nil
}

// Put writes a file next to the object's and gives it the name. Conditions hold among the
// processes that use this package.
func (d Folder) Put(ctx context.Context, key string, from io.ReaderAt, size int64, when When) (o Object, err error) {
	path, err := d.path(key)
	if err != nil {
		return o, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return o, exitcode.With(exitcode.IO, err)
	}
	// A condition is checked with the folder locked until the file has its name.
	if when != (When{}) {
		unlock, err := d.lock(ctx)
		if err != nil {
			return o, err
		}
		defer unlock()
		if err := when.holds(path); err != nil {
			return o, exitcode.With(exitcode.IO, &Error{Op: "put", Name: path, Attempts: 1, Why: err})
		}
	}
	err = atomicfile.Write(path, 0o666, func(f *os.File) error {
		_, err := io.Copy(f, io.NewSectionReader(from, 0, size))
		return err
	})
	if err != nil {
		return o, err
	}
	st, err := os.Stat(path)
	if err != nil {
		return o, exitcode.With(exitcode.IO, err)
	}
	return Object{key, st.Size(), etagOf(st)}, nil
}

// holds checks a condition on the file at path.
func (w When) holds(path string) error {
	st, err := os.Lstat(path)
	switch {
	case w.absent && err == nil:
		return ErrExists
	case w.etag != "" && (err != nil || etagOf(st) != w.etag):
		return ErrChanged
	}
	return nil
}

// lock waits until no other process checks a condition.
func (d Folder) lock(ctx context.Context) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(d.Root, ".lock"), os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, exitcode.With(exitcode.IO, err)
	}
	for {
		locked, err := atomicfile.Lock(f)
		if err != nil || !locked { // a file system without locks is taken as it is
			return func() { _ = f.Close() }, nil // nothing was written
		}
		select {
		case <-ctx.Done():
			_ = f.Close() // nothing was written
			return nil, context.Cause(ctx)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// List walks the folder.
func (d Folder) List(_ context.Context, prefix string) ([]Object, error) {
	var all []Object
	err := d.walk(prefix, func(key string, e fs.DirEntry) error {
		if strings.HasPrefix(e.Name(), ".") {
			return nil // being written, or the lock
		}
		st, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			all = append(all, Object{key, st.Size(), etagOf(st)})
		}
		return err
	})
	return all, err
}

// walk calls each for the plain files whose keys begin with prefix.
func (d Folder) walk(prefix string, each func(key string, e fs.DirEntry) error) error {
	err := filepath.WalkDir(d.Root, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		key, err := filepath.Rel(d.Root, path)
		if key = filepath.ToSlash(key); err != nil || !strings.HasPrefix(key, prefix) {
			return err
		}
		return each(key, e)
	})
	return exitcode.With(exitcode.IO, err)
}

// Delete removes the object's file, and its folder where that is empty then.
func (d Folder) Delete(_ context.Context, key string) error {
	path, err := d.path(key)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return exitcode.With(exitcode.IO, err)
	}
	if dir := filepath.Dir(path); dir != filepath.Clean(d.Root) {
		_ = os.Remove(dir) // fails where there is more in it
	}
	return nil
}

// Abort removes files that were not complete.
func (d Folder) Abort(_ context.Context, prefix string) (n int, err error) {
	err = d.walk("", func(key string, e fs.DirEntry) error {
		if !strings.HasPrefix(e.Name(), atomicfile.Prefix) || !strings.HasPrefix(key, prefix) {
			return nil
		}
		n++
		return os.Remove(d.Name(key))
	})
	return n, err
}
