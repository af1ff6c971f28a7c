package pickle

import (
	"context"
	"fmt"
	"io"

	"github.com/zeebo/xxh3"

	"monotron/internal/exitcode"
	"monotron/internal/parallelio/blocks"
)

const (
	alignment = 64      // of payloads, as torch writes them
	taskBytes = 8 << 20 // of a storage at a time, which was read from a file
)

// Save writes v to w, which is at its start, as torch.save does, with root as the
// name of the zip's folder; it returns the bytes written. Storages are filled in
// their order, a bounded number of bytes ahead.
func Save(ctx context.Context, w io.Writer, root string, v Value) (written int64, err error) {
	err = SaveAll(ctx, w, root, []Value{v}, func(_ int, n int64) { written = n })
	return written, err
}

// SaveAll writes several such files one behind the other, and returns the size of
// each when it is written.
func SaveAll(ctx context.Context, w io.Writer, root string, values []Value, done func(i int, bytes int64)) error {
	list := make([]*saving, len(values))
	var tasks []blocks.Task
	var offsets []int64
	at := int64(0)
	for i, v := range values {
		s, err := newSaving(root, v)
		if err != nil {
			return err
		}
		t, p := s.tasks(at)
		list[i], tasks, offsets = s, append(tasks, t...), append(offsets, p...)
		at += s.size
	}
	q := blocks.Ahead(ctx, tasks, offsets)
	defer q.Stop()
	for i, s := range list {
		if err := s.write(w, q); err != nil {
			return err
		}
		done(i, s.size)
	}
	return nil
}

// saving is one file under way.
type saving struct {
	members   []packed
	texts     map[int]string // of those that are not storages
	stores    []*Storage
	counts    []int // of tasks, by storage
	directory int64
	size      int64
}

func newSaving(root string, v Value) (*saving, error) {
	s, keys := &saving{texts: map[int]string{}}, map[*Storage]string{}
	// The pickle first: it gives each storage its number.
	object, err := encode(v, maxPickle, func(store *Storage) (string, error) {
		key, ok := keys[store]
		if !ok {
			key = fmt.Sprint(len(s.stores))
			keys[store] = key
			s.stores = append(s.stores, store)
		}
		return key, nil
	})
	if err != nil {
		return nil, err
	}
	// Members in torch's order; texts are kept, storages are written from where they are.
	text := func(name, text string) {
		s.texts[len(s.members)] = text
		s.members = append(s.members, packed{name: root + "/" + name, size: int64(len(text))})
	}
	text("data.pkl", string(object))
	text(".format_version", "1")
	text(".storage_alignment", fmt.Sprint(alignment))
	text("byteorder", "little")
	for i, store := range s.stores {
		s.members = append(s.members, packed{name: fmt.Sprintf("%s/data/%d", root, i), size: store.Len * widths[store.DType]})
	}
	text("version", "3\n")
	text(".data/serialization_id", fmt.Sprintf("%040d", xxh3.Hash(object)))
	// The sizes are known before anything is written.
	s.directory = layout(s.members)
	s.size = s.directory + int64(len(directory(s.members, s.directory)))
	return s, nil
}

// tasks make all storages, one behind the other; offsets are where their bytes go,
// for an archive that begins at `at`.
func (s *saving) tasks(at int64) (all []blocks.Task, offsets []int64) {
	i := 0
	for k := range s.members {
		if _, ok := s.texts[k]; ok {
			continue
		}
		offset, list := at+s.members[k].data, s.stores[i].tasks()
		for _, t := range list {
			offsets = append(offsets, offset)
			offset += t.Bytes
		}
		all, s.counts = append(all, list...), append(s.counts, len(list))
		i++
	}
	return all, offsets
}

// write takes from q what tasks made.
func (s *saving) write(w io.Writer, q *blocks.Queue) error {
	store := 0
	for k := range s.members {
		m := &s.members[k]
		err := m.write(w, func(take func([]byte, func()) error) error {
			if text, ok := s.texts[k]; ok {
				return take([]byte(text), func() {})
			}
			store++
			return s.stores[store-1].write(s.counts[store-1], q, take)
		})
		if err != nil {
			return err
		}
	}
	_, err := w.Write(directory(s.members, s.directory))
	return err
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

func (s *Storage) write(tasks int, q *blocks.Queue, take func([]byte, func()) error) error {
	n := int64(0)
	for range tasks {
		raw, back, err := q.Next()
		if err != nil {
			return err
		}
		n += int64(len(raw))
		if err := take(raw, back); err != nil {
			return err
		}
	}
	if want := s.Len * widths[s.DType]; n != want {
		return exitcode.Errorf(exitcode.Internal, "pickle: internal error: %[2]d bytes were written for a storage of %[1]d bytes; report this, and include the command line", want, n)
	}
	return nil
}
