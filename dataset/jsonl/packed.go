package jsonl

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gabriel-vasile/mimetype"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
	"github.com/ulikunitz/xz/lzma"

	"monotron/dataset/records"
)

const (
	shortHead  = 6       // bytes that tell most formats
	headBytes  = 3072    // that tell every kind of file, as mimetype reads them
	mostWindow = 1 << 30 // bytes that an unpacker may keep
)

// unpack reads what from holds, unpacked where its first bytes are those of a packed file.
func (r *Reader) unpack(head []byte, from *bufio.Reader) error {
	src, packed, err := unpacker(head, from)
	if err != nil {
		return err
	}
	if packed == "" {
		r.src = from
		return r.rowsOrText("", head)
	}
	r.stored = 0
	if c, ok := src.(interface{ Close() }); ok {
		r.close = append(r.close, func() error { c.Close(); return nil })
	}
	inner := bufio.NewReaderSize(src, 1<<16)
	r.src = inner
	head, _ = inner.Peek(headBytes) // its error comes again when it is read
	return r.rowsOrText(packed, head)
}

// rowsOrText has the stream as it is, or, of files that hold rows, as a line each.
func (r *Reader) rowsOrText(packed string, head []byte) error {
	longest := func() int64 { return r.MaxLine }
	switch {
	case records.IsTar(head):
		r.src, r.stored = records.Tar(r.src, longest), 0
		return nil
	case isMDS(r.name):
		r.src, r.stored = records.MDS(r.src, longest), 0
		return nil
	}
	return refuseKind(packed, head)
}

// openParquet has the rows of a file of size bytes as lines.
func (r *Reader) openParquet(file io.ReaderAt, size int64) error {
	rows, err := records.OpenParquet(file, size)
	if err != nil {
		return err
	}
	rows.Binary = true
	r.src, r.stored = rows.Lines(), 0
	r.close = append([]func() error{rows.Close}, r.close...)
	return nil
}

// isMDS recognizes a shard of MosaicML's streaming, which has no magic number, by its name.
func isMDS(path string) bool {
	for slices.Contains([]string{".zst", ".zstd", ".gz", ".bz2", ".xz"}, filepath.Ext(path)) {
		path = strings.TrimSuffix(path, filepath.Ext(path))
	}
	return filepath.Ext(path) == ".mds"
}

// unpacker is a reader of the unpacked contents of from, and the name of the format: that which
// the first bytes tell, or "" for none.
func unpacker(head []byte, from *bufio.Reader) (src io.Reader, format string, err error) {
	magic := uint32(0)
	if len(head) >= 4 {
		magic = binary.LittleEndian.Uint32(head)
	}
	switch h := string(head); {
	case strings.HasPrefix(h, "\x1f\x8b"):
		src, err = newMembers(from)
		return src, "gzip", err
	case magic == 0xfd2fb528 || magic&^15 == 0x184d2a50: // a frame, or one to skip, which pzstd puts first
		src, err = zstd.NewReader(from, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(mostWindow))
		return src, "zstd", err
	case strings.HasPrefix(h, "BZh"):
		return bzip2.NewReader(from), "bzip2", nil
	case strings.HasPrefix(h, "\xfd7zXZ\x00"):
		src, err = newStreams(from)
		return src, "xz", err
	case isLZMA(head):
		src, err = newLZMA(from)
		return src, "lzma", err
	case magic == 0x184d2204 || magic == 0x184c2102:
		return nil, "", fmt.Errorf("lz4 compression is not supported; decompress the file first: `lz4 -d FILE`")
	case magic&0xffffff00 == 0xfd2fb500 && magic&0xff >= 0x22 && magic&0xff <= 0x27:
		return nil, "", fmt.Errorf("zstd compression before version 1.0 is not supported; decompress the file first, with a zstd built with legacy support")
	}
	return nil, "", nil
}

// isLZMA recognizes a .lzma file, which has no magic number, as xz does: by properties that
// exist, a dictionary of 2^n or 2^n + 2^(n-1) bytes, and a size that is unknown or below
// 256 GiB. Such bytes are not text: most of the dictionary's are zero.
func isLZMA(head []byte) bool {
	if len(head) < lzma.HeaderLen || head[0] >= 9*5*5 {
		return false
	}
	dict, size := binary.LittleEndian.Uint32(head[1:]), binary.LittleEndian.Uint64(head[5:])
	top := uint32(0)
	if dict > 0 {
		top = 1 << (bits.Len32(dict) - 1)
	}
	return dict > 0 && (dict == top || dict == top|top>>1 || dict == 1<<32-1) && (size == 1<<64-1 || size < 1<<38)
}

// members are the parts of a gzip file, one behind the other. Zero bytes behind the last
// one, which fill blocks of tapes and disks, are skipped, as gzip does.
type members struct {
	from *bufio.Reader
	z    *gzip.Reader
}

func newMembers(from *bufio.Reader) (*members, error) {
	z, err := gzip.NewReader(from)
	if err != nil {
		return nil, err
	}
	z.Multistream(false)
	return &members{from, z}, nil
}

func (m *members) Read(p []byte) (int, error) {
	for {
		n, err := m.z.Read(p)
		if err != io.EOF || n > 0 && len(p) > 0 {
			if err == io.EOF {
				err = nil // it comes again
			}
			return n, err
		}
		if err := m.next(); err != nil {
			return 0, err
		}
	}
}

// next begins the next member; io.EOF where there is none.
func (m *members) next() error {
	first, err := m.from.Peek(1)
	if err != nil {
		return err
	}
	for first[0] == 0 {
		if _, err = m.from.Discard(1); err == nil {
			first, err = m.from.Peek(1)
		}
		if err != nil {
			return err
		}
		if first[0] != 0 {
			return fmt.Errorf("unexpected bytes after the zeros that follow the gzip data")
		}
	}
	if magic, _ := m.from.Peek(2); string(magic) != "\x1f\x8b" {
		return fmt.Errorf("unexpected bytes after the gzip data")
	}
	if err := m.z.Reset(m.from); err != nil {
		return err
	}
	m.z.Multistream(false)
	return nil
}

// streams reads a .xz file. The library takes one that ends between two blocks, or in a
// header, for a complete one; a complete one ends with "YZ", and zeros behind it.
type streams struct {
	*xz.Reader
	end tail
}

func newStreams(from io.Reader) (s *streams, err error) {
	s = &streams{end: tail{from: from}}
	s.Reader, err = xz.NewReader(&s.end)
	return s, err
}

func (s *streams) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err == io.EOF && string(s.end.last[:]) != "YZ" {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// tail keeps the last two bytes before the zeros at the end of the bytes read.
type tail struct {
	from  io.Reader
	last  [2]byte
	zeros bool // follow last
}

func (t *tail) Read(p []byte) (int, error) {
	n, err := t.from.Read(p)
	read := bytes.TrimRight(p[:n], "\x00")
	switch {
	case len(read) > 1:
		t.last = [2]byte(read[len(read)-2:])
	case len(read) == 1 && t.zeros:
		t.last = [2]byte{0, read[0]}
	case len(read) == 1:
		t.last = [2]byte{t.last[1], read[0]}
	}
	t.zeros = len(read) < n || len(read) == 0 && t.zeros
	return n, err
}

// lzmaReader reads a .lzma file, of which the library takes a cut one for a short one.
type lzmaReader struct {
	*lzma.Reader
	left int64 // bytes until the size that the header says; negative: it says none
}

func newLZMA(from io.Reader) (*lzmaReader, error) {
	z, err := lzma.ReaderConfig{DictCap: mostWindow}.NewReader(from)
	if err != nil {
		return nil, err
	}
	h, _ := z.Header()
	return &lzmaReader{z, h.Size}, nil
}

func (w *lzmaReader) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if w.left >= 0 {
		w.left -= int64(n)
	}
	if err == io.EOF && !w.EOSMarker() && w.left != 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// kinds are files that hold texts in another form, or none, by their type as mimetype
// names it, with what to do.
var kinds = map[string]struct{ name, advice string }{
	"application/vnd.apache.parquet":    {"a Parquet file", "give the Parquet file itself, complete and uncompressed"},
	"application/zip":                   {"a zip archive", "unpack the file first: `unzip FILE`"},
	"application/x-tar":                 {"a tar archive in the format from before 1988", "create it again with a newer tar"},
	"application/x-7z-compressed":       {"a 7-Zip archive", "unpack the file first: `7z x FILE`"},
	"application/vnd.rar":               {"a RAR archive", "unpack the file first: `unrar x FILE`"},
	"application/lzip":                  {"an lzip file", "decompress the file first: `lzip -dk FILE`"},
	"application/gzip":                  {"a gzip file", "decompress the file first"},
	"application/zstd":                  {"a zstd file", "decompress the file first"},
	"application/x-bzip2":               {"a bzip2 file", "decompress the file first"},
	"application/x-xz":                  {"an xz file", "decompress the file first"},
	"application/pdf":                   {"a PDF document", "extract its text first"},
	"application/vnd.sqlite3":           {"an SQLite database", "export its text as JSON lines"},
	"application/x-hdf5":                {"an HDF5 file", "export its text as JSON lines"},
	"application/x-hdf":                 {"an HDF5 file", "export its text as JSON lines"},
	"application/vnd.ms-cab-compressed": {"a cabinet archive", "unpack the file first"},
}

// others are kinds that mimetype does not know, by their first bytes.
var others = []struct{ magic, name, advice string }{
	{"ARROW1\x00\x00", "an Arrow file", "export its text as JSON lines"},
	{"\xff\xfe", "UTF-16", "convert the file first: `iconv -f UTF-16 -t UTF-8 FILE`"},
	{"\xfe\xff", "UTF-16", "convert the file first: `iconv -f UTF-16 -t UTF-8 FILE`"},
	{"\xff\xff\xff\xff", "an Arrow stream", "export its text as JSON lines"},
	{"Obj\x01", "an Avro file", "export its text as JSON lines"},
	{"\x93NUMPY", "a numpy array", "use --input-format tokens for .bin files of tokens"},
}

// refuseKind is an error where head begins a file that is known and no text; packed is
// the format that it was packed in, if it was.
func refuseKind(packed string, head []byte) error {
	name, advice := "", ""
	for _, o := range others {
		if strings.HasPrefix(string(head), o.magic) {
			name, advice = o.name, o.advice
		}
	}
	if name == "" && isText(head) {
		return nil
	}
	for m := mimetype.Detect(head); m != nil && name == ""; m = m.Parent() {
		name, advice = kinds[m.String()].name, kinds[m.String()].advice
	}
	if name == "" {
		return nil // whoever reads it says what is wrong
	}
	if packed != "" {
		name += ", compressed by " + packed
	}
	return fmt.Errorf("the input is %s, but must be JSON lines or text in UTF-8; %s", name, advice)
}

// isText reports whether head, which may end in the middle of a character, can begin a text.
func isText(head []byte) bool {
	if bytes.IndexByte(head, 0) >= 0 {
		return false
	}
	for len(head) > 0 {
		r, n := utf8.DecodeRune(head)
		if r == utf8.RuneError && n == 1 {
			return !utf8.FullRune(head)
		}
		head = head[n:]
	}
	return true
}
