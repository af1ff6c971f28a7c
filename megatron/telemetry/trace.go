package telemetry

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"monotron/internal/atomicfile"
	"monotron/internal/exitcode"
)

// Trace writes a Chrome trace (chrome://tracing, Perfetto): one row a rank, one
// box a phase and in it one an op, a mark where a step ends. Safe for several goroutines; all methods accept a nil Trace, which
// does nothing.
type Trace struct {
	mu     sync.Mutex
	path   string
	file   *atomicfile.File
	out    *bufio.Writer
	begin  time.Time
	comma  bool
	err    error
	active atomic.Bool
}

// NewTrace writes to a temporary file next to path; Close gives it its name.
func NewTrace(path string, ranks int) (*Trace, error) {
	file, err := atomicfile.Create(path, 0o666)
	if err != nil {
		return nil, fmt.Errorf("--profile: %w", err)
	}
	t := &Trace{path: path, file: file, out: bufio.NewWriter(file), begin: time.Now()}
	t.print(`{"displayTimeUnit":"ms","traceEvents":[`)
	for rank := range ranks {
		t.add(fmt.Sprintf(`{"ph":"M","name":"thread_name","pid":0,"tid":%d,"args":{"name":"rank %d"}}`, rank, rank))
	}
	return t, nil
}

// Record turns recording on and off.
func (t *Trace) Record(on bool) {
	if t != nil {
		t.active.Store(on)
	}
}

// On reports whether spans are recorded now.
func (t *Trace) On() bool { return t != nil && t.active.Load() }

// Span records a phase of a rank.
func (t *Trace) Span(name string, rank int, from, to time.Time) {
	t.box(name, "phase", "", rank, from, to)
}

// Op records an op of a rank's device, with the sizes of its computation.
func (t *Trace) Op(name, shape string, rank int, from time.Time, took time.Duration) {
	t.box(name, "op", fmt.Sprintf(`,"args":{"shape":%s}`, quoted(shape)), rank, from, from.Add(took))
}

func (t *Trace) box(name, category, more string, rank int, from, to time.Time) {
	if !t.On() {
		return
	}
	micros := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
	t.add(fmt.Sprintf(`{"ph":"X","name":%s,"cat":"%s","pid":0,"tid":%d,"ts":%.3f,"dur":%.3f%s}`, quoted(name), category, rank, micros(from.Sub(t.begin)), micros(to.Sub(from)), more))
}

// Marks is the trace as a sink of rank's steps. Its Close leaves the trace open, which
// other ranks write to.
func (t *Trace) Marks(rank int) Sink { return marks{t, rank} }

type marks struct {
	trace *Trace
	rank  int
}

func (m marks) Take(s *Step) error {
	what := "iteration " + strconv.Itoa(s.Iteration)
	if s.Split != "" {
		what = s.Split + " at " + what
	}
	for _, loss := range s.Losses {
		what += fmt.Sprintf(", %s %s", loss.Name, fixed(loss.Value, 4))
	}
	m.trace.Mark(what, m.rank, s.Time)
	for _, a := range s.Alerts {
		m.trace.Mark(a.Text, m.rank, s.Time)
	}
	return nil
}

func (m marks) Close() error { return nil }

// Mark records a moment, such as the end of an iteration.
func (t *Trace) Mark(name string, rank int, at time.Time) {
	if !t.On() {
		return
	}
	t.add(fmt.Sprintf(`{"ph":"i","s":"t","name":%s,"pid":0,"tid":%d,"ts":%.3f}`, quoted(name), rank, float64(at.Sub(t.begin).Nanoseconds())/1e3))
}

func quoted(text string) string {
	b, err := json.Marshal(text)
	if err != nil { // strings always marshal
		panic(err)
	}
	return string(b)
}

func (t *Trace) add(object string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.comma {
		t.print(",\n")
	}
	t.comma = true
	t.print(object)
}

func (t *Trace) print(text string) {
	if _, err := t.out.WriteString(text); t.err == nil {
		t.err = err
	}
}

// Publish puts what was recorded until now under the trace's path, so that it can be read
// while the run continues.
func (t *Trace) Publish() error {
	if t == nil || t.file == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.out.Flush(); err != nil {
		return exitcode.Errorf(exitcode.IO, "--profile: %w", err)
	}
	return atomicfile.Write(t.path, 0o666, func(f *os.File) error {
		_, err := io.Copy(f, io.NewSectionReader(t.file, 0, math.MaxInt64))
		_, ended := f.WriteString(end)
		return errors.Join(err, ended)
	})
}

// end of a trace's text.
const end = "\n]}\n"

// Close ends the file and renames it to its path. A second Close does nothing.
func (t *Trace) Close() error {
	if t == nil || t.file == nil {
		return nil
	}
	t.Record(false)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.print(end)
	if err := t.out.Flush(); t.err == nil {
		t.err = err
	}
	file := t.file
	t.file = nil
	defer file.Abort()
	if t.err == nil {
		t.err = file.Commit()
	}
	if t.err != nil {
		return exitcode.Errorf(exitcode.IO, "--profile: %w", t.err)
	}
	return nil
}
