package sft

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"monotron/dataset/jsonl"
	"monotron/internal/exitcode"
)

// given is a row of a file as JSON.
type given struct {
	number int64 // of its line, or its row where the file has no lines; from 1
	text   []byte
}

// source reads the rows of a file some at a time, in its order.
type source interface {
	next() ([]given, error)    // io.EOF behind the last
	where(number int64) string // where a row is, for errors
	Close() error
}

// batchBytes of rows are read at once, or one row that is longer.
const batchBytes = 1 << 20

// openRows opens a file of rows: JSON lines, a JSON array of objects, either of them packed, or Parquet.
// The file's first bytes say which.
func openRows(path string) (source, error) {
	if rows, err := openParquet(path); rows != nil || err != nil {
		return rows, err
	}
	r, err := jsonl.OpenFile(path, batchBytes)
	if err != nil {
		return nil, err
	}
	if r.First() == '[' {
		return newArray(r), nil
	}
	return &jsonLines{r}, nil
}

// jsonLines has a row on each line that is not blank.
type jsonLines struct{ file *jsonl.Reader }

func (s *jsonLines) next() (rows []given, err error) {
	for len(rows) == 0 {
		block, err := s.file.Next(nil)
		if err != nil {
			return nil, err
		}
		for n, text := range block.Each() {
			if !blank(text) {
				rows = append(rows, given{n, text})
			}
		}
	}
	return rows, nil
}

func (s *jsonLines) where(number int64) string { return fmt.Sprintf("%s:%d", s.file.Name(), number) }
func (s *jsonLines) Close() error              { return s.file.Close() }

func blank(text []byte) bool {
	return len(bytes.Trim(text, " \t\r")) == 0
}

// array has a row in each element of a JSON array.
type array struct {
	file   *jsonl.Reader
	bytes  *io.LimitedReader // of one element, at most
	values *json.Decoder
	rows   int64 // so far
	open   bool  // its [ has been read
}

func newArray(file *jsonl.Reader) *array {
	limited := &io.LimitedReader{R: file.Stream(), N: jsonl.DefaultMaxLine}
	return &array{file: file, bytes: limited, values: json.NewDecoder(limited)}
}

func (s *array) next() (rows []given, err error) {
	if !s.open {
		if _, err := s.values.Token(); err != nil { // which First has seen
			return nil, s.wrong(err)
		}
		s.open = true
	}
	for size := 0; size < batchBytes; {
		s.bytes.N = jsonl.DefaultMaxLine
		if !s.values.More() {
			break
		}
		var row json.RawMessage
		s.rows++
		if err := s.values.Decode(&row); err != nil {
			return nil, s.wrong(err)
		}
		rows, size = append(rows, given{s.rows, row}), size+len(row)
	}
	if len(rows) > 0 {
		return rows, nil
	}
	if _, err := s.values.Token(); err != nil { // the array's end
		return nil, s.wrong(err)
	}
	if _, err := s.values.Token(); err != io.EOF {
		return nil, exitcode.Errorf(exitcode.BadData, "%s: text follows the array of rows; write one array, or one object per line", s.file.Name())
	}
	return nil, io.EOF
}

// wrong is why an element cannot be read.
func (s *array) wrong(err error) error {
	switch {
	case s.bytes.N <= 0:
		err = fmt.Errorf("the row has more than %d bytes", jsonl.DefaultMaxLine)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		err = errors.New("the file ends within the array")
	}
	return exitcode.Errorf(exitcode.BadData, "%s: %w", s.where(max(1, s.rows)), err)
}

func (s *array) where(number int64) string { return fmt.Sprintf("%s: row %d", s.file.Name(), number) }
func (s *array) Close() error              { return s.file.Close() }
