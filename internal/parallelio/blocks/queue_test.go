package blocks

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"monotron/internal/exitcode"
)

// numbered makes n tasks of up to size bytes; each holds its number all through.
func numbered(n int, size int64) []Task {
	r := rand.New(rand.NewPCG(1, 2))
	list := make([]Task, n)
	for i := range list {
		list[i] = Task{4 * r.Int64N(size/4+1), func(dst []byte) error {
			for at := 0; at < len(dst); at += 4 {
				binary.LittleEndian.PutUint32(dst[at:], uint32(i))
			}
			return nil
		}}
	}
	return list
}

// Tasks of all sizes, small, common and larger than all that may be in use, come
// out in their order with their bytes, though their buffers are used again.
func TestQueueOrder(t *testing.T) {
	tasks := append(numbered(300, 400<<10), numbered(40, 3<<20)...)
	tasks = append(tasks, Task{inFlight + 4, func(dst []byte) error { clear(dst); return nil }})
	q := Ahead(t.Context(), tasks, nil)
	defer q.Stop()
	for i, task := range tasks {
		raw, back, err := q.Next()
		if err != nil || int64(len(raw)) != task.Bytes {
			t.Fatalf("task %d: %d bytes, %v; want %d", i, len(raw), err, task.Bytes)
		}
		want := make([]byte, task.Bytes)
		if err := task.Fill(want); err != nil {
			t.Fatal(err)
		}
		if string(raw) != string(want) {
			t.Fatalf("task %d: bytes of another", i)
		}
		back()
	}
	if _, _, err := q.Next(); err == nil {
		t.Error("one more than there are")
	}
}

// What is filled ahead stays within the bound, whoever takes slowly.
func TestQueueBound(t *testing.T) {
	const size = 1 << 20
	var filled atomic.Int64
	tasks := make([]Task, 300)
	for i := range tasks {
		tasks[i] = Task{size, func([]byte) error { filled.Add(size); return nil }}
	}
	q := Ahead(t.Context(), tasks, nil)
	defer q.Stop()
	for i := range tasks {
		_, back, err := q.Next()
		if err != nil {
			t.Fatal(err)
		}
		if ahead := filled.Load() - int64(i)*size; ahead > inFlight {
			t.Fatalf("%d bytes are held before task %d is given back", ahead, i)
		}
		back()
	}
}

// The first error, or the end of the context, ends the queue and leaves no file.
func TestQueueErrors(t *testing.T) {
	broken := errors.New("broken")
	list := []Block{{0, 8, func([]byte) error { return nil }}, {8, 8, func([]byte) error { return broken }}, {16, 8, func([]byte) error { return nil }}}
	dir := t.TempDir()
	if _, err := Write(t.Context(), filepath.Join(dir, "a"), list); !errors.Is(err, broken) {
		t.Error(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := Write(ctx, filepath.Join(dir, "a"), list[:1]); exitcode.CodeOf(err) != exitcode.Again {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
}
