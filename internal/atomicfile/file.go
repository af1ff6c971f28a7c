package atomicfile

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"monotron/internal/exitcode"
)

// Prefix begins the names of files that are being written. A killed run leaves such names.
const Prefix = ".tmp-"

// File is being written; it has its name after Commit.
type File struct {
	*os.File
	path string
	done bool
}

// Temporary is a name next to path that nobody else has.
func Temporary(path string) string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	path = filepath.Clean(path)
	return filepath.Join(filepath.Dir(path), fmt.Sprintf("%s%s-%d-%s", Prefix, filepath.Base(path), os.Getpid(), hex.EncodeToString(b[:])))
}

// Create starts the file path; perm is what the umask leaves of it.
func Create(path string, perm fs.FileMode) (*File, error) {
	if st, err := os.Stat(path); err == nil && !st.Mode().IsRegular() {
		return nil, exitcode.Errorf(exitcode.Usage, "%s exists and is not a regular file; choose another name", path)
	}
	f, err := os.OpenFile(Temporary(path), os.O_RDWR|os.O_CREATE|os.O_EXCL, perm)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, exitcode.Errorf(exitcode.IO, "%s cannot be written: the folder %s does not exist", path, filepath.Dir(path))
	case err != nil:
		return nil, failed(path, err)
	}
	return &File{File: f, path: path}, nil
}

// Commit gives the file its name once it is on disk; on an error nothing of it is left.
func (f *File) Commit() error {
	f.done = true
	err := f.Sync()
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(f.Name(), f.path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the error before it is the one to tell
		return failed(f.path, err)
	}
	return SyncFolder(filepath.Dir(f.path))
}

// Abort removes what was written; after Commit it does nothing.
func (f *File) Abort() {
	if !f.done {
		_, _ = f.Close(), os.Remove(f.Name()) // best effort on the way out with an error
	}
}

// Write creates the file path with the bytes that fill writes. Errors of fill's that come from the
// file system say so in their code, others are returned as they are.
func Write(path string, perm fs.FileMode, fill func(f *os.File) error) error {
	f, err := Create(path, perm)
	if err != nil {
		return err
	}
	defer f.Abort()
	if err := fill(f.File); err != nil {
		return ofFill(path, err)
	}
	return f.Commit()
}

// WriteFile makes the file path of content, in pieces.
func WriteFile(path string, perm fs.FileMode, content ...[]byte) error {
	return Write(path, perm, func(f *os.File) error { return writeAll(f, content) })
}

func writeAll(f *os.File, content [][]byte) error {
	for _, piece := range content {
		if _, err := f.Write(piece); err != nil {
			return err
		}
	}
	return nil
}

// WriteFiles makes the files of a folder that belong together, by name: none gets its
// name before all are on disk.
func WriteFiles(dir string, perm fs.FileMode, files map[string][]byte) error {
	var written []*File
	defer func() {
		for _, f := range written {
			f.Abort()
		}
	}()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f, err := Create(filepath.Join(dir, name), perm)
		if err != nil {
			return err
		}
		written = append(written, f)
		if _, err = f.Write(files[name]); err == nil {
			err = f.Sync()
		}
		if err != nil {
			return failed(f.path, err)
		}
	}
	for _, f := range written {
		if err := f.Commit(); err != nil {
			return err
		}
	}
	return nil
}

// WriteNew is WriteFile for a file that several may make at once: the first wins, and
// an existing one stays.
func WriteNew(path string, perm fs.FileMode, content []byte) error {
	if _, err := os.Lstat(path); err == nil {
		return nil
	}
	tmp := Temporary(path)
	if err := WriteFile(tmp, perm, content); err != nil {
		return err
	}
	err := os.Link(tmp, path)
	if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	if err = errors.Join(err, os.Remove(tmp)); err != nil {
		return failed(path, err)
	}
	return SyncFolder(filepath.Dir(path))
}

// failed words an error of the file system by the name that the caller knows.
func failed(path string, err error) error {
	var at *os.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &at):
		err = at.Err
	case errors.As(err, &link):
		err = link.Err
	}
	return exitcode.Errorf(exitcode.IO, "%s cannot be written: %w", path, err)
}

// ofFill marks errors of the file system that have no code yet.
func ofFill(path string, err error) error {
	var at *os.PathError
	var no syscall.Errno
	if exitcode.CodeOf(err) == exitcode.Internal && (errors.As(err, &at) || errors.As(err, &no)) {
		return failed(path, err)
	}
	return err
}
