package blocks

import (
	"context"
	"runtime"
	"sync"

	"monotron/fault"
)

const (
	// inFlight bounds the bytes that are held at a time; a task that needs more is
	// held alone.
	inFlight = 32 << 20
	// Buffers from small to large bytes are of one size and used again: touching new
	// memory costs as much as filling it.
	small, large = 64 << 10, inFlight / 4
)

// Task makes a known number of bytes.
type Task struct {
	Bytes int64
	Fill  func(dst []byte) error // may run beside others'
}

// Queue hands out what tasks make, in their order, and fills the next ones
// meanwhile. One goroutine takes.
type Queue struct {
	tasks []Task
	all   sync.WaitGroup

	mu      sync.Mutex
	changed sync.Cond
	ready   [][]byte // filled, by task
	next    int      // to be filled
	taken   int      // handed out
	last    []byte   // handed out, until the next is asked for
	held    int64    // capacities
	size    int64    // of a spare buffer
	spare   [][]byte
	failed  error
}

// Ahead begins to fill tasks. Stop must be called in the end.
func Ahead(ctx context.Context, tasks []Task) *Queue {
	q := &Queue{tasks: tasks, ready: make([][]byte, len(tasks))}
	q.changed.L = &q.mu
	for _, t := range tasks {
		if t.Bytes <= large {
			q.size = max(q.size, t.Bytes)
		}
	}
	for range min(len(tasks), max(2, runtime.GOMAXPROCS(0))) {
		q.all.Go(func() { q.work(ctx) })
	}
	return q
}

// Next is what the next task made, or the first error; the bytes are valid until
// the following call.
func (q *Queue) Next() ([]byte, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.give()
	for q.failed == nil && q.taken < len(q.tasks) && q.ready[q.taken] == nil {
		q.changed.Wait()
	}
	if q.failed != nil {
		return nil, q.failed
	}
	if q.taken == len(q.tasks) {
		return nil, fault.Errorf(fault.Internal, "blocks: more than the %d tasks are asked for", len(q.tasks))
	}
	q.last, q.ready[q.taken] = q.ready[q.taken], nil
	q.taken++
	return q.last, nil
}

// Stop ends what is under way and waits for it.
func (q *Queue) Stop() {
	q.mu.Lock()
	q.next = len(q.tasks)
	q.changed.Broadcast()
	q.mu.Unlock()
	q.all.Wait()
}

// give takes the bytes back that were handed out last.
func (q *Queue) give() {
	if q.last == nil {
		return
	}
	n := int64(cap(q.last))
	q.held -= n
	if n == q.size {
		q.spare = append(q.spare, q.last)
	}
	q.last = nil
	q.changed.Broadcast()
}

// capacity of the buffer for a task.
func (q *Queue) capacity(t *Task) int64 {
	if t.Bytes < small || t.Bytes > q.size {
		return t.Bytes
	}
	return q.size
}

func (q *Queue) work(ctx context.Context) {
	for {
		i, buf := q.take(ctx)
		if i < 0 {
			return
		}
		err := q.tasks[i].Fill(buf)
		q.mu.Lock()
		if err != nil && q.failed == nil {
			q.failed = err
		}
		q.ready[i] = buf
		q.changed.Broadcast()
		q.mu.Unlock()
	}
}

// take waits for room for the next task and names it; -1: there is no more to do.
func (q *Queue) take(ctx context.Context) (int, []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.failed == nil && q.next < len(q.tasks) && q.held > 0 && q.held+q.capacity(&q.tasks[q.next]) > inFlight {
		q.changed.Wait()
	}
	if q.failed == nil && ctx.Err() != nil {
		q.failed = fault.With(fault.Again, context.Cause(ctx))
		q.changed.Broadcast()
	}
	if q.failed != nil || q.next >= len(q.tasks) {
		return -1, nil
	}
	i, t := q.next, &q.tasks[q.next]
	n := q.capacity(t)
	q.next++
	q.held += n
	if k := len(q.spare) - 1; k >= 0 && n == q.size {
		buf := q.spare[k]
		q.spare = q.spare[:k]
		return i, buf[:t.Bytes]
	}
	return i, make([]byte, t.Bytes, n)
}
