package training

import (
	"fmt"
	"io"
	"os"

	"monotron/internal/exitcode"
	"monotron/internal/logging"
	"monotron/megatron/telemetry"
)

// Streams are where a run writes: Megatron's lines to Out, notes for people to Notes.
// A bar is drawn on Screen where that is a terminal; nil: none.
type Streams struct {
	Out    io.Writer
	Notes  *logging.Notes
	Screen *os.File
}

// console is what the ranks of a process write to, a line at a time.
type console struct {
	Streams
	bar *telemetry.Progress
}

// newConsole draws a progress bar of `iters` iterations.
func newConsole(w Streams, iters int64) *console {
	c := &console{Streams: w, bar: &telemetry.Progress{}}
	if w.Screen != nil {
		c.bar = telemetry.NewProgress(w.Screen, iters, "training")
	}
	c.Notes.Around(c.bar.Above)
	return c
}

// line prints to Out, out of the bar's way.
func (c *console) line(text string) error {
	var err error
	c.bar.Above(func() { _, err = fmt.Fprintln(c.Out, text) })
	return exitcode.With(exitcode.IO, err)
}

// note writes a note that is not of one rank.
func (c *console) note(format string, args ...any) { c.Notes.Info(format, args...) }

func (c *console) close() {
	c.Notes.Around(nil)
	c.bar.Close()
}
