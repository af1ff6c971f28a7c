package health

import (
	"runtime"
	"strings"
	"sync"
	"time"

	"monotron/csrc/device"
	"monotron/mpu/comm"
)

// Recorder is what one rank knows of itself. A nil Recorder records nothing.
type Recorder struct {
	mu       sync.Mutex
	page     *page
	interned map[string]uint32
	sites    map[[depth]uintptr]site
	groups   []*Group
	began    time.Time // of the phase, on the host
	slept    time.Time // since when it waits, on the host
	account  account
	longest  [Phases]float64 // seconds in a phase at once
	thread   string          // "goroutine 7 [": how stacks name the rank's own
	trouble  func(Phase, int64)
	meddler  Meddler
	outside  int64 // Beat.Outside

	device  *device.Device // nil: its ops are done when their calls return
	trail   *device.Trail  // of device
	pending []*pending     // in the order of the calls
	before  deviceStanding // at the last beat
	quit    chan struct{}
	closing sync.Once
}

// site is where a collective was called from, as strings of the page.
type site struct{ direct, outer uint32 }

// depth is how many callers tell one call site from another; the first few are the
// group's own.
const depth = 8

// NewRecorder makes the recorder of a rank of `world`. With a folder, what it keeps
// is a file there (flight_00003.bin), that others can read when the rank is dead.
func NewRecorder(rank, world int, folder string) (*Recorder, error) {
	r := &Recorder{interned: map[string]uint32{}, sites: map[[depth]uintptr]site{}, began: time.Now(), quit: make(chan struct{})}
	r.account.began = r.began
	var err error
	if r.page, err = newPage(rank, world, folder); err != nil {
		return nil, err
	}
	r.page.head.PhaseStart = r.began.UnixNano()
	own.busy(r, false)
	return r, nil
}

// Rank is whose recorder it is.
func (r *Recorder) Rank() int { return int(r.page.head.Rank) }

// Mine says that the caller's goroutine is the rank's: whose stack a verdict shows.
func (r *Recorder) Mine() {
	if r == nil {
		return
	}
	text := make([]byte, 64)
	text = text[:runtime.Stack(text, false)]
	name, _, _ := strings.Cut(string(text), "[")
	r.mu.Lock()
	defer r.mu.Unlock()
	r.thread = name + "["
}

// Troubled sets what is called whenever the rank enters a phase: fault injection.
func (r *Recorder) Troubled(f func(Phase, int64)) {
	if r != nil {
		r.trouble = f
	}
}

// Meddled sets what comes before groups that are wrapped from now on: fault injection.
func (r *Recorder) Meddled(f Meddler) {
	if r != nil {
		r.meddler = f
	}
}

// Enter says that the rank now is at a phase of a step, counted from 1.
func (r *Recorder) Enter(p Phase, step int64) {
	if r == nil {
		return
	}
	r.at(func(a *account, at time.Time) { a.enter(p, step, at) })
	r.mu.Lock()
	h, now := r.page.head, time.Now()
	if before := Phase(h.Phase); before < Phases {
		r.longest[before] = max(r.longest[before], now.Sub(r.began).Seconds())
	}
	r.began = now
	h.Phase, h.Step, h.PhaseStart = uint32(p), step, r.began.UnixNano()
	r.mu.Unlock()
	if r.trouble != nil {
		r.trouble(p, step)
	}
}

// Outside says that what the rank waits for outside of the run, such as another run that builds
// the same files, is alive: the wait is not a stall.
func (r *Recorder) Outside() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outside++
}

// Worked is Beat's Own and Steps.
func (r *Recorder) Worked() (own [Phases]float64, steps int64) {
	if r == nil {
		return own, 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.account.full, r.account.steps
}

// Now is what the rank is at.
func (r *Recorder) Now() (Phase, int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Phase(r.page.head.Phase), r.page.head.Step
}

// enter records a collective that the rank calls now, and gives its number.
func (r *Recorder) enter(g *Group, c slot, messages []comm.Transfer) int64 {
	var pcs [depth]uintptr
	runtime.Callers(3, pcs[:]) // not this, nor Start
	now := time.Now().UnixNano()
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.page.head
	at, known := r.sites[pcs]
	if !known {
		at = r.resolve(pcs)
		r.sites[pcs] = at
	}
	c.Number, c.Group, c.Site, c.Outer, c.Phase, c.Step, c.Start = h.Written+1, g.name, at.direct, at.outer, h.Phase, h.Step, now
	if comm.Op(c.Op) == comm.Exchange {
		c.Seq, c.Moves = g.exchanges, g.number(messages)
		g.exchanges++
	} else {
		c.Seq = g.entered
		g.entered++
	}
	*r.page.slot(c.Number) = c
	h.Written = c.Number
	return c.Number
}

// left records that a collective is over.
func (r *Recorder) left(number int64) {
	now := time.Now().UnixNano()
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.page.slot(number); s.Number == number {
		s.End = now
	}
	r.page.head.Ended++
}

// sleep and wake enclose the wait for a collective. Waits of another goroutine than
// the rank's own (aside) are not the rank's.
func (r *Recorder) sleep(number int64) {
	r.at((*account).sleep)
	r.mu.Lock()
	r.page.head.Waiting = number
	r.slept = time.Now()
	r.mu.Unlock()
}

func (r *Recorder) wake() {
	r.at((*account).wake)
	r.mu.Lock()
	r.page.head.Waiting = 0
	r.mu.Unlock()
}

// resolve names who called the group, and the first one outside the parallel layers.
func (r *Recorder) resolve(pcs [depth]uintptr) (s site) {
	frames := runtime.CallersFrames(pcs[:])
	for {
		f, more := frames.Next()
		if f.File != "" && !inGroup(f.Function) {
			text := shortFile(f.File) + ":" + itoa(f.Line)
			if s.direct == 0 {
				s.direct = r.intern(text)
			}
			if !strings.Contains(f.Function, "monotron/mpu.") {
				s.outer = r.intern(text)
				return s
			}
		}
		if !more {
			return s
		}
	}
}

// inGroup reports whether a function is of a group, or an engine over it.
func inGroup(function string) bool {
	return strings.HasPrefix(function, "monotron/mpu/comm.") || strings.HasPrefix(function, "monotron/mpu/comm/") && strings.HasSuffix(function, ".Start")
}

// shortFile is a source file from the module's root on.
func shortFile(path string) string {
	for _, top := range []string{"/megatron/", "/mpu/", "/tools/"} {
		if at := strings.LastIndex(path, top); at >= 0 {
			return path[at+1:]
		}
	}
	return path[strings.LastIndex(path, "/")+1:]
}

// intern keeps a text in the page; 0 where it is full.
func (r *Recorder) intern(text string) uint32 {
	if id, known := r.interned[text]; known {
		return id
	}
	id := r.page.put(text)
	r.interned[text] = id
	return id
}

// Calls are the last calls, oldest first.
func (r *Recorder) Calls() []Call {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.page.calls()
}

// Close ends the file; the memory stays readable.
func (r *Recorder) Close() error {
	if r == nil {
		return nil
	}
	r.closing.Do(func() { close(r.quit) })
	own.forget(r)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.page.close()
}
