package store

import (
	"context"
	"errors"
	"io"
)

// Object is what a listing says of an object.
type Object struct {
	Key  string // relative to the store's prefix, with slashes
	Size int64  // bytes
	ETag string // of its content, without quotes
}

// Store holds objects. Keys are relative paths with slashes. Methods may be called by several goroutines.
type Store interface {
	// Name is the object's address for messages, as in s3://bucket/prefix/key.
	Name(key string) string
	// Open opens an object for reading at offsets. A missing one is exitcode.NoInput with
	// fs.ErrNotExist in the chain. ctx is that of all reads.
	Open(ctx context.Context, key string) (*File, error)
	// Put writes size bytes of from as an object. ErrExists and ErrChanged are in the
	// chain where when does not hold; nothing is written then.
	Put(ctx context.Context, key string, from io.ReaderAt, size int64, when When) (Object, error)
	// List lists the objects whose keys begin with prefix, in the order of their keys.
	List(ctx context.Context, prefix string) ([]Object, error)
	// Delete removes an object; a missing one is not an error.
	Delete(ctx context.Context, key string) error
	// Abort ends the uploads under prefix that are not complete, and returns how many.
	Abort(ctx context.Context, prefix string) (int, error)
}

// When is a condition of Put. The zero value is none.
type When struct {
	absent bool
	etag   string
}

// IfAbsent: no object has the key.
var IfAbsent = When{absent: true}

// IfMatch: the object under the key has this ETag.
func IfMatch(etag string) When { return When{etag: etag} }

var (
	// ErrExists is in the chain of Put's error where IfAbsent did not hold.
	ErrExists = errors.New("the object exists already")
	// ErrChanged is in the chain where an object is no longer that of the ETag.
	ErrChanged = errors.New("the object was replaced in the meantime")
)

// File is an object that is open for reading.
type File struct {
	Object
	name  string
	read  func(p []byte, off int64) error // all of p, which lies in the object
	close func() error
}

// ReadAt is io.ReaderAt's. It fails with ErrChanged in the chain once the object is another.
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off >= f.Size {
		return 0, io.EOF
	}
	n := min(int64(len(p)), f.Size-off)
	if n == 0 {
		return 0, nil
	}
	if err := f.read(p[:n], off); err != nil {
		return 0, err
	}
	if n < int64(len(p)) {
		return int(n), io.EOF
	}
	return int(n), nil
}

// Name is the object's address for messages.
func (f *File) Name() string { return f.name }

// Close ends reading.
func (f *File) Close() error {
	if f.close == nil {
		return nil
	}
	return f.close()
}
