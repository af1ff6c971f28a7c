package records

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"
)

// parquetMagic is how a Parquet file begins and ends.
const parquetMagic = "PAR1"

// parquetRows are read at once.
const parquetRows = 64

// IsParquet reports whether a file of size bytes begins and ends as a complete Parquet file does.
func IsParquet(file io.ReaderAt, size int64) bool {
	var first, last [len(parquetMagic)]byte
	if size < 3*int64(len(first)) {
		return false
	}
	_, err1 := file.ReadAt(first[:], 0)
	_, err2 := file.ReadAt(last[:], size-int64(len(last)))
	return errors.Join(err1, err2) == nil && string(first[:]) == parquetMagic && string(last[:]) == parquetMagic
}

// Parquet has a row in each row of all row groups of a file.
type Parquet struct {
	// Binary: columns of bytes are left out; else they are an error.
	Binary bool

	schema *parquet.Schema
	reader *parquet.GenericReader[any]
	empty  bool  // the file has no rows, which the library cannot read
	rows   int64 // so far
}

// OpenParquet reads a file of size bytes, which stays open until Close.
func OpenParquet(file io.ReaderAt, size int64) (*Parquet, error) {
	p := &Parquet{}
	err := guarded(func() error {
		opened, err := parquet.OpenFile(file, size)
		if err != nil {
			return err
		}
		p.empty = opened.NumRows() == 0
		p.schema, p.reader = opened.Schema(), parquet.NewGenericReader[any](opened)
		return nil
	})
	return p, err
}

// guarded makes what the library cannot read an error: damaged files have made it panic.
func guarded(read func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("the Parquet file is damaged: %v", cause)
		}
	}()
	if err = read(); err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("the Parquet file is damaged: %w", err)
	}
	return err
}

// Next is some rows as JSON objects, io.EOF behind the last.
func (p *Parquet) Next() (rows [][]byte, err error) {
	if p.empty {
		return nil, io.EOF
	}
	values := make([]any, parquetRows)
	n := 0
	err = guarded(func() (err error) {
		n, err = p.reader.Read(values)
		return err
	})
	if n == 0 && err == nil {
		err = io.ErrNoProgress
	}
	if n == 0 || err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	for _, v := range values[:n] {
		p.rows++
		text, err := p.appendValue(nil, p.schema, v)
		if err != nil {
			return nil, &RowError{p.rows, err}
		}
		rows = append(rows, text)
	}
	return rows, nil
}

// RowError is what is wrong with a row, whose number counts from 1.
type RowError struct {
	Row int64
	Err error
}

func (e *RowError) Error() string { return fmt.Sprintf("row %d: %v", e.Row, e.Err) }
func (e *RowError) Unwrap() error { return e.Err }

// Lines is the rows that follow.
func (p *Parquet) Lines() io.Reader {
	var some [][]byte
	return &lines{next: func() (_ []byte, err error) {
		if len(some) == 0 {
			if some, err = p.Next(); err != nil {
				return nil, err
			}
		}
		row := some[0]
		some = some[1:]
		return row, nil
	}}
}

// Close ends the reading.
func (p *Parquet) Close() error { return guarded(func() error { return p.reader.Close() }) }

// appendValue writes a value of a node as JSON, the fields of a group in the order of the schema, which
// is that of the rows the file was made of.
func (p *Parquet) appendValue(to []byte, node parquet.Node, v any) ([]byte, error) {
	switch v := v.(type) {
	// A group's fields in the order of the schema; a map has none.
	case map[string]any:
		if node == nil || node.Leaf() || isKind(node, "MAP") {
			return appendPlain(to, v)
		}
		to = append(to, '{')
		for _, field := range node.Fields() {
			value := v[field.Name()]
			if p.Binary && isBinary(field, value) {
				continue
			}
			if to[len(to)-1] != '{' {
				to = append(to, ',')
			}
			name, err := json.Marshal(field.Name())
			if err != nil {
				return nil, err
			}
			if to, err = p.appendValue(append(append(to, name...), ':'), field, value); err != nil {
				return nil, fmt.Errorf("field %q: %w", field.Name(), err)
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
			if to, err = p.appendValue(to, element, x); err != nil {
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
		return nil, errors.New("the column contains bytes, not strings; give the column the type string")
	}
	return appendPlain(to, v)
}

// appendPlain writes NaN and infinities, which JSON does not have and data frames write for missing numbers, as null.
func appendPlain(to []byte, v any) ([]byte, error) {
	var x float64
	switch v := v.(type) {
	case float64:
		x = v
	case float32:
		x = float64(v)
	}
	if math.IsNaN(x) || math.IsInf(x, 0) {
		v = nil
	}
	text, err := json.Marshal(v)
	return append(to, text...), err
}

// isBinary recognizes a value of bytes: the library has them as text where the schema does not say what they are.
func isBinary(node parquet.Node, v any) bool {
	switch v := v.(type) {
	case []byte:
		return true
	case string:
		return node.Leaf() && node.Type().LogicalType() == nil && !utf8.ValidString(v)
	}
	return false
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

// isKind reports whether a group is marked so.
func isKind(node parquet.Node, kind string) bool {
	t := node.Type()
	return t != nil && t.LogicalType() != nil && t.LogicalType().String() == kind
}
