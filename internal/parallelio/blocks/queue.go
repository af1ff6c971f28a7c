package blocks

import (
	"context"
	"runtime"
	"sync"

	"monotron/internal/exitcode"
	"monotron/internal/parallelio"
)

// inFlight bounds the memory in use at a time, until it is given back; a task
// that needs more runs alone.
const inFlight = 84 << 20

// minWorkers fill tasks also where there are fewer cores: they wait for the disk.
const minWorkers = 4

// Task makes a known number of bytes.
type Task struct {
	Bytes int64
	Fill  func(dst []byte) error // may run at the same time as others'
}

// Queue hands out what tasks make, in their order, and fills the next ones
// meanwhile. One goroutine takes.
type Queue struct {
	tasks []Task
	at    []int64 // in the file, of each task's first byte
	all   sync.WaitGroup

	mu      sync.Mutex
	changed sync.Cond
	ready   []*parallelio.Buffer // filled, by task
	next    int                  // to be filled
	taken   int                  // handed out
	kept    int64                // memory
	failed  error
}

// Ahead begins to fill tasks; at says where in a file each will go, nil: nobody
// knows. Stop must be called in the end.
func Ahead(ctx context.Context, tasks []Task, at []int64) *Queue {
	q := &Queue{tasks: tasks, at: at, ready: make([]*parallelio.Buffer, len(tasks))}
	q.changed.L = &q.mu
	for range min(len(tasks), max(minWorkers, runtime.GOMAXPROCS(0))) {
		q.all.Go(func() { q.work(ctx) })
	}
	return q
}

// Next is what the next task made, or the first error; the bytes are valid until
// back is called, from any goroutine, which must be done before all others are made.
func (q *Queue) Next() (raw []byte, back func(), err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.failed == nil && q.taken < len(q.tasks) && q.ready[q.taken] == nil {
		q.changed.Wait()
	}
	if q.failed != nil {
		return nil, nil, q.failed
	}
	if q.taken == len(q.tasks) {
		return nil, nil, exitcode.Errorf(exitcode.Internal, "blocks: internal error: more tasks are requested than the %d that exist; report this, and include the command line", len(q.tasks))
	}
	buf := q.ready[q.taken]
	q.ready[q.taken] = nil
	q.taken++
	return buf.Bytes, func() { q.give(buf) }, nil
}

// Stop ends what is under way and waits for it. Bytes that were handed out may be
// given back later.
func (q *Queue) Stop() {
	q.mu.Lock()
	q.next = len(q.tasks)
	q.changed.Broadcast()
	q.mu.Unlock()
	q.all.Wait()
}

func (q *Queue) give(buf *parallelio.Buffer) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.kept -= parallelio.Footprint(int64(len(buf.Bytes)))
	buf.Free()
	q.changed.Broadcast()
}

func (q *Queue) work(ctx context.Context) {
	for {
		i, buf := q.take(ctx)
		if i < 0 {
			return
		}
		err := q.tasks[i].Fill(buf.Bytes)
		q.mu.Lock()
		if err != nil && q.failed == nil {
			q.failed = err
		}
		q.ready[i] = buf
		q.changed.Broadcast()
		q.mu.Unlock()
	}
}

// take waits for memory for the next task and returns its number; -1: none is left.
func (q *Queue) take(ctx context.Context) (int, *parallelio.Buffer) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.failed == nil && q.next < len(q.tasks) && q.kept > 0 && q.kept+parallelio.Footprint(q.tasks[q.next].Bytes) > inFlight {
		q.changed.Wait()
	}
	if q.failed == nil && ctx.Err() != nil {
		q.failed = exitcode.With(exitcode.Again, context.Cause(ctx))
		q.changed.Broadcast()
	}
	if q.failed != nil || q.next >= len(q.tasks) {
		return -1, nil
	}
	i, at := q.next, int64(0)
	if q.at != nil {
		at = q.at[i]
	}
	n := q.tasks[i].Bytes
	q.next++
	q.kept += parallelio.Footprint(n)
	return i, parallelio.NewBuffer(n, at)
}
