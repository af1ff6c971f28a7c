package device

import (
	"runtime"
	"sync"
	"sync/atomic"

	"monotron/csrc/device/internal/spin"
)

// Pool is the process's hands on a CPU: a few goroutines, each locked to its
// thread, that run the tiles of whatever op is handed in. The caller works too,
// so an op of one tile wakes nobody.
//
// Waking a thread takes longer than many an op, and ops come close together. So
// who waits, a helper for the next op or a caller for the last tile, looks again
// and again for a short while before it sleeps.
type Pool struct {
	helpers int
	jobs    chan *job
}

type job struct {
	tiles int64
	body  func(worker int, tile int64)
	next  atomic.Int64  // tile to hand out
	left  atomic.Int64  // tiles not finished
	done  chan struct{} // closed by whoever finishes the last
}

// NewPool makes a pool for `threads` threads, the caller's included.
func NewPool(threads int) *Pool {
	p := &Pool{helpers: max(0, threads-1), jobs: make(chan *job, 64*max(1, threads))}
	for w := range p.helpers {
		go p.work(w + 1)
	}
	return p
}

var shared struct {
	sync.Mutex
	pool *Pool
}

// SharedPool is the one pool of the process, with a thread a core unless
// SetThreads came first.
func SharedPool() *Pool {
	shared.Lock()
	defer shared.Unlock()
	if shared.pool == nil {
		shared.pool = NewPool(runtime.GOMAXPROCS(0))
	}
	return shared.pool
}

// SetThreads fixes the size of the shared pool (--cpu-threads). Devices opened
// before keep the pool they have.
func SetThreads(n int) {
	shared.Lock()
	defer shared.Unlock()
	shared.pool = NewPool(n)
}

// Threads is the number of threads that work when one caller calls.
func (p *Pool) Threads() int { return p.helpers + 1 }

// Run calls body for every tile and returns when all are done. worker is 0 for
// the caller and 1..Threads-1 for the helpers; no two tiles run on one helper at
// once. body must not panic.
func (p *Pool) Run(tiles int64, body func(worker int, tile int64)) {
	if tiles <= 1 || p.helpers == 0 {
		for t := range tiles {
			body(0, t)
		}
		return
	}
	j := &job{tiles: tiles, body: body, done: make(chan struct{})}
	j.left.Store(tiles)
	p.invite(j)
	j.drain(0)
	j.wait()
}

// invite queues the job for as many helpers as there is work for. A helper that
// comes late finds nothing left and is not waited for.
func (p *Pool) invite(j *job) {
	for range min(int64(p.helpers), j.tiles-1) {
		select {
		case p.jobs <- j:
		default: // the queue is full of other ranks' work: the caller does it all
			return
		}
	}
}

func (j *job) drain(worker int) {
	for t := j.next.Add(1) - 1; t < j.tiles; t = j.next.Add(1) - 1 {
		j.body(worker, t)
		if j.left.Add(-1) == 0 {
			close(j.done)
		}
	}
}

// patience is how often who waits looks before it sleeps: some 100 µs.
const patience = 2000

// wait returns when the last tile is finished.
func (j *job) wait() {
	for range patience {
		if j.left.Load() == 0 {
			return
		}
		spin.Pause()
	}
	<-j.done
}

func (p *Pool) work(worker int) {
	runtime.LockOSThread()
	for {
		p.take().drain(worker)
	}
}

// take waits for a job.
func (p *Pool) take() *job {
	for range patience {
		select {
		case j := <-p.jobs:
			return j
		default:
			spin.Pause()
		}
	}
	return <-p.jobs
}
