package pickle

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"monotron/internal/exitcode"
)

// File is an open file of torch.save: its object, and the storages that the
// object's tensors refer to.
type File struct {
	Name string
	Root Value

	storages map[string]*Storage
	close    func() error
}

// Close closes the file; its tensors can then no longer be read.
func (f *File) Close() error { return f.close() }

// Open reads the object of a torch.save file, zip or older; the tensors'
// elements stay in the file until they are read.
// Errors: exitcode.NoInput, exitcode.IO, exitcode.BadData, all naming the file.
func Open(path string) (*File, error) {
	r, err := exitcode.Open(path)
	if err != nil {
		return nil, err
	}
	var f *File
	st, err := r.Stat()
	if err == nil {
		f, err = Read(path, r, st.Size())
	}
	if err != nil {
		_ = r.Close() // opened for reading
		return nil, err
	}
	f.close = r.Close
	return f, nil
}

// Read is Open of size bytes of r, which must stay readable; name is for messages.
func Read(name string, r io.ReaderAt, size int64) (*File, error) {
	head := make([]byte, min(4, max(0, size)))
	if _, err := r.ReadAt(head, 0); err != nil && err != io.EOF {
		return nil, exitcode.Errorf(exitcode.IO, "%s: %w", name, err)
	}
	f := &File{Name: name, storages: map[string]*Storage{}, close: func() error { return nil }}
	var err error
	if bytes.HasPrefix(head, []byte("PK")) {
		err = f.readZip(r, size)
	} else {
		err = f.readStream(r, size)
	}
	if err != nil {
		return nil, err
	}
	return f, f.checkTensors()
}

// Load reads a file that is one plain pickle.
func Load(path string) (Value, error) {
	data, err := exitcode.ReadFile(path, maxPickle)
	if err != nil {
		return nil, err
	}
	v, _, err := Decode(path, data)
	return v, err
}

// zipFile finds members by their names behind the root folder.
type zipFile struct {
	name    string
	r       io.ReaderAt
	members map[string]*zip.File
	unsaid  bool // CRCs were not written
	big     bool // elements are big-endian

	unpacked atomic.Int64 // bytes of compressed members in memory
}

func (f *File) readZip(r io.ReaderAt, size int64) error {
	z, err := openZip(f.Name, r, size)
	if err != nil {
		return err
	}
	const object = "data.pkl"
	data, err := z.read(object, maxPickle)
	if err != nil {
		return err
	}
	m := &machine{name: f.Name + ": " + object, data: data}
	m.persistent = func(id []Value) (Value, error) {
		s, err := f.storage(id, z.record)
		if err == nil {
			err = s.fits()
		}
		return s, err
	}
	f.Root, err = m.run()
	return err
}

func openZip(name string, r io.ReaderAt, size int64) (*zipFile, error) {
	bad := func(format string, args ...any) error {
		return exitcode.Errorf(exitcode.BadData, "%s is not a complete torch.save file: %w", name, fmt.Errorf(format, args...))
	}
	archive, err := zip.NewReader(r, size)
	if err != nil {
		return nil, bad("%w", err)
	}
	z := &zipFile{name: name, r: r, members: map[string]*zip.File{}}
	// All members lie in one folder, whose name is the file's; each name once.
	root := ""
	for i, member := range archive.File {
		folder, rest, ok := strings.Cut(member.Name, "/")
		if !ok || i > 0 && folder != root {
			return nil, bad("the members %q and %q of the archive are not in the same folder", member.Name, root)
		}
		root = folder
		if z.members[rest] != nil {
			return nil, bad("two members of the archive are called %q", member.Name)
		}
		z.members[rest] = member
	}
	if z.members["data.pkl"] == nil {
		return nil, bad("the archive has no data.pkl")
	}
	if z.members["version"] == nil {
		return nil, bad("the archive has no member \"version\"")
	}
	// Some writers leave the checksums 0: then none is compared.
	z.unsaid = z.members["data.pkl"].CRC32 == 0 && z.members["version"].CRC32 == 0
	// Byte order, of those files that say it.
	if z.members["byteorder"] != nil {
		order, err := z.read("byteorder", 16)
		if err != nil {
			return nil, err
		}
		switch strings.TrimSpace(string(order)) {
		case "little":
		case "big":
			z.big = true
		default:
			return nil, bad("the byte order %q is not supported", order)
		}
	}
	return z, nil
}

// read unpacks a small member.
func (z *zipFile) read(name string, limit uint64) ([]byte, error) {
	m := z.members[name]
	if m.UncompressedSize64 > limit {
		return nil, exitcode.Errorf(exitcode.BadData, "%s: %s has %d bytes; at most %d are allowed", z.name, name, m.UncompressedSize64, limit)
	}
	rec := &member{z: z, name: name, file: m}
	out := make([]byte, 0, min(m.UncompressedSize64, 1<<20))
	buf := make([]byte, min(m.UncompressedSize64, 1<<20))
	for uint64(len(out)) < m.UncompressedSize64 { // grows with what is really there
		n := min(uint64(len(buf)), m.UncompressedSize64-uint64(len(out)))
		if err := rec.readAt(buf[:n], int64(len(out)), 1); err != nil {
			return nil, err
		}
		out = append(out, buf[:n]...)
	}
	return out, nil
}

// record is the payload of a storage; nil where there is none.
func (z *zipFile) record(key string) payload {
	name := "data/" + key
	if z.members[name] == nil {
		return nil
	}
	return &member{z: z, name: name, file: z.members[name]}
}

// member is a payload in a zip. Its CRC is compared before the first byte is
// handed out.
type member struct {
	z    *zipFile
	name string
	file *zip.File

	once   sync.Once
	err    error
	offset int64  // of a stored member's data
	data   []byte // of a packed one
}

func (m *member) size() int64 { return int64(min(m.file.UncompressedSize64, 1<<62)) }

func (m *member) errorf(format string, args ...any) error {
	return exitcode.Errorf(exitcode.BadData, "%s: %s: %w", m.z.name, m.name, fmt.Errorf(format, args...))
}

func (m *member) readAt(dst []byte, at, width int64) error {
	if m.once.Do(m.prepare); m.err != nil {
		return m.err
	}
	if at < 0 || at > m.size()-int64(len(dst)) {
		return m.errorf("%[2]d bytes from byte %[1]d are outside the %[3]d bytes of the member", at, len(dst), m.size())
	}
	if m.data != nil {
		copy(dst, m.data[at:])
	} else if _, err := m.z.r.ReadAt(dst, m.offset+at); err != nil && len(dst) > 0 {
		return exitcode.Errorf(exitcode.IO, "%s: %s: byte %d: %w", m.z.name, m.name, at, err)
	}
	if m.z.big {
		swap(dst, width)
	}
	return nil
}

// prepare finds a member's bytes and checks them.
func (m *member) prepare() {
	offset, err := m.file.DataOffset()
	if err != nil {
		m.err = m.errorf("%w", err)
		return
	}
	m.offset = offset
	switch {
	case m.file.Method == zip.Store && m.file.CompressedSize64 != m.file.UncompressedSize64:
		m.err = m.errorf("the member is stored without compression, but the directory of the file gives two different sizes, %d and %d", m.file.CompressedSize64, m.file.UncompressedSize64)
	case m.file.Method == zip.Store:
		m.err = m.checkSum()
	case m.file.Method == zip.Deflate:
		m.err = m.unpack()
	default:
		m.err = m.errorf("the member is compressed with method %d of the zip format; only 0 (none) and 8 (deflate) are supported", m.file.Method)
	}
}

func (m *member) checkSum() error {
	hash := crc32.NewIEEE()
	section := io.NewSectionReader(m.z.r, m.offset, m.size())
	n, err := io.CopyBuffer(struct{ io.Writer }{hash}, struct{ io.Reader }{section}, make([]byte, min(1<<20, max(1, m.size()))))
	if err == nil && n != m.size() {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return m.errorf("only %d of %d bytes can be read: %w", n, m.size(), err)
	}
	return m.compare(hash.Sum32())
}

func (m *member) compare(sum uint32) error {
	if sum != m.file.CRC32 && !(m.z.unsaid && m.file.CRC32 == 0) {
		return m.errorf("the CRC-32 is %08x, but the directory of the file has %08x: the member is damaged", sum, m.file.CRC32)
	}
	return nil
}

// maxPacked bounds what a file's compressed members unpack to, together: each is in
// memory at once. torch.save compresses nothing.
const maxPacked = 128 << 20

func (m *member) unpack() error {
	const ratio = 1032 // that deflate cannot exceed
	switch n := m.file.UncompressedSize64; {
	case n/ratio > m.file.CompressedSize64:
		return m.errorf("%d compressed bytes cannot expand to %d bytes", m.file.CompressedSize64, n)
	case m.z.unpacked.Add(m.size()) > maxPacked:
		return m.errorf("the compressed members expand to more than %d bytes; torch.save does not compress members, so unpack the archive and zip it again without compression", maxPacked)
	}
	r, err := m.file.Open()
	if err != nil {
		return m.errorf("%w", err)
	}
	defer r.Close()
	raw := make([]byte, m.size())
	n, err := io.ReadFull(r, raw)
	if err == nil {
		_, err = r.Read(make([]byte, 1))
	}
	if err == nil {
		err = errors.New("more bytes follow")
	}
	if err != io.EOF || int64(n) != m.size() {
		return m.errorf("decompressing the member stopped after %d of %d bytes: %w", n, m.size(), err)
	}
	m.data = raw
	return m.compare(crc32.ChecksumIEEE(m.data))
}

// swap turns big-endian elements little.
func swap(b []byte, width int64) {
	for ; int64(len(b)) >= width && width > 1; b = b[width:] {
		slices.Reverse(b[:width])
	}
}

// storage answers a persistent id: ("storage", class, key, location, elements).
func (f *File) storage(id []Value, find func(key string) payload) (*Storage, error) {
	if len(id) < 5 {
		return nil, fmt.Errorf("a persistent id has %d parts, so it is not that of a torch storage", len(id))
	}
	if id[0] != "storage" {
		return nil, fmt.Errorf("the first part of a persistent id is not \"storage\", so it is not that of a torch storage")
	}
	class, ok := id[1].(Class)
	key, okKey := id[2].(string)
	n, okLen := id[4].(int64)
	if !ok || !okKey || !okLen || n < 0 || classes[string(class)] != storage {
		return nil, fmt.Errorf("the persistent id (%s, %s, %s) is not that of a torch storage", TypeName(id[1]), TypeName(id[2]), TypeName(id[4]))
	}
	dtype, ok := storages[string(class)[strings.LastIndexByte(string(class), '.')+1:]]
	if !ok {
		dtype = "U8" // untyped
	}
	if s := f.storages[key]; s != nil {
		if s.DType != dtype || s.Len != n {
			return nil, fmt.Errorf("the pickle describes data/%s as %d elements of %s, but earlier described it as %d elements of %s", key, n, dtype, s.Len, s.DType)
		}
		return s, nil
	}
	s := &Storage{Key: key, DType: dtype, Len: n, record: find(key)}
	f.storages[key] = s
	return s, nil
}

// fits refuses a record that is longer or shorter than the pickle says.
func (s *Storage) fits() error {
	width := widths[s.DType]
	if s.record == nil || s.Len <= math.MaxInt64/width && s.record.size() == s.Len*width {
		return nil
	}
	return fmt.Errorf("data/%s has %d bytes, but the pickle says that it has %d elements of %s", s.Key, s.record.size(), s.Len, s.DType)
}

// checkTensors names a tensor of the object that cannot be read, by its path.
func (f *File) checkTensors() error {
	var wrong error
	Walk(f.Root, func(path string, v Value) bool {
		if t, ok := v.(*Tensor); ok && wrong == nil {
			if err := t.Check(); err != nil {
				wrong = exitcode.Errorf(exitcode.BadData, "%s: tensor %q: %w", f.Name, path, err)
			}
		}
		return wrong == nil
	})
	return wrong
}

// Walk calls each for v and everything inside, each container once, with the
// keys that lead there joined by dots. Returning false leaves out the inside.
func Walk(v Value, each func(path string, v Value) bool) {
	w := walker{each: each, seen: map[any]bool{}}
	w.walk("", v, 0)
}

type walker struct {
	each func(path string, v Value) bool
	seen map[any]bool
}

func (w *walker) walk(path string, v Value, depth int) {
	// A value may refer to itself or be met twice.
	switch v.(type) {
	case *List, *Tuple, *Dict, *Set, *Object:
		if w.seen[v] {
			return
		}
		w.seen[v] = true
	}
	if !w.each(path, v) || depth > maxDepth {
		return
	}
	join := func(key string) string {
		if path == "" {
			return key
		}
		return path + "." + key
	}
	list := func(items []Value) {
		for i, item := range items {
			w.walk(join(fmt.Sprint(i)), item, depth+1)
		}
	}
	// What it consists of, each with its path.
	switch v := v.(type) {
	case *List:
		list(v.Items)
	case *Tuple:
		list(v.Items)
	case *Set:
		list(v.Items)
	case *Dict:
		for _, p := range v.Pairs {
			w.walk(join(keyText(p.Key)), p.Value, depth+1)
		}
		w.walk(path, v.State, depth+1)
	case *Object:
		list(v.Args)
		w.walk(path, v.State, depth+1)
	}
}

func keyText(v Value) string {
	switch v := v.(type) {
	case string:
		return v
	case int64:
		return fmt.Sprint(v)
	}
	return "(" + TypeName(v) + ")"
}
