package process

import (
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ring is memory that two processes share, through which one writes a stream of
// bytes and the other reads it. A waiter polls for a few microseconds where every
// rank has a core, then sleeps in the kernel.
type ring struct {
	state *ringState
	data  []byte
	spin  time.Duration

	over atomic.Bool // nothing more is wanted: waits end
	gone atomic.Bool // the other end is gone: what has been written can still be read
	life sync.Mutex  // of memory, which the user of this end frees
	all  []byte      // nil: freed
}

// ringState stands at the start of the memory, each part on cache lines of its own.
type ringState struct {
	written atomic.Uint64 // bytes, ever
	_       [56]byte
	read    atomic.Uint64 // bytes, ever
	_       [56]byte
	reader  sleeper
	writer  sleeper
}

// sleeper is where one end sleeps.
type sleeper struct {
	asleep atomic.Uint32 // it sleeps, or is about to
	bell   atomic.Uint32 // rung to wake it
	_      [56]byte
}

const (
	ringHead  = 4096    // bytes before the data
	ringStep  = 1 << 17 // bytes after which the other end hears of them
	ringAlign = 64      // every message starts at a multiple
)

// newRing is one end of a ring in mapped memory.
func newRing(memory []byte, spin time.Duration) *ring {
	return &ring{state: (*ringState)(unsafe.Pointer(&memory[0])), data: memory[ringHead:], spin: spin, all: memory}
}

// put writes all of b.
func (r *ring) put(b []byte) error {
	for len(b) > 0 {
		at, capacity := r.state.written.Load(), uint64(len(r.data))
		free, err := r.await(&r.state.writer, func() uint64 {
			free := capacity - (at - r.state.read.Load())
			if free < uint64(len(b)) {
				free &^= ringAlign - 1 // the reader sees complete elements
			}
			return free
		})
		if err != nil {
			return err
		}
		from := at % capacity
		n := min(uint64(len(b)), free, capacity-from, ringStep)
		copy(r.data[from:from+n], b[:n])
		r.state.written.Store(at + n)
		r.state.reader.wake()
		b = b[n:]
	}
	return nil
}

// view is what can be read next, at most n bytes; it stays until skip.
func (r *ring) view(n int64) ([]byte, error) {
	at, capacity := r.state.read.Load(), uint64(len(r.data))
	there, err := r.await(&r.state.reader, func() uint64 { return r.state.written.Load() - at })
	if err != nil {
		return nil, err
	}
	from := at % capacity
	return r.data[from : from+min(there, uint64(n), capacity-from, ringStep)], nil
}

// skip gives n bytes back to the writer.
func (r *ring) skip(n int) {
	r.state.read.Add(uint64(n))
	r.state.writer.wake()
}

func (r *ring) Read(b []byte) (int, error) {
	v, err := r.view(int64(len(b)))
	if err != nil {
		return 0, err
	}
	n := copy(b, v)
	r.skip(n)
	return n, nil
}

// await waits until ready gives more than 0.
func (r *ring) await(me *sleeper, ready func() uint64) (uint64, error) {
	var since time.Time
	for reads := 1; ; reads++ {
		if r.over.Load() {
			return 0, net.ErrClosed
		}
		gone, n := r.gone.Load(), ready()
		switch {
		case n > uint64(len(r.data)):
			return 0, errors.New("the counters in shared memory are damaged")
		case n > 0:
			return n, nil
		case gone:
			return 0, io.ErrUnexpectedEOF
		case r.spin > 0 && since.IsZero():
			since = time.Now()
		case r.spin > 0 && (reads%32 > 0 || time.Since(since) < r.spin):
			runtime.Gosched()
		default:
			me.sleep(func() bool { return ready() == 0 && !r.over.Load() && !r.gone.Load() })
			since = time.Time{}
		}
	}
}

// sleep sleeps until it is woken, unless that has become needless; a second at most.
func (s *sleeper) sleep(needed func() bool) {
	bell := s.bell.Load()
	s.asleep.Store(1)
	if needed() {
		limit := unix.Timespec{Sec: 1}
		// Woken, late or interrupted: all the same.
		_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&s.bell)), futexWait, uintptr(bell), uintptr(unsafe.Pointer(&limit)), 0, 0)
	}
	s.asleep.Store(0)
}

func (s *sleeper) wake() {
	if s.asleep.Load() != 0 {
		s.ring()
	}
}

func (s *sleeper) ring() {
	s.bell.Add(1)
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&s.bell)), futexWake, 1, 0, 0, 0) // nobody may sleep
}

// The kernel's numbers, which x/sys does not name.
const (
	futexWait = 0
	futexWake = 1
)

// leave notes that the other end is gone; stop ends all waits here.
func (r *ring) leave() { r.gone.Store(true); r.rouse() }
func (r *ring) stop()  { r.over.Store(true); r.rouse() }

// rouse wakes this end, whichever it is.
func (r *ring) rouse() {
	r.life.Lock()
	defer r.life.Unlock()
	if r.all != nil {
		r.state.reader.ring()
		r.state.writer.ring()
	}
}

// free gives the memory back; called by whoever uses this end.
func (r *ring) free() {
	r.life.Lock()
	defer r.life.Unlock()
	if r.all != nil {
		_ = unix.Munmap(r.all) // it was mapped
		r.all = nil
	}
}
