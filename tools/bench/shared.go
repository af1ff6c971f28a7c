package bench

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"monotron/csrc/device"
	"monotron/internal/system"
)

// cores is what a machine takes away from the steps that it shares with others.
type cores struct {
	Stolen float64 `json:"stolen"` // of all processors' time, by the hypervisor for other guests
	// Of the threads' time: ready, without a core, and the process not on all of its own.
	Waited       float64 `json:"waited"`
	Switches     float64 `json:"involuntary_switches_per_second"` // of this process's threads
	Instructions float64 `json:"instructions_between_steps"`      // the median run of all threads, over the peak
}

// account is what the system has counted so far.
type account struct {
	at       time.Time
	stolen   time.Duration // of all processors
	waited   time.Duration // of this process's threads that live
	switches int64
}

// hertz is what /proc/stat counts in, whatever the kernel's own clock.
const hertz = 100

// accountNow reads the system's counters; what one does not say is 0.
func accountNow() account {
	a := account{at: time.Now()}
	if f := strings.Fields(firstLine("/proc/stat")); len(f) > 8 { // cpu user nice system idle iowait irq softirq steal
		n, _ := strconv.ParseInt(f[8], 10, 64)
		a.stolen = time.Duration(n) * time.Second / hertz
	}
	threads, _ := filepath.Glob("/proc/self/task/*/schedstat")
	for _, path := range threads {
		if f := strings.Fields(firstLine(path)); len(f) > 1 { // ran, waited, slices
			n, _ := strconv.ParseInt(f[1], 10, 64)
			a.waited += time.Duration(n)
		}
	}
	_, a.switches = system.Usage()
	return a
}

// watcher measures the machine while steps run, and between them.
type watcher struct {
	instructions *device.Instructions // nil: the device has none
	begin, end   account
	runs         []float64
}

// start is called before the first step that counts.
func (w *watcher) start() {
	if w != nil {
		w.begin = accountNow()
	}
}

// between is called when such a step is done.
func (w *watcher) between() {
	if w == nil {
		return
	}
	w.end = accountNow()
	if w.instructions != nil {
		w.runs = append(w.runs, w.instructions.Together())
	}
}

// tell is what was lost between start and the last step, by so many threads on so many processors,
// of whose time the process had the share busy: what threads waited for while others of the process
// used all of it, as Go's do that search for work, is not lost.
func (w *watcher) tell(threads, processors int, busy, peak float64) *cores {
	c := &cores{}
	wall := max(w.end.at.Sub(w.begin.at), 1).Seconds()
	c.Stolen = (w.end.stolen - w.begin.stolen).Seconds() / (wall * float64(processors))
	c.Waited = min((w.end.waited-w.begin.waited).Seconds()/(wall*float64(threads)), max(0, 1-busy))
	c.Switches = float64(w.end.switches-w.begin.switches) / wall
	if len(w.runs) > 0 && peak > 0 {
		runs := slices.Sorted(slices.Values(w.runs))
		c.Instructions = runs[len(runs)/2] / peak
	}
	return c
}
