package dashboard

import (
	"cmp"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"monotron/internal/exitcode"
)

// Lanes are what each rank did when, of one step of a trace next to the log.
type Lanes struct {
	File  string `json:"file"`
	Step  string `json:"step"` // as the trace names it
	Ranks []Lane `json:"ranks"`
}

// Lane is one rank's.
type Lane struct {
	Rank  int   `json:"rank"`
	Boxes []Box `json:"boxes"`
}

// Box is a phase, in milliseconds since the step's begin.
type Box struct {
	Name  string  `json:"name"`
	Start float64 `json:"start"`
	Takes float64 `json:"takes"`
}

// Limits of reading and drawing a trace.
const (
	longestTrace = 64 << 20
	mostLanes    = 64
	mostBoxes    = 20000
)

// traced is the trace that was last read.
type traced struct {
	path  string
	at    time.Time
	lanes *Lanes
}

// findTrace reads the newest trace in the run's folder where it is a new one.
func (r *Run) findTrace() {
	path, at := newestTrace(r.Folder)
	if path == r.traced.path && at.Equal(r.traced.at) {
		return
	}
	r.traced = traced{path: path, at: at}
	if path != "" {
		r.traced.lanes = readLanes(path)
	}
}

// newestTrace is the newest file whose name and begin are a Chrome trace's.
func newestTrace(folder string) (newest string, at time.Time) {
	entries, _ := os.ReadDir(folder) // a folder that cannot be listed has nothing to show
	for _, e := range entries {
		path := filepath.Join(folder, e.Name())
		if filepath.Ext(path) != ".json" {
			continue
		}
		st, err := os.Stat(path)
		if err != nil || !st.Mode().IsRegular() || st.Size() > longestTrace || !st.ModTime().After(at) {
			continue
		}
		if isTrace(path) {
			newest, at = path, st.ModTime()
		}
	}
	return newest, at
}

func isTrace(path string) bool {
	file, err := exitcode.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	head := make([]byte, 256)
	n, _ := file.Read(head) // nothing read: no trace
	return strings.Contains(string(head[:n]), `"traceEvents"`)
}

// event is one of a Chrome trace: phase X is a box, i a mark; times are microseconds.
type event struct {
	Phase string  `json:"ph"`
	Name  string  `json:"name"`
	Rank  int     `json:"tid"`
	At    float64 `json:"ts"`
	Takes float64 `json:"dur"`
}

// firstStart is when the first box begins.
func firstStart(events []event) float64 {
	first := math.Inf(1)
	for _, e := range events {
		if e.Phase == "X" && drawable(e.At) {
			first = min(first, e.At)
		}
	}
	return first
}

// readLanes takes the last complete step of a trace: what is between two marks of steps, or
// all before the only one. nil: it has none, or cannot be read.
func readLanes(path string) *Lanes {
	// The trace comes from disk: its size is bounded, and what cannot be read has no lanes.
	text, err := exitcode.ReadFile(path, longestTrace)
	var trace struct {
		Events []event `json:"traceEvents"`
	}
	if err != nil || json.Unmarshal(text, &trace) != nil {
		return nil
	}
	// Marks of finished steps, in time. The last step lies between the last two.
	var marks []event
	for _, e := range trace.Events {
		if e.Phase == "i" && strings.HasPrefix(e.Name, "iteration ") {
			marks = append(marks, e)
		}
	}
	if len(marks) == 0 {
		return nil
	}
	slices.SortStableFunc(marks, func(a, b event) int { return cmp.Compare(a.At, b.At) })
	from, step := firstStart(trace.Events), marks[len(marks)-1]
	if len(marks) > 1 {
		from = marks[len(marks)-2].At
	}
	lanes := &Lanes{File: filepath.Base(path), Step: step.Name}
	// Boxes of each rank within it, the longest first, as many as a page can draw.
	boxes := map[int][]Box{}
	for _, e := range trace.Events {
		if e.Phase == "X" && e.At >= from && e.At <= step.At && drawable(e.At-from) && drawable(e.Takes) && e.Rank >= 0 && e.Rank < mostLanes {
			boxes[e.Rank] = append(boxes[e.Rank], Box{e.Name, (e.At - from) / 1000, e.Takes / 1000})
		}
	}
	all := 0
	for rank, list := range boxes {
		slices.SortStableFunc(list, func(a, b Box) int { return cmp.Compare(b.Takes, a.Takes) })
		list = list[:min(len(list), mostBoxes/max(1, len(boxes)))]
		all += len(list)
		lanes.Ranks = append(lanes.Ranks, Lane{rank, list})
	}
	if all == 0 {
		return nil
	}
	slices.SortFunc(lanes.Ranks, func(a, b Lane) int { return cmp.Compare(a.Rank, b.Rank) })
	return lanes
}
