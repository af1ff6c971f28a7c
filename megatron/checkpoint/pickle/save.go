package pickle

import (
	"archive/zip"
	"context"
	"fmt"
	"io"

	"github.com/zeebo/xxh3"

	"monotron/fault"
	"monotron/megatron/checkpoint/formats/blocks"
)

const (
	alignment = 64      // of payloads, as torch writes them
	taskBytes = 8 << 20 // of a storage at a time, which was read from a file
)

// Save writes v to w as torch.save does, with root as the name of the zip's
// folder; it returns the bytes written. Storages are filled in their order, a
// bounded number of bytes ahead.
func Save(ctx context.Context, w io.Writer, root string, v Value) (written int64, err error) {
	err = SaveAll(ctx, w, root, []Value{v}, func(_ int, n int64) { written = n })
	return written, err
}

// SaveAll writes several such files one behind the other, and tells the size of
// each when it is written.
func SaveAll(ctx context.Context, w io.Writer, root string, values []Value, done func(i int, bytes int64)) error {
	list := make([]*saving, len(values))
	var tasks []blocks.Task
	for i, v := range values {
		s, err := newSaving(v)
		if err != nil {
			return err
		}
		list[i], tasks = s, append(tasks, s.tasks()...)
	}
	q := blocks.Ahead(ctx, tasks)
	defer q.Stop()
	for i, s := range list {
		n, err := s.write(w, root, q)
		if err != nil {
			return err
		}
		done(i, n)
	}
	return nil
}

// saving is one file under way.
type saving struct {
	object []byte
	stores []*Storage
	counts []int // of tasks, by storage
}

func newSaving(v Value) (*saving, error) {
	s, keys := &saving{}, map[*Storage]string{}
	var err error
	s.object, err = encode(v, maxPickle, func(store *Storage) (string, error) {
		key, ok := keys[store]
		if !ok {
			key = fmt.Sprint(len(s.stores))
			keys[store] = key
			s.stores = append(s.stores, store)
		}
		return key, nil
	})
	return s, err
}

// tasks make all storages, one behind the other.
func (s *saving) tasks() (all []blocks.Task) {
	for _, store := range s.stores {
		list := store.tasks()
		all, s.counts = append(all, list...), append(s.counts, len(list))
	}
	return all
}

// write takes from q what tasks made.
func (s *saving) write(w io.Writer, root string, q *blocks.Queue) (int64, error) {
	z := newZip(w, root)
	id := fmt.Sprintf("%040d", xxh3.Hash(s.object))
	for _, m := range []struct{ name, text string }{{"data.pkl", string(s.object)}, {".format_version", "1"},
		{".storage_alignment", fmt.Sprint(alignment)}, {"byteorder", "little"}} {
		if err := z.add(m.name, fromString(m.text)); err != nil {
			return 0, err
		}
	}
	for i, store := range s.stores {
		if err := z.add("data/"+fmt.Sprint(i), func(w io.Writer) error { return store.write(w, s.counts[i], q) }); err != nil {
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

// tasks are the storage's own, or read the file that it is of.
func (s *Storage) tasks() []blocks.Task {
	if s.record == nil {
		return s.Tasks
	}
	var list []blocks.Task
	width := widths[s.DType]
	total := s.Len * width
	for at := int64(0); at < total; at += taskBytes {
		list = append(list, blocks.Task{Bytes: min(taskBytes, total-at), Fill: func(dst []byte) error { return s.record.readAt(dst, at, width) }})
	}
	return list
}

func (s *Storage) write(w io.Writer, tasks int, q *blocks.Queue) error {
	n := int64(0)
	for range tasks {
		raw, err := q.Next()
		if err != nil {
			return err
		}
		if _, err := w.Write(raw); err != nil {
			return err
		}
		n += int64(len(raw))
	}
	if want := s.Len * widths[s.DType]; n != want {
		return fault.Errorf(fault.Internal, "pickle: a storage of %d bytes got %d", want, n)
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
