package jsonl

import (
	"bufio"
	"bytes"
	"io"
	"os"

	"monotron/dataset/records"
	"monotron/internal/exitcode"
)

// Part is the bytes [From, To) of a file, both the start of a line or its end; the zero value is all of it.
type Part struct{ From, To int64 }

// Packed reports whether a file is packed, or holds rows in another form, so that it cannot be read from the middle.
func Packed(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, exitcode.With(exitcode.IO, err)
	}
	defer f.Close()
	from := bufio.NewReaderSize(f, headBytes)
	head, err := from.Peek(headBytes)
	if err != nil && err != io.EOF {
		return false, exitcode.Errorf(exitcode.IO, "%s: %w", path, err)
	}
	st, err2 := f.Stat()
	if records.IsTar(head) || isMDS(path) || err2 == nil && records.IsParquet(f, st.Size()) {
		return true, nil
	}
	src, format, err := unpacker(head, from)
	if c, ok := src.(interface{ Close() }); ok {
		c.Close()
	}
	return format != "" || err != nil, nil // an error comes again when the file is read
}

// LineStart is the first start of a line of a plain file at byte `at` or behind it; its size where there is none.
func LineStart(path string, at int64) (int64, error) {
	if at <= 0 {
		return 0, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return 0, exitcode.With(exitcode.IO, err)
	}
	defer f.Close()
	for at, buf := at-1, make([]byte, 1<<16); ; {
		n, err := f.ReadAt(buf, at)
		if i := bytes.IndexByte(buf[:n], '\n'); i >= 0 {
			return at + int64(i) + 1, nil
		}
		if at += int64(n); err == io.EOF {
			return at, nil
		}
		if err != nil {
			return 0, exitcode.Errorf(exitcode.IO, "%s: byte %d: %w", path, at, err)
		}
	}
}
