// Package jsonl reads lines of text, and JSON objects in them, as Python's text
// mode and json module do: lines end at \n, \r\n or a lone \r; NaN is a number;
// of equal keys the last one counts.
package jsonl

import (
	"bytes"
	"compress/bzip2"
	"errors"
	"io"
	"iter"
	"os"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"monotron/fault"
)

// Block is some whole lines of a file.
type Block struct {
	Name  string // of the file
	Line  int64  // number of the first line, from 1
	Data  []byte
	Lines int64
}

// Each gives every line with its number, without its end.
func (b Block) Each() iter.Seq2[int64, []byte] {
	return func(yield func(int64, []byte) bool) {
		n := b.Line
		for data := b.Data; len(data) > 0; n++ {
			line, rest := cutLine(data)
			if !yield(n, line) {
				return
			}
			data = rest
		}
	}
}

func cutLine(data []byte) (line, rest []byte) {
	line, rest, _ = bytes.Cut(data, []byte("\n"))
	if r := bytes.IndexByte(line, '\r'); r >= 0 {
		if r == len(line)-1 && len(line) < len(data) { // \r\n
			return line[:r], rest
		}
		return data[:r], data[r+1:]
	}
	return line, rest
}

// Reader cuts a stream into blocks.
type Reader struct {
	name  string
	src   io.Reader
	close []func() error
	size  int
	carry []byte // the beginning of a line
	line  int64
	ended bool
}

// NewReader reads src; name stands in messages. Blocks have about size bytes,
// more where one line is longer.
func NewReader(name string, src io.Reader, size int) *Reader {
	return &Reader{name: name, src: src, size: size, line: 1}
}

// Open reads a file, "-" for standard input; .gz, .zst and .bz2 are unpacked.
func Open(path string, size int) (*Reader, error) {
	r := NewReader(path, os.Stdin, size)
	if path == "-" {
		r.name = "standard input"
		return r, nil
	}
	f, err := os.Open(path)
	if os.IsNotExist(err) {
		return nil, fault.Errorf(fault.NoInput, "%s: no such file", path)
	}
	if err != nil {
		return nil, fault.With(fault.IO, err)
	}
	r.src, r.close = f, []func() error{f.Close}
	switch {
	case strings.HasSuffix(path, ".gz"):
		z, err := gzip.NewReader(f)
		if err == io.EOF { // an empty file
			return r, nil
		}
		if err != nil {
			return nil, errors.Join(fault.Errorf(fault.BadData, "%s: %w", path, err), f.Close())
		}
		r.src = z
	case strings.HasSuffix(path, ".zst"):
		z, err := zstd.NewReader(f)
		if err != nil {
			return nil, errors.Join(fault.Errorf(fault.BadData, "%s: %w", path, err), f.Close())
		}
		r.src, r.close = z, append(r.close, func() error { z.Close(); return nil })
	case strings.HasSuffix(path, ".bz2"):
		r.src = bzip2.NewReader(f)
	}
	return r, nil
}

// Close closes what Open opened.
func (r *Reader) Close() (err error) {
	for _, c := range r.close {
		err = errors.Join(err, c())
	}
	return fault.With(fault.IO, err)
}

// Next gives the next block, io.EOF at the end. The block is the caller's; buf,
// which may be nil, is memory it may use.
func (r *Reader) Next(buf []byte) (Block, error) {
	buf = append(buf[:0], r.carry...)
	for !r.ended {
		n := max(r.size, 2*len(buf))
		if cap(buf) < n {
			buf = append(make([]byte, 0, n), buf...)
		}
		for len(buf) < n && !r.ended {
			got, err := r.src.Read(buf[len(buf):n])
			buf = buf[:len(buf)+got]
			if r.ended = err == io.EOF; err != nil && err != io.EOF {
				return Block{}, fault.Errorf(fault.BadData, "%s: reading on after line %d: %w", r.name, r.line-1+countLines(buf), err)
			}
		}
		if end := lastLineEnd(buf); end > 0 && !r.ended {
			return r.block(buf, end), nil
		}
	}
	if len(buf) == 0 {
		return Block{}, io.EOF
	}
	return r.block(buf, len(buf)), nil
}

func (r *Reader) block(buf []byte, end int) Block {
	r.carry = append(r.carry[:0], buf[end:]...)
	b := Block{Name: r.name, Line: r.line, Data: buf[:end]}
	if r.line == 1 { // a byte order mark is no part of the text
		b.Data = bytes.TrimPrefix(b.Data, []byte("\ufeff"))
	}
	b.Lines = countLines(b.Data)
	r.line += b.Lines
	return b
}

// lastLineEnd is the place after the last line end that cannot be continued: a
// \r at the very end may be half of \r\n.
func lastLineEnd(buf []byte) int {
	if n := bytes.LastIndexByte(buf, '\n'); n >= 0 {
		return n + 1
	}
	if len(buf) == 0 {
		return 0
	}
	return bytes.LastIndexByte(buf[:len(buf)-1], '\r') + 1
}

func countLines(data []byte) (n int64) {
	if len(data) == 0 {
		return 0
	}
	n = int64(bytes.Count(data, []byte("\n")))
	for rest := data; ; {
		r := bytes.IndexByte(rest, '\r')
		if r < 0 {
			break
		}
		if r+1 == len(rest) || rest[r+1] != '\n' {
			n++
		}
		rest = rest[r+1:]
	}
	if last := data[len(data)-1]; last != '\n' && last != '\r' {
		n++
	}
	return n
}
