package pickle

import (
	"archive/zip"
	"fmt"
	"io"

	"github.com/zeebo/xxh3"

	"monotron/fault"
)

const (
	alignment = 64       // of payloads, as torch writes them
	copyBytes = 16 << 20 // of a payload at a time
)

// Save writes v to w as torch.save does, with root as the name of the zip's
// folder; it returns the bytes written. Storages are filled one after the
// other, none is held in memory.
func Save(w io.Writer, root string, v Value) (int64, error) {
	var stores []*Storage
	keys := map[*Storage]string{}
	object, err := encode(v, maxPickle, func(s *Storage) (string, error) {
		key, ok := keys[s]
		if !ok {
			key = fmt.Sprint(len(stores))
			keys[s] = key
			stores = append(stores, s)
		}
		return key, nil
	})
	if err != nil {
		return 0, err
	}
	z := newZip(w, root)
	id := fmt.Sprintf("%040d", xxh3.Hash(object))
	for _, m := range []struct{ name, text string }{{"data.pkl", string(object)}, {".format_version", "1"},
		{".storage_alignment", fmt.Sprint(alignment)}, {"byteorder", "little"}} {
		if err := z.add(m.name, fromString(m.text)); err != nil {
			return 0, err
		}
	}
	for i, s := range stores {
		if err := z.add("data/"+fmt.Sprint(i), s.write); err != nil {
			return 0, err
		}
	}
	for _, m := range []struct{ name, text string }{{"version", "3\n"}, {".data/serialization_id", id}} {
		if err := z.add(m.name, fromString(m.text)); err != nil {
			return 0, err
		}
	}
	return z.finish()
}

func fromString(s string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	}
}

// write copies a storage's elements, from its Fill or from the file it was read of.
func (s *Storage) write(w io.Writer) error {
	count := &counter{w: w}
	var err error
	switch {
	case s.Fill != nil:
		err = s.Fill(count)
	case s.record != nil:
		err = s.copyTo(count)
	}
	if want := s.Len * widths[s.DType]; err == nil && count.n != want {
		return fault.Errorf(fault.Internal, "pickle: a storage of %d bytes got %d", want, count.n)
	}
	return err
}

func (s *Storage) copyTo(w io.Writer) error {
	total := s.Len * widths[s.DType]
	buf := make([]byte, min(copyBytes, total))
	for at := int64(0); at < total; at += int64(len(buf)) {
		chunk := buf[:min(int64(len(buf)), total-at)]
		if err := s.record.readAt(chunk, at, widths[s.DType]); err != nil {
			return err
		}
		if _, err := w.Write(chunk); err != nil {
			return err
		}
	}
	return nil
}

// zipWriter writes stored members whose data begin at multiples of alignment.
type zipWriter struct {
	count *counter
	zip   *zip.Writer
	root  string
	last  *counter // of the member before
}

func newZip(w io.Writer, root string) *zipWriter {
	count := &counter{w: w}
	return &zipWriter{count: count, zip: zip.NewWriter(count), root: root}
}

// descriptor is what follows the member before: CRC and sizes, wide where they
// must be.
func (z *zipWriter) descriptor() int64 {
	switch {
	case z.last == nil:
		return 0
	case z.last.n >= 1<<32-1:
		return 24
	}
	return 16
}

func (z *zipWriter) add(name string, write func(io.Writer) error) error {
	if err := z.zip.Flush(); err != nil {
		return err
	}
	const fixed = 30 // bytes of a local header before the name
	full := z.root + "/" + name
	start := z.count.n + z.descriptor() // which the next CreateHeader writes
	pad := int(-(start + fixed + int64(len(full)) + 4)) & (alignment - 1)
	extra := make([]byte, 4+pad)
	copy(extra, "FB")
	extra[2] = byte(pad)
	for i := range pad {
		extra[4+i] = 'Z'
	}
	w, err := z.zip.CreateHeader(&zip.FileHeader{Name: full, Method: zip.Store, Extra: extra})
	if err != nil {
		return err
	}
	z.last = &counter{w: w}
	return write(z.last)
}

func (z *zipWriter) finish() (int64, error) {
	err := z.zip.Close()
	return z.count.n, err
}

type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}
