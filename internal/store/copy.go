package store

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/sync/errgroup"

	"monotron/internal/exitcode"
)

const (
	rangeBytes = 8 << 20 // of an object that are read by one request
	readAtOnce = 8
)

// Fetch writes the object to a new file at path, on disk when it returns, and gives what it was.
func Fetch(ctx context.Context, s Store, key, path string) (Object, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f, err := s.Open(ctx, key)
	if err != nil {
		return Object{}, err
	}
	defer f.Close()
	to, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return Object{}, exitcode.With(exitcode.IO, err)
	}
	err = f.copyTo(to)
	if err == nil {
		err = to.Sync()
	}
	return f.Object, exitcode.With(exitcode.CodeOf(err), errors.Join(err, to.Close()))
}

// copyTo writes all ranges, some at a time.
func (f *File) copyTo(to io.WriterAt) error {
	var group errgroup.Group
	group.SetLimit(readAtOnce)
	for at := int64(0); at < f.Size; at += rangeBytes {
		group.Go(func() error {
			buf := make([]byte, min(rangeBytes, f.Size-at))
			if _, err := f.ReadAt(buf, at); err != nil {
				return err
			}
			_, err := to.WriteAt(buf, at)
			return exitcode.With(exitcode.IO, err)
		})
	}
	return group.Wait()
}

// Send puts the file at path.
func Send(ctx context.Context, s Store, path, key string, when When) (Object, error) {
	f, err := exitcode.Open(path)
	if err != nil {
		return Object{}, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return Object{}, exitcode.With(exitcode.IO, err)
	}
	return s.Put(ctx, key, f, st.Size(), when)
}

// PutBytes puts a small object.
func PutBytes(ctx context.Context, s Store, key string, content []byte, when When) (Object, error) {
	return s.Put(ctx, key, bytes.NewReader(content), int64(len(content)), when)
}

// ReadAll reads an object of at most `most` bytes; a larger one is exitcode.BadData.
func ReadAll(ctx context.Context, s Store, key string, most int64) ([]byte, Object, error) {
	f, err := s.Open(ctx, key)
	if err != nil {
		return nil, Object{}, err
	}
	defer f.Close()
	if f.Size > most {
		return nil, Object{}, exitcode.Errorf(exitcode.BadData, "store: %s has %d bytes; at most %d are allowed", f.Name(), f.Size, most)
	}
	content := make([]byte, f.Size)
	if f.Size == 0 {
		return content, f.Object, nil
	}
	_, err = f.ReadAt(content, 0)
	return content, f.Object, err
}
