package training

import (
	"fmt"
	"io"
	"os"
	"sync"

	"monotron/fault"
	"monotron/megatron/report"
)

// Streams are where a run writes: Megatron's lines to Out, notes for people to Notes.
type Streams struct{ Out, Notes io.Writer }

// console is what the ranks of a process write to, a line at a time.
type console struct {
	Streams
	mu  sync.Mutex
	bar *report.Progress
}

// newConsole draws a progress bar of `iters` iterations where Notes is a terminal.
func newConsole(w Streams, iters int64) *console {
	c := &console{Streams: w, bar: &report.Progress{}}
	if stderr, ok := w.Notes.(*os.File); ok {
		c.bar = report.NewProgress(stderr, iters, "training")
	}
	return c
}

// line prints to Out, out of the bar's way.
func (c *console) line(text string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var err error
	c.bar.Above(func() { _, err = fmt.Fprintln(c.Out, text) })
	return fault.With(fault.IO, err)
}

// note tells a person something.
func (c *console) note(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bar.Above(func() { fmt.Fprintf(c.Notes, format+"\n", args...) })
}

func (c *console) advance(iterations int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bar.Add(iterations)
}

func (c *console) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bar.Close()
}
