package records

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"unicode/utf8"
)

// lines is a stream of rows, each on a line.
type lines struct {
	next func() ([]byte, error) // a row without line ends in it, io.EOF behind the last
	left []byte
	err  error
}

func (l *lines) Read(p []byte) (int, error) {
	for len(l.left) == 0 {
		if l.err != nil {
			return 0, l.err
		}
		var row []byte
		if row, l.err = l.next(); l.err == nil {
			l.left = append(row, '\n')
		}
	}
	n := copy(p, l.left)
	l.left = l.left[n:]
	return n, nil
}

// row is an object being written.
type row []byte

// text adds a field that must be UTF-8.
func (r *row) text(name string, value []byte) error {
	if !utf8.Valid(value) {
		return errors.New("the text is not UTF-8")
	}
	encoded, err := json.Marshal(string(value))
	if err != nil {
		return err
	}
	r.raw(name, encoded)
	return nil
}

// raw adds a field whose value is JSON already. Line ends in it can only stand between values.
func (r *row) raw(name string, value []byte) {
	key, _ := json.Marshal(name) // a string always can be
	r.begin()
	*r = append(append(append(*r, key...), ':'), onOneLine(value)...)
}

// fields adds those of an object; false: value is none.
func (r *row) fields(value []byte) bool {
	value = bytes.Trim(value, " \t\r\n")
	if len(value) < 2 || value[0] != '{' || value[len(value)-1] != '}' {
		return false
	}
	if inner := bytes.Trim(value[1:len(value)-1], " \t\r\n"); len(inner) > 0 {
		r.begin()
		*r = append(*r, onOneLine(inner)...)
	}
	return true
}

func (r *row) begin() {
	if len(*r) == 0 {
		*r = append(*r, '{')
	} else {
		*r = append(*r, ',')
	}
}

// done is the complete object.
func (r *row) done() []byte {
	if len(*r) == 0 {
		return []byte("{}")
	}
	return append(*r, '}')
}

// onOneLine has blanks for line ends, which stand between the values of valid JSON alone.
func onOneLine(value []byte) []byte {
	value = bytes.Clone(value)
	for i, c := range value {
		if c == '\n' || c == '\r' {
			value[i] = ' '
		}
	}
	return value
}

// readAll reads a value of at most `most` bytes.
func readAll(from io.Reader, most int64) ([]byte, error) {
	value, err := io.ReadAll(io.LimitReader(from, most+1))
	if err == nil && int64(len(value)) > most {
		err = errTooLong
	}
	return value, err
}

var errTooLong = errors.New("the value is longer than --max-line-bytes allows")
