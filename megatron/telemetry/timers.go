package telemetry

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Timer levels (--timing-log-level): a timer of a higher level than asked for
// does not run.
const (
	LevelAlways  = 0
	LevelStep    = 1
	LevelMicro   = 2 // per micro-batch and per message
	TimerMaxOnly = "max"
	TimerMinMax  = "minmax"
	TimerAll     = "all"
)

// Timers measures named phases of one rank. It belongs to that rank's goroutine.
// Phases that Megatron reports have its names.
type Timers struct {
	Trace *Trace // gets every finished phase; nil: none
	Rank  int
	Clock Clock // nil: the host's

	level  int
	timers map[string]*timer
	order  []string
}

// Clock is that of a device whose ops run behind the host's back: a phase lasts from when
// the device comes to its first op until it has done the last.
type Clock interface {
	At(f func(time.Time)) // calls f when the device comes to here, maybe later, in order
	Settle()              // returns once every call that can be made has been
}

type timer struct {
	running bool

	mu      sync.Mutex // of the clock's calls
	started time.Time
	elapsed time.Duration
}

// NewTimers runs timers up to level.
func NewTimers(level int) *Timers { return &Timers{level: level, timers: map[string]*timer{}} }

// Level is the finest that is timed.
func (t *Timers) Level() int { return t.level }

// Start begins a phase. With a Trace, phases of any level are timed for it.
func (t *Timers) Start(name string, level int) {
	if level > t.level && !t.Trace.On() {
		return
	}
	tm := t.timers[name]
	if tm == nil {
		tm = &timer{}
		t.timers[name] = tm
		t.order = append(t.order, name)
	}
	if tm.running {
		panic("report: timer " + name + " is running already")
	}
	tm.running = true
	t.at(func(now time.Time) {
		tm.mu.Lock()
		defer tm.mu.Unlock()
		tm.started = now
	})
}

func (t *Timers) at(f func(time.Time)) {
	if t.Clock == nil {
		f(time.Now())
		return
	}
	t.Clock.At(f)
}

func (t *Timers) settle() {
	if t.Clock != nil {
		t.Clock.Settle()
	}
}

// Stop ends a phase that Start began; one that was not begun is ignored.
func (t *Timers) Stop(name string) {
	tm := t.timers[name]
	if tm == nil || !tm.running {
		return
	}
	tm.running = false
	trace := t.Trace
	t.at(func(now time.Time) {
		tm.mu.Lock()
		defer tm.mu.Unlock()
		tm.elapsed += now.Sub(tm.started)
		trace.Span(name, t.Rank, tm.started, now)
	})
}

// Time runs f as a phase.
func (t *Timers) Time(name string, level int, f func()) {
	t.Start(name, level)
	defer t.Stop(name)
	f()
}

// Elapsed is the time of a phase since the last reset.
func (t *Timers) Elapsed(name string) time.Duration {
	t.settle()
	if tm := t.timers[name]; tm != nil {
		return tm.so(false)
	}
	return 0
}

// so is the time so far, and whether it begins again.
func (tm *timer) so(restarted bool) time.Duration {
	tm.mu.Lock()
	defer tm.mu.Unlock()
	elapsed := tm.elapsed
	if restarted {
		tm.elapsed = 0
	}
	return elapsed
}

// Take gives the seconds of each name, 0 where there is none, and resets them.
func (t *Timers) Take(names []string) []float64 {
	t.settle()
	out := make([]float64, len(names))
	for i, name := range names {
		if tm := t.timers[name]; tm != nil {
			out[i] = tm.so(true).Seconds()
		}
	}
	return out
}

// Names lists the phases seen so far, in order of first use.
func (t *Timers) Names() []string { return slices.Clone(t.order) }

// LoggedTimers are the names of the timer lines at a level, in Megatron's order.
func LoggedTimers(level int) []string {
	var names []string
	if level >= LevelStep {
		names = append(names, "forward-backward", "layernorm-grads-all-reduce", "embedding-grads-all-reduce", "all-grads-sync",
			"params-all-gather", "optimizer-copy-to-main-grad", "optimizer-unscale-and-check-inf", "optimizer-clip-main-grad",
			"optimizer-count-zeros", "optimizer-inner-step", "optimizer-copy-main-to-model-params", "optimizer")
	}
	if level >= LevelMicro {
		names = append(names, "batch-generator", "forward-compute", "backward-compute", "forward-recv", "forward-send",
			"backward-recv", "backward-send", "forward-send-forward-recv", "forward-send-backward-recv",
			"backward-send-forward-recv", "backward-send-backward-recv", "forward-backward-send-forward-backward-recv", "context-exchange")
	}
	return names
}

// TimerTable is what all ranks timed since the log line before.
type TimerTable struct {
	Option  string // TimerMaxOnly, TimerMinMax, TimerAll
	Names   []string
	Seconds [][]float64 // by rank, then name
}

// timed reports whether there is anything to print.
func (t *TimerTable) timed() bool {
	for i := range t.Names {
		if t.slowest(i) > 0 {
			return true
		}
	}
	return false
}

// slowest is the most that a rank spent on name i.
func (t *TimerTable) slowest(i int) float64 {
	_, high, _ := minMax(t.Seconds, i)
	return high
}

// text is Megatron's for the timers, divided by iterations, in milliseconds. Names that
// no rank timed are left out.
func (t *TimerTable) text(iterations int) string {
	scale := 1000 / float64(max(1, iterations))
	if t.Option == TimerAll {
		return t.allRanks(scale)
	}
	head := "(min, max) time across ranks (ms):"
	if t.Option == TimerMaxOnly {
		head = "max time across ranks (ms):"
	}
	var b strings.Builder
	for i, name := range t.Names {
		low, high, timed := minMax(t.Seconds, i)
		if !timed {
			continue
		}
		label := name + " " + strings.Repeat(".", max(0, 48-len(name)-1))
		if t.Option == TimerMaxOnly {
			fmt.Fprintf(&b, "\n    %s: %.2f", label, high*scale)
		} else {
			fmt.Fprintf(&b, "\n    %s: (%.2f, %.2f)", label, low*scale, high*scale)
		}
	}
	return head + b.String()
}

// minMax is over the ranks that timed column i at all.
func minMax(seconds [][]float64, i int) (low, high float64, timed bool) {
	for _, row := range seconds {
		if s := row[i]; s > 0 {
			if !timed || s < low {
				low = s
			}
			high, timed = max(high, s), true
		}
	}
	return low, high, timed
}

func (t *TimerTable) allRanks(scale float64) string {
	var b strings.Builder
	for i, name := range t.Names {
		named := false
		for rank, row := range t.Seconds {
			if row[i] <= 0 {
				continue
			}
			if !named {
				fmt.Fprintf(&b, "\n  %s:", name)
				named = true
			}
			fmt.Fprintf(&b, "\n     rank %2d: %.2f", rank, row[i]*scale)
		}
	}
	return "times across ranks (ms):" + b.String()
}
