package exitcode

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// Open opens a plain file for reading. A missing one is NoInput, a folder, pipe or device
// BadData: nothing of it is read, and nobody waits for its writer.
func Open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe without writer would wait
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, Errorf(NoInput, "%s does not exist", path)
	case err != nil:
		return nil, With(IO, err)
	}
	st, err := f.Stat()
	switch {
	case err != nil:
		err = With(IO, err)
	case st.IsDir():
		err = Errorf(BadData, "%s is a folder, not a file", path)
	case !st.Mode().IsRegular():
		err = Errorf(BadData, "%s is not a regular file", path)
	default:
		return f, nil
	}
	_ = f.Close() // nothing was read
	return nil, err
}

// ReadFile reads a plain file of at most `most` bytes. A missing one is NoInput, a
// larger one or one that is not a plain file BadData.
func ReadFile(path string, most int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, With(IO, err)
	}
	data := &bytes.Buffer{}
	if st.Size() <= most {
		data.Grow(int(st.Size()) + bytes.MinRead)
		_, err = data.ReadFrom(io.LimitReader(f, most+1)) // it may grow meanwhile
	}
	if max(st.Size(), int64(data.Len())) > most {
		return nil, Errorf(BadData, "%s must be a regular file of at most %d bytes", path, most)
	}
	return data.Bytes(), With(IO, err)
}
