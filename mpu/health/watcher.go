package health

import (
	"maps"
	"slices"
	"sync"
	"time"

	"monotron/mpu/comm/failure"
)

// Watcher hears all ranks of a run and makes its verdict.
type Watcher struct {
	settings Settings
	ask      func(rank int)         // for a report; the answer is heard
	act      func(*failure.Verdict) // ends the run

	mu      sync.Mutex
	ranks   []view
	heard   int              // ranks that have reported
	groups  map[string][]int // members by key: one list a group, however many ranks name it
	verdict *failure.Verdict
	limited [Phases]time.Duration // the time-outs that were reported last
	marked  []Beat                // where the last remark on slow ranks was
	sent    chan struct{}         // a report has come
	quit    chan struct{}
	idle    sync.WaitGroup
	closing sync.Once
}

// Settings of a watcher.
type Settings struct {
	Limit  time.Duration // without anybody doing anything, until that is a stall; 0: it never is
	Remark func(string)  // takes a line on the slowest rank of each phase; nil: none
	Every  int64         // steps between those
	Factor float64       // of the longest stay in a phase, until a longer one ends the run; 0: none does
	Learnt func(string)  // takes a line on those time-outs; nil: none
}

const (
	beatEvery  = time.Second
	reportTime = 2 * time.Second // that a rank has to report
)

// NewWatcher watches `world` ranks; act ends the run, ask asks a rank for a report.
func NewWatcher(world int, s Settings, ask func(int), act func(*failure.Verdict)) *Watcher {
	w := newWatcher(world, s, ask, act)
	w.idle.Go(w.watch)
	return w
}

// newWatcher makes a watcher that hears, and checks only when called.
func newWatcher(world int, s Settings, ask func(int), act func(*failure.Verdict)) *Watcher {
	s.Every = max(1, s.Every)
	return &Watcher{settings: s, ask: ask, act: act, ranks: make([]view, world), groups: map[string][]int{}, sent: make(chan struct{}, 1), quit: make(chan struct{})}
}

// Hear takes a message of a rank that is another process; what cannot be read is not
// taken.
func (w *Watcher) Hear(rank int, sent []byte) {
	if m, err := read(sent); err == nil {
		w.hear(rank, m)
	}
}

// hear takes what a rank says.
func (w *Watcher) hear(rank int, m *message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	v, now := &w.ranks[rank], time.Now()
	v.heard = now
	if m.Hello != nil {
		w.greet(v, m.Hello)
	}
	if m.Beat != nil {
		if m.Beat.moved(v.beat) {
			v.moved = now
		}
		v.beat = m.Beat
	}
	if m.Report != nil {
		if v.report == nil {
			w.heard++
		}
		v.report = m.Report
		select {
		case w.sent <- struct{}{}:
		default:
		}
	}
	v.over = v.over || m.Bye
}

// greet takes which groups a rank is in; a group with ranks that the run has not is left
// out. The caller holds the lock.
func (w *Watcher) greet(v *view, h *Hello) {
	v.hello, v.groups, v.over = h, map[string]int{}, false
	for i, g := range h.Groups {
		key := g.Key()
		if _, known := w.groups[key]; !known {
			list, err := members(g.Ranks, len(w.ranks))
			if err != nil {
				continue
			}
			w.groups[key] = list
		}
		v.groups[key] = i
	}
}

// frozen is what is known of a run that stands still; nil: it does not. The caller holds the lock;
// the result is a copy, so that ranks are heard while it is read: what views point to is
// replaced, never changed.
func (w *Watcher) frozen(now time.Time) *frozen {
	if !standsStill(w.ranks, now, w.settings.Limit) {
		return nil
	}
	return &frozen{slices.Clone(w.ranks), maps.Clone(w.groups)}
}

// moved reports whether a rank has done something since an earlier beat.
func (b *Beat) moved(before *Beat) bool {
	return before == nil || b.Busy || b.Phase != before.Phase || b.Step != before.Step || b.Calls != before.Calls || b.Ended != before.Ended || b.Marks != before.Marks || b.Outside != before.Outside
}

// watch checks once a second.
func (w *Watcher) watch() {
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-w.quit:
			return
		case <-tick.C:
		}
		now := time.Now()
		if now.Sub(last) > 5*beatEvery {
			w.forgive(now) // this process was stopped itself
		}
		last = now
		w.mu.Lock()
		limits := w.limits()
		frozen, line, learnt, late := w.frozen(now), w.stragglers(), w.learnt(limits), w.outlasting(limits, now)
		w.mu.Unlock()
		if line != "" {
			w.settings.Remark(line)
		}
		if learnt != "" && w.settings.Learnt != nil {
			w.settings.Learnt(learnt)
		}
		if frozen != nil {
			if v := frozen.diagnose(); v != nil {
				late = v // it says more
			}
		}
		if late != nil {
			w.judge(late)
			return
		}
	}
}

func (w *Watcher) forgive(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.ranks {
		w.ranks[i].moved = now
	}
}

// judge asks the rank to blame where it stands, then ends the run.
func (w *Watcher) judge(v *failure.Verdict) {
	w.mu.Lock()
	blamed := &w.ranks[v.Rank]
	if blamed.report != nil {
		blamed.report, w.heard = nil, w.heard-1
	}
	over := blamed.over
	w.mu.Unlock()
	if !over {
		w.ask(v.Rank)
		w.until(func() bool { return blamed.report != nil })
	}
	if ranks := w.known(); ranks[v.Rank].report != nil {
		describe(v, ranks)
	}
	w.mu.Lock()
	w.verdict = v
	w.mu.Unlock()
	w.act(v)
}

// until waits a while for what ranks say.
func (w *Watcher) until(true func() bool) {
	limit := time.After(reportTime)
	for {
		w.mu.Lock()
		done := true()
		w.mu.Unlock()
		if done {
			return
		}
		select {
		case <-w.sent:
		case <-limit:
			return
		}
	}
}

// Judged is the verdict that the watcher itself has made; nil: none.
func (w *Watcher) Judged() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.verdict == nil {
		return nil
	}
	return w.verdict.Err()
}

// Verdict is that of a run that err has ended, with what is known of its ranks.
func (w *Watcher) Verdict(err error) *failure.Verdict {
	w.mu.Lock()
	v := w.verdict
	w.mu.Unlock()
	if v != nil {
		return v
	}
	v = failure.Of(-1, err)
	switch {
	case v.Kind == failure.Mismatch, v.Kind == failure.Other:
		w.until(w.allReported)
	case v.Kind == failure.Own && v.Rank >= 0 && v.Rank < len(w.ranks):
		w.until(func() bool { return w.ranks[v.Rank].report != nil })
	}
	ranks := w.known()
	switch v.Kind {
	case failure.Mismatch:
		accuse(v, ranks)
	case failure.Other:
		v = origin(v, ranks)
	}
	describe(v, ranks)
	w.mu.Lock()
	w.verdict = v
	w.mu.Unlock()
	return v
}

func (w *Watcher) allReported() bool { return w.heard == len(w.ranks) }

// known is what is known of all ranks now: a copy, so that ranks are heard while it is read (frozen).
func (w *Watcher) known() []view {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.ranks)
}

// Close ends the watching.
func (w *Watcher) Close() {
	w.closing.Do(func() { close(w.quit) })
	w.idle.Wait()
}
