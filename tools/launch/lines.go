package launch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"

	"monotron/internal/exitcode"
	"monotron/internal/logging"
	"monotron/mpu/comm/failure"
)

// console is where the ranks' lines come together, each complete.
type console struct {
	mu         sync.Mutex
	out, notes io.Writer
	prefix     string
	lost       error         // what the first line was lost to that could not be written to out
	full       chan struct{} // closed then
}

func newConsole(out, errs io.Writer, prefix string) *console {
	return &console{out: out, notes: errs, prefix: prefix, full: make(chan struct{})}
}

// pass writes a line of a rank. Where nobody reads the output any more, a signal says so;
// notes that cannot be written cannot be reported.
func (c *console) pass(to io.Writer, line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := io.WriteString(to, line)
	if err != nil && to == c.out && c.lost == nil && !errors.Is(err, syscall.EPIPE) {
		c.lost = err
		close(c.full)
	}
}

// err is that of a log that could not be written.
func (c *console) err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost == nil {
		return nil
	}
	return exitcode.Errorf(exitcode.IO, "the output of the ranks cannot be written: %w; the ranks were asked to save and exit", c.lost)
}

// note prints a line of our own.
func (c *console) note(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintln(c.notes, text)
}

// of is what a rank writes to.
func (c *console) of(rank int, stderr bool) *lines {
	l := &lines{console: c, to: c.out, holds: stderr}
	if stderr {
		l.to = c.notes
	}
	if c.prefix == "both" || (stderr && c.prefix == "stderr") {
		l.prefix = fmt.Sprintf("[%d] ", rank)
	}
	return l
}

// lines passes on a rank's output line by line. From the line in which a program of ours
// says why it ends, it keeps everything: what one rank has said is printed at the very end.
type lines struct {
	console *console
	to      io.Writer
	prefix  string
	holds   bool
	part    []byte
	said    *failure.Verdict
}

// longest is how much of a line is kept together.
const longest = 1 << 20

func (l *lines) Write(b []byte) (int, error) {
	l.part = append(l.part, b...)
	for {
		at := bytes.IndexByte(l.part, '\n')
		if at < 0 && len(l.part) < longest {
			return len(b), nil
		}
		if at < 0 {
			at = len(l.part) - 1
		}
		l.line(string(l.part[:at+1]))
		l.part = append([]byte{}, l.part[at+1:]...)
	}
}

func (l *lines) line(text string) {
	if l.holds && l.said == nil {
		l.said = failure.Heard(text)
	}
	if l.said == nil {
		prefix := l.prefix
		if logging.IsRecord(text) { // for machines: it names its rank itself
			prefix = ""
		}
		l.console.pass(l.to, prefix+strings.TrimSuffix(text, "\n")+"\n")
	}
}

// close passes on what has no end of line, and gives why the program has ended; nil: it
// has not said.
func (l *lines) close() *failure.Verdict {
	if len(l.part) > 0 {
		l.line(string(l.part))
	}
	return l.said
}
