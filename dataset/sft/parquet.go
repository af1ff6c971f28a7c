package sft

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"

	"monotron/internal/exitcode"
)

// parquetMagic is how a Parquet file begins.
const parquetMagic = "PAR1"

// parquetRows are read at once.
const parquetRows = 64

// isParquet tells whether a file's first bytes are Parquet's.
func isParquet(path string) bool {
	if st, err := os.Stat(path); err != nil || !st.Mode().IsRegular() {
		return false // opening it says why
	}
	f, err := exitcode.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	head := make([]byte, len(parquetMagic))
	_, err = io.ReadFull(f, head)
	return err == nil && string(head) == parquetMagic
}

// parquetFile has a row in each row of all its row groups.
type parquetFile struct {
	name   string
	file   *os.File
	schema *parquet.Schema
	reader *parquet.GenericReader[any]
	rows   int64 // so far
}

func openParquet(path string) (_ source, err error) {
	file, err := exitcode.Open(path)
	if err != nil {
		return nil, err
	}
	s := &parquetFile{name: path, file: file}
	defer func() {
		if err != nil {
			err = errors.Join(err, file.Close())
		}
	}()
	st, err := file.Stat()
	if err != nil {
		return nil, exitcode.With(exitcode.IO, err)
	}
	err = s.guarded(func() error {
		opened, err := parquet.OpenFile(file, st.Size())
		if err != nil {
			return err
		}
		s.schema, s.reader = opened.Schema(), parquet.NewGenericReader[any](opened)
		return nil
	})
	return s, err
}

// guarded makes what the library cannot read an error: damaged files have made it panic.
func (s *parquetFile) guarded(read func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = exitcode.Errorf(exitcode.BadData, "%s: not a sound Parquet file: %v", s.name, cause)
		}
	}()
	if err = read(); err != nil && !errors.Is(err, io.EOF) {
		err = exitcode.Errorf(exitcode.BadData, "%s: not a sound Parquet file: %w", s.name, err)
	}
	return err
}

func (s *parquetFile) next() (rows []given, err error) {
	values := make([]any, parquetRows)
	n := 0
	err = s.guarded(func() (err error) {
		n, err = s.reader.Read(values)
		return err
	})
	if n == 0 && err == nil {
		err = io.ErrNoProgress
	}
	if n == 0 || err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	for _, v := range values[:n] {
		s.rows++
		text, err := appendValue(nil, s.schema, v)
		if err != nil {
			return nil, exitcode.Errorf(exitcode.BadData, "%s: %w", s.where(s.rows), err)
		}
		rows = append(rows, given{s.rows, text})
	}
	return rows, nil
}

func (s *parquetFile) where(number int64) string { return fmt.Sprintf("%s: row %d", s.name, number) }

func (s *parquetFile) Close() error {
	err := s.guarded(func() error { return s.reader.Close() })
	return errors.Join(err, exitcode.With(exitcode.IO, s.file.Close()))
}

// appendValue writes a value of a node as JSON, the fields of a group in the order of the schema, which
// is that of the rows the file was made of.
func appendValue(to []byte, node parquet.Node, v any) ([]byte, error) {
	switch v := v.(type) {
	// A group's fields in the order of the schema; a map has none.
	case map[string]any:
		if node == nil || node.Leaf() || isKind(node, "MAP") {
			return appendPlain(to, v)
		}
		to = append(to, '{')
		for i, field := range node.Fields() {
			if i > 0 {
				to = append(to, ',')
			}
			name, err := json.Marshal(field.Name())
			if err != nil {
				return nil, err
			}
			if to, err = appendValue(append(append(to, name...), ':'), field, v[field.Name()]); err != nil {
				return nil, fieldError(field.Name(), "%w", err)
			}
		}
		return append(to, '}'), nil
	case []any:
		element := elementOf(node)
		to = append(to, '[')
		for i, x := range v {
			if i > 0 {
				to = append(to, ',')
			}
			var err error
			if to, err = appendValue(to, element, x); err != nil {
				return nil, err
			}
		}
		return append(to, ']'), nil
	case string:
		if !utf8.ValidString(v) {
			return nil, errors.New("the text is not UTF-8")
		}
	// Text must be text; everything else is written as JSON does.
	case []byte:
		return nil, errors.New("it has bytes, not text; give the column the type string")
	}
	return appendPlain(to, v)
}

func appendPlain(to []byte, v any) ([]byte, error) {
	text, err := json.Marshal(v)
	return append(to, text...), err
}

// elementOf is the node of a list's elements: of a LIST within its repeated group, else the repeated
// node itself; nil: not known.
func elementOf(node parquet.Node) parquet.Node {
	if node == nil || !isKind(node, "LIST") {
		return node
	}
	if inner := node.Fields(); len(inner) == 1 && !inner[0].Leaf() {
		if elements := inner[0].Fields(); len(elements) == 1 {
			return elements[0]
		}
	}
	return nil
}

// isKind tells whether a group is marked so.
func isKind(node parquet.Node, kind string) bool {
	t := node.Type()
	return t != nil && t.LogicalType() != nil && t.LogicalType().String() == kind
}
