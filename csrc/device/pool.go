package device

import (
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"monotron/csrc/device/internal/spin"
	"monotron/internal/cgroup"
)

// Pool is the process's hands on a CPU: a few goroutines that run the tiles of
// whatever op is handed in. The caller works too, so an op of one tile wakes nobody.
//
// Who computes, caller or helper, holds a core; there are as many as threads. A
// caller waits for one; a helper takes only what no caller wants or will want in a
// moment, and gives it back between two tiles when one does. A core that a caller
// leaves is its own again in a moment, and nobody is woken for it, until it waits for
// its peers: with more ranks than cores a rank computes until then, its data in the cache.
//
// Waking a thread takes longer than many an op, and ops come close together. So
// who waits, a helper for the next op, a caller for the last tile or for its peers,
// polls for a short while before it sleeps, as long as it holds up nobody. A caller
// that waits for its peers does tiles of theirs.
type Pool struct {
	helpers int
	callers atomic.Int32 // ranks that call

	_     [64]byte
	free  atomic.Int32 // cores that nobody computes on
	want  atomic.Int32 // callers that wait for one
	soon  atomic.Int32 // callers between two ops
	awake atomic.Int32 // callers that do not sleep till their peers come
	_     [64]byte
	open  atomic.Int32 // jobs; read by helpers all the time
	_     [64]byte

	mu      sync.Mutex
	jobs    []*job     // with tiles to hand out
	workers []int      // numbers that nobody works under
	work    *sync.Cond // there is a job, and a core, for a helper

	turn chan struct{} // there is a core for a caller
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
	p := &Pool{helpers: max(0, threads-1), turn: make(chan struct{}, 1)}
	p.work = sync.NewCond(&p.mu)
	p.free.Store(int32(p.Threads()))
	p.SetCallers(1)
	for w := range p.helpers {
		p.workers = append(p.workers, w+1)
		go p.help()
	}
	return p
}

var shared struct {
	sync.Mutex
	pool *Pool
}

// cores is what Go found: the machine's, or fewer by a control group's limit or GOMAXPROCS. Go takes two where a group
// leaves no more than one; two threads of ours would wait for each other.
var cores = func() int {
	if os.Getenv("GOMAXPROCS") == "" && cgroup.Processors("/") <= 1 {
		return 1
	}
	return runtime.GOMAXPROCS(0)
}()

// Cores is how many cores the process may use, which runtime.GOMAXPROCS no longer reports once there
// is a shared pool.
func Cores() int { return cores }

// SharedPool is the one pool of the process, with a thread a core unless
// SetThreads came first.
func SharedPool() *Pool {
	shared.Lock()
	defer shared.Unlock()
	if shared.pool == nil {
		share(cores)
	}
	return shared.pool
}

// extraGoroutines is how many goroutines Go may run in addition to the pool's threads. With none, it
// takes every long call of C for an idle processor and starts threads to search
// for work; those push ranks off their cores, for 3 ms each time.
const extraGoroutines = 4

// share makes the shared pool; it runs under the lock.
func share(threads int) {
	runtime.GOMAXPROCS(threads + extraGoroutines)
	shared.pool = NewPool(threads)
}

// SetThreads fixes the size of the shared pool (--cpu-threads). Devices opened
// before keep the pool they have.
func SetThreads(n int) {
	shared.Lock()
	defer shared.Unlock()
	share(n)
}

// Threads is the number of threads that work when one caller calls.
func (p *Pool) Threads() int { return p.helpers + 1 }

// SetCallers sets how many ranks will call, by default 1.
func (p *Pool) SetCallers(n int) {
	more := int32(n) - p.callers.Swap(int32(n))
	p.awake.Add(more)
	p.soon.Add(more)
}

// Run calls body for every tile and returns when all are done. worker is 0 for
// the caller and 1..Threads-1 for the helpers; no two tiles run on one helper at
// once. body must not panic, and not call Run.
func (p *Pool) Run(tiles int64, body func(worker int, tile int64)) { p.run(tiles, body) }

// run is Run, and returns how long the caller had no core to begin on.
func (p *Pool) run(tiles int64, body func(worker int, tile int64)) (queued time.Duration) {
	if tiles <= 0 {
		return 0
	}
	queued = p.enter()
	if tiles == 1 || p.helpers == 0 {
		for t := range tiles {
			body(0, t)
		}
		p.exit()
		return queued
	}
	j := &job{tiles: tiles, body: body, done: make(chan struct{})}
	j.left.Store(tiles)
	p.offer(j)
	for j.tile(0) {
	}
	p.withdraw(j)
	p.exit()
	p.await(j)
	return queued
}

// tile does the job's next tile; false: there is none.
func (j *job) tile(worker int) bool {
	t := j.next.Add(1) - 1
	if t >= j.tiles {
		return false
	}
	j.body(worker, t)
	if j.left.Add(-1) == 0 {
		close(j.done)
	}
	return true
}

// offer lets helpers see the job. One that comes late finds nothing left and is
// not waited for.
func (p *Pool) offer(j *job) {
	p.mu.Lock()
	p.jobs = append(p.jobs, j)
	p.open.Add(1)
	if p.want.Load() == 0 {
		for range min(int64(p.free.Load()-p.soon.Load()), j.tiles-1) {
			p.work.Signal()
		}
	}
	p.mu.Unlock()
}

// withdraw takes the job, whose tiles are all handed out, from the helpers' sight.
func (p *Pool) withdraw(j *job) {
	p.mu.Lock()
	i := slices.Index(p.jobs, j)
	p.jobs = slices.Delete(p.jobs, i, i+1)
	p.open.Add(-1)
	p.mu.Unlock()
}

// patience is how often a waiting goroutine polls before it sleeps: some 100 µs.
const patience = 2000

// await returns when the job's last tile is finished.
func (p *Pool) await(j *job) {
	for i := 0; i < patience && (i%spin.Reads != 0 || p.roomy() && p.free.Load() > 0); i++ {
		if j.left.Load() == 0 {
			return
		}
		spin.Wait(i)
	}
	<-j.done
}

// help does tiles as long as no caller wants the core.
func (p *Pool) help() {
	var s stint
	for {
		j, worker := p.take()
		for p.want.Load() == 0 && j.tile(worker) {
			s.rest()
		}
		p.leave(worker)
	}
}

// take waits for a job, and a core to do it on.
func (p *Pool) take() (*job, int) {
	for i := 0; i < patience && (i%spin.Reads != 0 || p.roomy() && p.spare()); i++ {
		if p.open.Load() > 0 {
			p.mu.Lock()
			j, worker := p.pick(p.kept())
			p.mu.Unlock()
			if j != nil {
				return j, worker
			}
		}
		spin.Wait(i)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if j, worker := p.pick(p.kept()); j != nil {
			return j, worker
		}
		p.work.Wait()
	}
}

// pick takes a core for the oldest job with a tile left, and a number to work under, if more cores
// are free than so many; nil: nothing to do, or no core. It runs under the lock.
func (p *Pool) pick(kept int32) (*job, int) {
	last := len(p.workers) - 1
	if p.want.Load() > 0 || p.free.Load() <= kept || last < 0 {
		return nil, 0
	}
	for _, j := range p.jobs {
		if j.next.Load() < j.tiles {
			if !p.core() {
				return nil, 0
			}
			worker := p.workers[last]
			p.workers = p.workers[:last]
			return j, worker
		}
	}
	return nil, 0
}
