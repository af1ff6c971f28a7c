package inproc

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/mpu/comm"
	"monotron/mpu/comm/failure"
)

// World is where ranks that are goroutines of one process meet. Their devices'
// memory is the host's: bytes go straight from one rank's tensor to another's.
//
// Who arrives last at a collective carries it out, with the process's pool of
// threads; who came earlier sleeps, so that the cores belong to ranks with
// something to do. A rank calls from one goroutine at a time.
type World struct {
	Timeout time.Duration // longest wait of a rank for its peers, set before the ranks start; 0: any
	pool    *device.Pool

	mu       sync.Mutex // of everything below and of all rounds and queues
	still    *sync.Cond // nothing is being carried out
	err      error      // why nothing continues any more
	carrying int        // collectives whose bytes are on their way
	meetings map[string]*meeting
	ranks    []rankState
}

type rankState struct {
	ended   bool
	waiting *task      // it sleeps until this is over; nil: it is up
	newest  *comm.Call // for errors; package watch keeps a thousand
}

// meeting is what the members of one group share.
type meeting struct {
	members []int // ranks of the world
	next    []int64
	rounds  map[int64]*round // collectives that wait for members
	queues  map[[2]int]*queue
}

// NewWorld makes the world of n ranks and sets how many callers the process's pool
// will have.
func NewWorld(n int) *World {
	w := &World{pool: device.SharedPool(), meetings: map[string]*meeting{}, ranks: make([]rankState, n)}
	w.still = sync.NewCond(&w.mu)
	w.pool.SetCallers(n)
	return w
}

// Size is the number of ranks.
func (w *World) Size() int { return len(w.ranks) }

// Group is rank's membership of the group `name` of the given ranks. All members
// name the same ranks in the same order; another list is another group.
func (w *World) Group(rank int, name string, members []int, d *device.Device) (*comm.Group, error) {
	own, err := comm.Join(name, rank, members, w.Size())
	if err != nil {
		return nil, err
	}
	if own.Size() == 1 {
		return comm.Solo(name, rank, d), nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	key := fmt.Sprint(name, members)
	m := w.meetings[key]
	if m == nil {
		m = &meeting{members: own.Members, next: make([]int64, len(members)), rounds: map[int64]*round{}, queues: map[[2]int]*queue{}}
		w.meetings[key] = m
	}
	return comm.NewGroup(own, &member{Membership: own, world: w, meeting: m, device: d}), nil
}

// Run calls f once a rank, each on a goroutine of its own, and returns when all
// have returned: the error of the rank that failed first, or nil. Memory that a
// rank's device lacks is an error of that rank.
func (w *World) Run(f func(rank int) error) error {
	var all sync.WaitGroup
	for rank := range w.ranks {
		all.Go(func() { w.End(rank, guarded(f, rank)) })
	}
	all.Wait()
	w.pool.SetCallers(1)
	return w.Err()
}

func guarded(f func(int) error, rank int) (err error) {
	defer device.CatchOutOfMemory(&err)
	return f(rank)
}

// Abort ends everything with err: who waits, and who calls from now on, gets it.
// It returns when no rank's memory is being touched any more.
func (w *World) Abort(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail(err)
	w.quiesce()
}

// Err is why nothing continues any more; nil: all is well.
func (w *World) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// End says that rank will call no more, and why: nil when its work is done. Its
// peers get an error where they still count on it. After End nothing touches the
// rank's memory.
func (w *World) End(rank int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ranks[rank].ended = true
	if err != nil {
		w.fail(failure.Of(rank, err).Err())
	} else if left := w.unfinished(rank); left != nil {
		w.fail(exitcode.Errorf(exitcode.Internal, "rank %d ended while its %s was waiting for other ranks", rank, left))
	}
	w.checkStandstill()
	w.quiesce()
}

// quiesce waits until nothing is being carried out; the caller holds the lock.
func (w *World) quiesce() {
	for w.carrying > 0 {
		w.still.Wait()
	}
}

// fail gives err to all that waits for a member and to all calls to come. What
// is being carried out ends first.
func (w *World) fail(err error) {
	if w.err != nil {
		return
	}
	w.err = err
	for _, m := range w.meetings {
		for _, r := range m.rounds {
			r.end(err)
		}
		m.rounds = map[int64]*round{}
		for _, q := range m.queues {
			q.fail(err)
		}
	}
}

// unfinished is a call of rank that waits for its peers; nil: none.
func (w *World) unfinished(rank int) *comm.Call {
	for _, m := range w.meetings {
		own := slices.Index(m.members, rank)
		if own < 0 {
			continue
		}
		for _, r := range m.rounds {
			if r.calls[own] != nil {
				return r.calls[own]
			}
		}
		for _, q := range m.queues {
			if c := q.callOf(rank); c != nil {
				return c
			}
		}
	}
	return nil
}

// task is what a rank can wait for. Over and err belong to World.mu until done
// is closed.
type task struct {
	done  chan struct{}
	over  bool
	err   error
	lacks func() string // what it waits for, under the lock
}

func (t *task) end(err error) {
	if !t.over {
		t.over, t.err = true, err
		close(t.done)
	}
}

// pending is a rank's view of a task under way.
type pending struct {
	world *World
	rank  int
	task  *task
}

func (p pending) Wait() error {
	select {
	case <-p.task.done:
		return p.task.err
	default:
	}
	w := p.world
	w.mu.Lock()
	w.ranks[p.rank].waiting = p.task
	w.checkStandstill()
	w.mu.Unlock()
	w.await(p.task, p.rank)
	w.mu.Lock()
	w.ranks[p.rank].waiting = nil
	w.mu.Unlock()
	return p.task.err
}

// await returns when the task is over, or ends the world when that takes too long.
func (w *World) await(t *task, rank int) {
	if w.Timeout > 0 {
		late := time.AfterFunc(w.Timeout, func() { w.late(t, rank) })
		defer late.Stop()
	}
	w.pool.Away(t.done)
}

// begin and finish, called under the lock, enclose the moving of bytes without it.
func (w *World) begin() { w.carrying++ }

func (w *World) finish() {
	if w.carrying--; w.carrying == 0 {
		w.still.Broadcast()
	}
}
