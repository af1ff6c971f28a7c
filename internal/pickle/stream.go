package pickle

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/big"

	"monotron/internal/exitcode"
)

// The format of torch.save before 1.6: five pickles one behind the other (a
// magic number, a version, the writer's sizes, the object, the list of storage
// keys), then each storage as a count of elements and its bytes.

// streamMagic starts the older format.
var streamMagic, _ = new(big.Int).SetString("1950a86a20f9469cfc6c", 16)

const maxStream = 64 << 20 // bytes of its pickles together

func (f *File) readStream(r io.ReaderAt, size int64) error {
	data := make([]byte, min(size, maxStream))
	if n, err := r.ReadAt(data, 0); err != nil && !(err == io.EOF && n == len(data)) {
		return exitcode.Errorf(exitcode.IO, "%s: %w", f.Name, err)
	}
	// Four pickles in a row: magic, version, sizes of the writer's types, the object.
	s := &stream{file: f, data: data}
	magic, err := s.next()
	if n, ok := magic.(*big.Int); err != nil || !ok || n.Cmp(streamMagic) != 0 {
		return exitcode.Errorf(exitcode.BadData, "%s is neither a zip archive nor in the format of torch.save before torch 1.6: the file is truncated, damaged, or from another program", f.Name)
	}
	version, err := s.next()
	if err != nil {
		return err
	}
	if version != int64(1001) {
		return exitcode.Errorf(exitcode.BadData, "%s is in the format of torch.save before torch 1.6, but has version %v instead of 1001", f.Name, version)
	}
	sizes, err := s.next()
	if err != nil {
		return err
	}
	if d, ok := sizes.(*Dict); ok {
		if little, ok := d.Get("little_endian"); ok && little != true {
			return exitcode.Errorf(exitcode.BadData, "%s is in the format of torch.save before torch 1.6 and has big-endian elements, which is not supported", f.Name)
		}
	}
	if f.Root, err = s.next(); err != nil {
		return err
	}
	// The fifth lists the storages, whose bytes follow.
	keys, err := s.next()
	if err != nil {
		return err
	}
	return s.locate(r, size, keys)
}

type stream struct {
	file *File
	data []byte
	at   int
}

// next reads the next pickle.
func (s *stream) next() (Value, error) {
	m := &machine{name: s.file.Name, data: s.data, at: s.at}
	m.persistent = func(id []Value) (Value, error) {
		if len(id) > 5 && id[5] != nil {
			return nil, fmt.Errorf("the file has a view of a storage, which torch wrote before 1.0 and which is not supported")
		}
		return s.file.storage(id, func(string) payload { return &plain{} })
	}
	v, err := m.run()
	s.at = m.at
	return v, err
}

// locate finds each storage behind the pickles and checks the tensors, which
// were made before any size was known.
func (s *stream) locate(r io.ReaderAt, size int64, keys Value) error {
	list, ok := Items(keys)
	if !ok {
		return exitcode.Errorf(exitcode.BadData, "%s: a value of type %s is in the position of the list of storages", s.file.Name, TypeName(keys))
	}
	// Each storage: its number of elements, then these.
	at := int64(s.at)
	for _, k := range list {
		key, _ := k.(string)
		store := s.file.storages[key]
		if store == nil {
			return exitcode.Errorf(exitcode.BadData, "%s: storage %.40q is listed, but no tensor uses it", s.file.Name, keyText(k))
		}
		var count [8]byte
		if _, err := r.ReadAt(count[:], at); err != nil {
			return exitcode.Errorf(exitcode.BadData, "%s: the file ends before storage %q", s.file.Name, key)
		}
		n, width := int64(binary.LittleEndian.Uint64(count[:])), widths[store.DType]
		if at += 8; n < 0 || n > (size-at)/width {
			return exitcode.Errorf(exitcode.BadData, "%s: storage %q of %d elements is beyond the end of the file", s.file.Name, key, n)
		}
		*store.record.(*plain) = plain{r: r, offset: at, bytes: n * width}
		at += n * width
	}
	// Now that sizes are known, tensors can be checked.
	Walk(s.file.Root, func(_ string, v Value) bool {
		if t, ok := v.(*Tensor); ok {
			t.problem = t.check()
		}
		return true
	})
	return nil
}

// plain is a payload of bytes in a row.
type plain struct {
	r             io.ReaderAt
	offset, bytes int64
}

func (p *plain) size() int64 { return p.bytes }

func (p *plain) readAt(dst []byte, at, _ int64) error {
	if at < 0 || at > p.bytes-int64(len(dst)) {
		return fmt.Errorf("%[2]d bytes from byte %[1]d are outside the %[3]d bytes of the storage", at, len(dst), p.bytes)
	}
	if len(dst) == 0 {
		return nil
	}
	_, err := p.r.ReadAt(dst, p.offset+at)
	return exitcode.With(exitcode.IO, err)
}
