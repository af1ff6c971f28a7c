package logging

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/rs/zerolog"
)

// Notes prints what somebody has to say. Values that From, Rank and At make print to the
// same sink. Safe for several goroutines; a nil Notes is silent.
type Notes struct {
	sink      *sink
	component string
	rank      int // -1: not of one rank
	step      int64
}

// sink is where notes go, each complete.
type sink struct {
	mu     sync.Mutex
	to     io.Writer
	level  zerolog.Level
	format string
	log    zerolog.Logger
	around func(print func()) // keeps a progress bar out of the way; nil: there is none
}

var stderr = sync.OnceValue(func() *Notes { return New(os.Stderr) })

// Stderr are the notes of this process.
func Stderr() *Notes { return stderr() }

// New prints to w as text, from level info on.
func New(w io.Writer) *Notes {
	p := &sink{to: w, level: zerolog.InfoLevel, format: Text}
	p.log = zerolog.New(writer(w, p.format))
	return &Notes{sink: p, rank: -1}
}

// Choose sets the format and the lowest level printed, for everything that prints to
// the same sink; "" leaves one as it is.
func (n *Notes) Choose(format, level string) error {
	p := n.sink
	p.mu.Lock()
	defer p.mu.Unlock()
	if format != "" && format != Text && format != JSON {
		return fmt.Errorf("--log-format must be %s or %s, not %s", Text, JSON, format)
	}
	if level != "" {
		l, known := levels[level]
		if !known {
			return fmt.Errorf("--log-level must be one of %s, not %s", strings.Join(Levels(), ", "), level)
		}
		p.level = l
	}
	if format != "" {
		p.format, p.log = format, zerolog.New(writer(p.to, format))
	}
	return nil
}

// Around has every note printed inside f: a progress bar steps out of the way there.
// nil: as it is.
func (n *Notes) Around(f func(print func())) {
	if n == nil {
		return
	}
	n.sink.mu.Lock()
	defer n.sink.mu.Unlock()
	n.sink.around = f
}

// From are the notes of a component, as in "checkpoint".
func (n *Notes) From(component string) *Notes {
	return n.with(func(m *Notes) { m.component = component })
}

// Rank are the notes of a rank.
func (n *Notes) Rank(rank int) *Notes { return n.with(func(m *Notes) { m.rank = rank }) }

// At are notes about a training step; 0: about none.
func (n *Notes) At(step int64) *Notes { return n.with(func(m *Notes) { m.step = step }) }

func (n *Notes) with(set func(*Notes)) *Notes {
	if n == nil {
		return nil
	}
	m := *n
	set(&m)
	return &m
}

// Debug is for finding a cause.
func (n *Notes) Debug(format string, args ...any) {
	n.say(zerolog.DebugLevel, fmt.Sprintf(format, args...))
}

// Info is what a person may want to know.
func (n *Notes) Info(format string, args ...any) {
	n.say(zerolog.InfoLevel, fmt.Sprintf(format, args...))
}

// Warn is what a person should check.
func (n *Notes) Warn(format string, args ...any) {
	n.say(zerolog.WarnLevel, fmt.Sprintf(format, args...))
}

// Error is what has failed without ending the run.
func (n *Notes) Error(format string, args ...any) {
	n.say(zerolog.ErrorLevel, fmt.Sprintf(format, args...))
}

func (n *Notes) say(level zerolog.Level, text string) {
	if n == nil {
		return
	}
	p := n.sink
	p.mu.Lock()
	defer p.mu.Unlock()
	if level < p.level {
		return
	}
	p.print(func() { n.fields(p.log.WithLevel(level)).Msg(text) })
}

// print keeps the bar out of the way; the caller has the sink's lock.
func (p *sink) print(f func()) {
	if p.around == nil {
		f()
		return
	}
	p.around(f)
}

// fields adds who speaks, and when.
func (n *Notes) fields(e *zerolog.Event) *zerolog.Event {
	e = e.Str("time", now())
	if n.component != "" {
		e = e.Str("component", n.component)
	}
	if n.rank >= 0 {
		e = e.Int("rank", n.rank)
	}
	if n.step > 0 {
		e = e.Int64("step", n.step)
	}
	return e
}

// Lines makes a note of every line that is written, for what knows writers alone. Not
// for several goroutines.
func (n *Notes) Lines() io.Writer { return &lines{notes: n} }

type lines struct {
	notes *Notes
	part  []byte
}

func (l *lines) Write(b []byte) (int, error) {
	l.part = append(l.part, b...)
	for {
		line, rest, complete := bytes.Cut(l.part, []byte("\n"))
		if !complete {
			return len(b), nil
		}
		l.notes.Info("%s", line)
		l.part = rest
	}
}
