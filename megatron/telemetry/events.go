package telemetry

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"monotron/internal/exitcode"
)

// EventOptions say what of a step is written to event files, in addition to what always is.
type EventOptions struct {
	Queue  int  // entries between flushes
	Every  int  // steps between entries; 0: none of training
	Timers bool // with each log line
	CurveOptions
}

// Events writes a TensorBoard event file. Not for several goroutines.
type Events struct {
	file    *os.File
	out     *bufio.Writer
	options EventOptions
	waiting int
	err     error // the first; later writes are dropped
}

var eventFiles atomic.Int64 // numbers the files of one process

// NewEvents makes a new event file in folder, which is made if need be. Entries
// reach the disk after o.Queue of them, and with Flush.
func NewEvents(folder string, o EventOptions) (*Events, error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, exitcode.Errorf(exitcode.IO, "--tensorboard-dir: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "host"
	}
	now := time.Now()
	name := fmt.Sprintf("events.out.tfevents.%010d.%s.%d.%d", now.Unix(), host, os.Getpid(), eventFiles.Add(1)-1)
	file, err := os.OpenFile(filepath.Join(folder, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, exitcode.Errorf(exitcode.IO, "--tensorboard-dir: %w", err)
	}
	e := &Events{file: file, out: bufio.NewWriter(file), options: o}
	e.write(now, 0, versionPayload())
	return e, e.Flush()
}

func (e *Events) write(at time.Time, step int64, payload []byte) {
	if e.err != nil {
		return
	}
	_, e.err = e.out.Write(record(event(float64(at.UnixNano())/1e9, step, payload)))
	if e.waiting++; e.waiting >= e.options.Queue {
		e.Flush()
	}
}

// Scalar adds a point to the curve tag. step is the iteration, or the consumed
// samples for tags that end in " vs samples".
func (e *Events) Scalar(tag string, value float64, step int64) {
	e.write(time.Now(), step, scalarPayload(tag, float32(value)))
}

// Text adds a text, shown as Markdown.
func (e *Events) Text(tag, text string, step int64) {
	e.write(time.Now(), step, textPayload(tag, text))
}

// Flush brings all entries to the file. Its error, like Close's, is the first
// of all writes.
func (e *Events) Flush() error {
	e.waiting = 0
	if err := e.out.Flush(); e.err == nil {
		e.err = err
	}
	if e.err != nil {
		return e.fail()
	}
	return nil
}

// Close flushes and closes the file.
func (e *Events) Close() error {
	err := e.Flush()
	if cerr := e.file.Close(); err == nil && cerr != nil {
		err = exitcode.Errorf(exitcode.IO, "TensorBoard events: %w", cerr)
	}
	return err
}

// Take adds the scalars of a step, and the texts of an evaluation.
func (e *Events) Take(s *Step) error {
	if s.Split != "" || e.options.Every > 0 && s.Iteration%e.options.Every == 0 {
		for _, c := range Curves(s, e.options.CurveOptions) {
			e.Scalar(c.Tag, c.Value, int64(s.Iteration))
			if c.Samples {
				e.Scalar(c.Tag+" vs samples", c.Value, s.ConsumedSamples)
			}
		}
	}
	for i, w := range s.Written {
		e.Text(fmt.Sprintf("sample %d", i+1), indented(w.Text), int64(s.Iteration))
	}
	if s.Line != nil && e.options.Timers {
		e.timers(s)
	}
	if e.err != nil {
		return e.fail()
	}
	return nil
}

// indented is text as a block of Markdown, which shows it as it is.
func indented(text string) string {
	return "    " + strings.ReplaceAll(text, "\n", "\n    ")
}

// Describe adds what the run is: a text, and its flags for the table of hyperparameters.
func (e *Events) Describe(a *About) {
	var b strings.Builder
	for _, f := range a.Facts {
		fmt.Fprintf(&b, "    %s: %s\n", f.Label, strings.ReplaceAll(f.Text, "\n", " "))
	}
	fmt.Fprintf(&b, "    command: %s\n", strings.ReplaceAll(strings.Join(a.Command, " "), "\n", " "))
	e.Text("run", b.String(), 0)
	e.write(a.Started, 0, hparamsPayload(a))
}

// fail is the first error of all: what follows it in the file could not be read.
func (e *Events) fail() error {
	return exitcode.Errorf(exitcode.IO, "--tensorboard-dir: %s: %w; no further entries are written", e.file.Name(), e.err)
}

// timers adds what the slowest rank took an iteration, by name.
func (e *Events) timers(s *Step) {
	t := &s.Line.Timers
	for i, name := range t.Names {
		if longest := t.slowest(i); longest > 0 {
			e.Scalar(name+"-time", longest/float64(s.Line.Iterations), int64(s.Iteration))
		}
	}
}
