package jsonl

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"sync/atomic"

	"monotron/dataset/records"
	"monotron/internal/exitcode"
)

// Block is some complete lines of a file.
type Block struct {
	Name  string // of the file
	Line  int64  // number of the first line, from 1
	Data  []byte
	Lines int64
	End   int64 // position after it in the unpacked stream
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

// DefaultMaxLine is the longest line that is read, in bytes.
const DefaultMaxLine = 64 << 20

// Reader cuts a stream into blocks.
type Reader struct {
	// MaxLine is the longest line, in bytes, that is read; it bounds the memory.
	MaxLine int64

	name   string
	src    io.Reader
	raw    *counter // what src unpacks; nil for NewReader's
	close  []func() error
	size   int
	stored int64  // bytes of a plain file when it was opened; 0: not known
	carry  []byte // the beginning of a line
	line   int64
	at     int64 // in the unpacked stream, of carry's first byte
	inner  bool  // the stream begins within a file
	ended  bool
}

// NewReader reads src; name stands in messages. Blocks have about size bytes,
// more where one line is longer.
func NewReader(name string, src io.Reader, size int) *Reader {
	return &Reader{name: name, src: src, size: size, line: 1, MaxLine: DefaultMaxLine}
}

// Use has the beginnings of lines kept in buf, as far as they fit.
func (r *Reader) Use(buf []byte) { r.carry = append(buf[:0], r.carry...) }

// counter counts what is read through it.
type counter struct {
	io.Reader
	read atomic.Int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.read.Add(int64(n))
	return n, err
}

// Open reads a file, "-" for standard input. What is packed by gzip, zstd, bzip2, xz
// or lzma is unpacked, whatever its name is; the rows of Parquet files, tar archives and MDS shards become
// lines (records); a file of another kind that is not text is refused by its kind's name.
func Open(path string, size int) (*Reader, error) { return OpenPart(path, size, Part{}) }

// OpenFile is Open for a plain file alone, as one that is read more than once: a pipe, a device and standard input are
// refused, and nobody waits for a pipe's writer.
func OpenFile(path string, size int) (*Reader, error) {
	f, err := exitcode.Open(path)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err != nil {
		return nil, errors.Join(exitcode.With(exitcode.IO, err), f.Close())
	}
	r := NewReader(path, nil, size)
	r.close, r.stored = []func() error{f.Close}, st.Size()
	return r.begin(path, f, Part{})
}

// OpenPart is Open for a part of a plain file. Lines are counted from its start.
func OpenPart(path string, size int, part Part) (*Reader, error) {
	r := NewReader(path, nil, size)
	file := os.Stdin
	if path == "-" {
		r.name = "standard input"
	} else {
		f, err := os.Open(path)
		if os.IsNotExist(err) {
			return nil, exitcode.Errorf(exitcode.NoInput, "%s does not exist", path)
		}
		if err != nil {
			return nil, exitcode.With(exitcode.IO, err)
		}
		file, r.close = f, []func() error{f.Close}
		st, err := f.Stat()
		switch {
		case err != nil:
			return nil, errors.Join(exitcode.With(exitcode.IO, err), r.Close())
		case st.IsDir():
			return nil, errors.Join(exitcode.Errorf(exitcode.BadData, "%s is a folder, not a file", path), r.Close())
		case st.Mode()&os.ModeDevice != 0 && path != os.DevNull && path != "/dev/stdin": // it may never end
			return nil, errors.Join(exitcode.Errorf(exitcode.BadData, "%s is a device, not a file", path), r.Close())
		case st.Mode().IsRegular():
			r.stored = st.Size()
		}
	}
	return r.begin(path, file, part)
}

// begin finds out what a file holds, so that it can be unpacked.
func (r *Reader) begin(path string, file *os.File, part Part) (*Reader, error) {
	r.raw = &counter{Reader: file}
	if part.To > 0 {
		if _, err := file.Seek(part.From, io.SeekStart); err != nil {
			return nil, errors.Join(exitcode.With(exitcode.IO, err), r.Close())
		}
		r.raw.Reader, r.stored = io.LimitReader(file, part.To-part.From), part.To-part.From
		if r.inner = part.From > 0; r.inner {
			r.name = fmt.Sprintf("%s from byte %d", path, part.From)
		}
	}
	buffered := bufio.NewReaderSize(r.raw, 1<<18)
	if _, err := buffered.Peek(shortHead); err != nil && err != io.EOF {
		return nil, errors.Join(exitcode.Errorf(exitcode.IO, "%s: %w", r.name, err), r.Close())
	}
	head, _ := buffered.Peek(min(headBytes, buffered.Buffered())) // a pipe may have no more for a while
	if part == (Part{}) && r.stored > 0 && records.IsParquet(file, r.stored) {
		if err := r.openParquet(file, r.stored); err != nil {
			return nil, errors.Join(exitcode.Errorf(exitcode.BadData, "%s: %w", r.name, err), r.Close())
		}
		return r, nil
	}
	if err := r.unpack(head, buffered); err != nil {
		return nil, errors.Join(exitcode.Errorf(exitcode.BadData, "%s: byte 0: %w", r.name, err), r.Close())
	}
	return r, nil
}

// Name is what messages call the file.
func (r *Reader) Name() string { return r.name }

// Stream is the unpacked text, for who reads it instead of its lines.
func (r *Reader) Stream() io.Reader { return r.src }

// First is the first byte of the unpacked text that is not blank, before any line is read; 0: there is
// none near the beginning.
func (r *Reader) First() byte {
	const most = 4096 // bytes of blanks
	text := bufio.NewReaderSize(r.src, 1<<16)
	r.src = text
	for n := 1; n <= most; n++ {
		head, err := text.Peek(n)
		if err != nil { // it comes again when the text is read
			return 0
		}
		if c := head[n-1]; c != ' ' && c != '\t' && c != '\r' && c != '\n' {
			return c
		}
	}
	return 0
}

// Consumed is how many bytes of the file were read, before unpacking.
func (r *Reader) Consumed() int64 {
	if r.raw == nil {
		return r.at
	}
	return r.raw.read.Load()
}

// Skip goes to byte at of the unpacked stream, which is the start of the line of
// that number.
func (r *Reader) Skip(at, line int64) error {
	n, err := io.CopyN(io.Discard, r.src, at)
	if err != nil {
		return exitcode.Errorf(exitcode.BadData, "%s: the file ends at byte %d, but the interrupted run read it to byte %d; run without --resume", r.name, n, at)
	}
	r.at, r.line = at, line
	return nil
}

// All reads the stream, as it is, if it has at most so many bytes.
func (r *Reader) All(most int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r.src, most+1))
	if err == nil && int64(len(data)) > most {
		return nil, exitcode.Errorf(exitcode.BadData, "%s: the file is longer than the %d bytes of text that fit into the memory of this machine; split it into several files, or convert it to JSON lines, which are read in blocks", r.name, most)
	}
	if err != nil {
		return nil, exitcode.Errorf(exitcode.BadData, "%s: reading after byte %d: %w", r.name, len(data), err)
	}
	return data, nil
}

// Close closes what Open opened.
func (r *Reader) Close() (err error) {
	for _, c := range r.close {
		err = errors.Join(err, c())
	}
	return exitcode.With(exitcode.IO, err)
}

// Next gives the next block, io.EOF at the end. The block is the caller's; buf,
// which may be nil, is memory it may use.
func (r *Reader) Next(buf []byte) (Block, error) {
	// The last block's incomplete line comes first.
	buf = append(buf[:0], r.carry...)
	for !r.ended {
		// Memory for another block, or twice as much where a line is longer than what is here, up to the
		// limit and one byte.
		n := max(r.size, 2*len(buf))
		if int64(len(buf)) <= r.MaxLine {
			n = int(min(int64(n), max(r.MaxLine+1, int64(r.size))))
		}
		if cap(buf) < n {
			buf = append(make([]byte, 0, n), buf...)
		}
		// Fill it; a source that ends early has been cut since it was opened.
		for len(buf) < n && !r.ended {
			got, err := r.src.Read(buf[len(buf):n])
			buf = buf[:len(buf)+got]
			if r.ended = err == io.EOF; r.ended && r.Consumed() < r.stored {
				return Block{}, exitcode.Errorf(exitcode.IO, "%s: the file ends at byte %d, but had %d bytes when it was opened: it was truncated while it was being read", r.name, r.Consumed(), r.stored)
			}
			if err != nil && err != io.EOF {
				return Block{}, exitcode.Errorf(exitcode.BadData, "%s: reading after line %d: %w", r.name, r.line-1+countLines(buf), err)
			}
		}
		// A block ends at a line end. Without one the line is longer than the block: read on, or refuse it.
		if end := lastLineEnd(buf); end > 0 && !r.ended {
			return r.block(buf, end)
		} else if end == 0 && int64(len(buf)) > r.MaxLine {
			return Block{}, r.tooLong(r.line)
		}
	}
	// The last line may lack its end.
	if len(buf) == 0 {
		return Block{}, io.EOF
	}
	return r.block(buf, len(buf))
}

func (r *Reader) tooLong(line int64) error {
	return exitcode.Errorf(exitcode.BadData, "%s:%d: the line is longer than %d bytes; raise --max-line-bytes (a line needs about 8 bytes of memory per byte)", r.name, line, r.MaxLine)
}

func (r *Reader) block(buf []byte, end int) (Block, error) {
	r.carry = append(r.carry[:0], buf[end:]...)
	r.at += int64(end)
	b := Block{Name: r.name, Line: r.line, Data: buf[:end], End: r.at}
	if r.line == 1 && !r.inner { // a byte order mark is not part of the text
		b.Data = bytes.TrimPrefix(b.Data, []byte("\ufeff"))
	}
	if int64(len(b.Data)) > r.MaxLine { // else no line of it can be
		for n, line := range b.Each() {
			if int64(len(line)) > r.MaxLine {
				return Block{}, r.tooLong(n)
			}
		}
	}
	b.Lines = countLines(b.Data)
	r.line += b.Lines
	return b, nil
}

// lastLineEnd is the position after the last line end that cannot be continued: a
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
