package device

import (
	"sync"
	"sync/atomic"
	"time"
)

// Trail is how far a device has come whose ops run asynchronously, as seen by goroutines
// other than its user: marks that it has passed, and when it passed some.
//
// A host that waits for a GPU keeps its processor, as NCCL's threads do, so that only what
// the GPU has done distinguishes work from a stall.
type Trail struct {
	streams stamper
	begun   atomic.Int64 // calls of the backend
	over    atomic.Int64
	passed  atomic.Int64 // marks
	ahead   atomic.Int64 // marks that are not
	ops     int          // since the last mark; of the device's goroutine

	mu      sync.Mutex // of the fields below
	pending []marked   // not passed, oldest first
	last    marked     // the last stamp that was passed; its mark is kept to count from
	closed  bool
}

// stamper is Streams with marks that know when they were reached.
type stamper interface {
	Streams
	stamp(s Stream) (Mark, error)
	between(from, to Mark) (time.Duration, error)
}

// marked is a position in the stream of the ops.
type marked struct {
	mark Mark
	at   time.Time       // when it was passed: of stamps
	then func(time.Time) // nil: it is a mark, and no stamp
}

// Progress is what a Trail reports.
type Progress struct {
	Passed, Ahead int64 // marks: passed, and not yet
	Begun, Over   int64 // calls to the device; while they differ its goroutine is in one
}

// markEvery is how many ops one mark stands for.
const markEvery = 8

// newTrail begins where the stream of the ops is empty; nil where it cannot be followed.
func newTrail(s stamper) *Trail {
	first, err := s.stamp(s.Ops())
	if err != nil {
		return nil
	}
	return &Trail{streams: s, last: marked{mark: first, at: time.Now()}}
}

// Trail is nil where ops are done when their calls return.
func (d *Device) Trail() *Trail {
	if b, ok := d.backend.(interface{ Trail() *Trail }); ok {
		return b.Trail()
	}
	return nil
}

// At calls f when the device comes to here: now, where its ops are done when their calls
// return, else later, in the order of the calls and one at a time, on whatever goroutine
// polls then.
func (d *Device) At(f func(time.Time)) {
	t := d.Trail()
	if t == nil || d.taking != nil || !t.stamp(f) {
		f(time.Now())
	}
}

// Settle makes the calls that At owes for what the device has done.
func (d *Device) Settle() {
	if t := d.Trail(); t != nil {
		t.Poll()
	}
}

// Progress does not wait, whatever the device is at. It is as of the last Poll.
func (t *Trail) Progress() Progress {
	over := t.over.Load()
	return Progress{Passed: t.passed.Load(), Ahead: t.ahead.Load(), Over: over, Begun: t.begun.Load()}
}

// Poll finds out how far the device has come. It may wait for the driver.
func (t *Trail) Poll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.poll()
}

func (t *Trail) poll() {
	for len(t.pending) > 0 && !t.closed {
		p := t.pending[0]
		if reached, err := t.streams.Reached(p.mark); err != nil || !reached {
			return // the device itself reports its error
		}
		t.pending = t.pending[1:]
		t.ahead.Add(-1)
		t.passed.Add(1)
		if p.then == nil {
			t.streams.Drop(p.mark)
			continue
		}
		took, err := t.streams.between(t.last.mark, p.mark)
		if err != nil {
			took = time.Since(t.last.at)
		}
		t.streams.Drop(t.last.mark)
		p.at = t.last.at.Add(took)
		t.last = p
		p.then(p.at)
	}
}

// stamp has f called when the device comes to here; false: it cannot.
func (t *Trail) stamp(f func(time.Time)) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.put(t.streams.stamp, f)
}

// passing counts an op, and marks some of them.
func (t *Trail) passing() {
	if t.ops++; t.ops < markEvery {
		return
	}
	t.mark()
}

// mark enqueues a mark behind the ops so far.
func (t *Trail) mark() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.poll() // so that few are kept, however seldom others poll
	t.put(t.streams.Mark, nil)
	t.ops = 0
}

func (t *Trail) put(make func(Stream) (Mark, error), then func(time.Time)) bool {
	if t.closed {
		return false
	}
	m, err := make(t.streams.Ops())
	if err != nil {
		return false
	}
	t.pending = append(t.pending, marked{mark: m, then: then})
	t.ahead.Add(1)
	return true
}

// call notes that the device's goroutine calls it; the result is called at the end. A nil
// Trail notes nothing.
func (t *Trail) call() (over func()) {
	if t == nil {
		return func() {}
	}
	t.begun.Add(1)
	return t.ended
}

func (t *Trail) ended() { t.over.Add(1) }

// close drops the marks; nothing more is reported.
func (t *Trail) close() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for _, p := range t.pending {
		t.streams.Drop(p.mark)
	}
	t.streams.Drop(t.last.mark)
	t.pending = nil
}
