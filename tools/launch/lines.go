package launch

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
)

// console is where the ranks' lines come together, each whole.
type console struct {
	mu         sync.Mutex
	out, notes io.Writer
	prefix     string
}

func newConsole(out, notes io.Writer, prefix string) *console {
	return &console{out: out, notes: notes, prefix: prefix}
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

// lines passes on a rank's output line by line. From a line that begins with
// "monotron: ", which ends every program of ours that fails, it holds it back: that
// of one rank is printed at the very end.
type lines struct {
	console *console
	to      io.Writer
	prefix  string
	holds   bool
	part    []byte
	held    []string
}

// longest is how much of a line is kept together.
const longest = 1 << 20

// theirs begins the message of a rank that fails.
const theirs = "monotron: "

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
	if l.holds && (len(l.held) > 0 || strings.HasPrefix(text, theirs)) {
		l.held = append(l.held, text)
		return
	}
	l.console.mu.Lock()
	defer l.console.mu.Unlock()
	_, _ = io.WriteString(l.to, l.prefix+strings.TrimSuffix(text, "\n")+"\n") // nobody to tell
}

// close passes on what has no end of line, and gives what was held back.
func (l *lines) close() string {
	if len(l.part) > 0 {
		l.line(string(l.part))
	}
	return strings.TrimPrefix(strings.TrimRight(strings.Join(l.held, ""), "\n"), theirs)
}
