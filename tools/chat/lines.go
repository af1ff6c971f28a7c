package chat

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"

	"golang.org/x/term"

	"monotron/internal/exitcode"
)

// mostLine is the longest line that is read, in bytes.
const mostLine = 1 << 20

// lines are where questions come from: a person at a terminal, or a file.
type lines struct {
	file *bufio.Scanner

	terminal *term.Terminal // nil: a file

	mu     sync.Mutex
	cooked *term.State // of the terminal before a line is read; nil: none is
}

// openLines reads from r, as a terminal where that and standard output are one.
func openLines(r io.Reader) *lines {
	if r == io.Reader(os.Stdin) && term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stdout.Fd())) {
		return &lines{terminal: term.NewTerminal(struct {
			io.Reader
			io.Writer
		}{keys{os.Stdin}, os.Stdout}, "> ")}
	}
	file := bufio.NewScanner(r)
	file.Buffer(nil, mostLine)
	return &lines{file: file}
}

// keys makes Ctrl-C clear the line that is edited, where a Terminal would end.
type keys struct{ io.Reader }

func (k keys) Read(p []byte) (int, error) {
	const ctrlC, ctrlU = 3, 21
	n, err := k.Reader.Read(p)
	for i, b := range p[:n] {
		if b == ctrlC {
			p[i] = ctrlU
		}
	}
	return n, err
}

func (l *lines) interactive() bool { return l.terminal != nil }

// next is the next line, io.EOF behind the last.
func (l *lines) next() (string, error) {
	if l.terminal != nil {
		return l.typed()
	}
	if l.file.Scan() {
		return strings.TrimSuffix(l.file.Text(), "\r"), nil
	}
	if err := l.file.Err(); errors.Is(err, bufio.ErrTooLong) {
		return "", exitcode.Errorf(exitcode.BadData, "standard input: a line has more than %d bytes; enter shorter lines", mostLine)
	} else if err != nil {
		return "", exitcode.Errorf(exitcode.IO, "standard input: %w", err)
	}
	return "", io.EOF
}

// typed is a line that a person edits. The lines of a text that is pasted are one.
func (l *lines) typed() (line string, err error) {
	fd := int(os.Stdin.Fd())
	cooked, err := term.MakeRaw(fd)
	if err != nil {
		return "", exitcode.Errorf(exitcode.IO, "the terminal: %w", err)
	}
	l.mu.Lock()
	l.cooked = cooked
	l.mu.Unlock()
	defer l.close()
	if width, height, err := term.GetSize(int(os.Stdout.Fd())); err == nil && width > 0 {
		_ = l.terminal.SetSize(width, height) // only how a line is shown
	}
	l.terminal.SetBracketedPasteMode(true)
	for {
		part, err := l.terminal.ReadLine()
		line += part
		switch {
		case errors.Is(err, term.ErrPasteIndicator):
			line += "\n"
		case err != nil && !errors.Is(err, io.EOF):
			return "", exitcode.Errorf(exitcode.IO, "the terminal: %w", err)
		default:
			return line, err
		}
		if len(line) > mostLine {
			return "", exitcode.Errorf(exitcode.BadData, "the text has more than %d bytes; enter a shorter text", mostLine)
		}
	}
}

// close gives the terminal back as it was.
func (l *lines) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cooked != nil {
		l.terminal.SetBracketedPasteMode(false)
		_ = term.Restore(int(os.Stdin.Fd()), l.cooked) // nothing can be done about it
		l.cooked = nil
	}
}

// begin makes Ctrl-C stop answers alone from now on, where a person types.
func (l *lines) begin() {
	if l.terminal != nil {
		signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	}
}

// interruptible is a context that ends with Ctrl-C at a terminal.
func (l *lines) interruptible(ctx context.Context) (_ context.Context, done func()) {
	if l.terminal == nil {
		return ctx, func() {}
	}
	return signal.NotifyContext(ctx, os.Interrupt)
}
