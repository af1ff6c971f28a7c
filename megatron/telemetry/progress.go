package telemetry

import (
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// Progress is a bar for long work, drawn only for a person: when the
// file is a terminal. Otherwise it draws nothing. Safe for several goroutines.
type Progress struct {
	mu  sync.Mutex
	bar *progressbar.ProgressBar
	out io.Writer
}

// NewProgress draws on stderr. total < 0 means the length is not known.
func NewProgress(stderr *os.File, total int64, what string) *Progress {
	if !term.IsTerminal(int(stderr.Fd())) {
		return &Progress{out: stderr}
	}
	return newProgress(stderr, total, what)
}

func newProgress(out io.Writer, total int64, what string) *Progress {
	return &Progress{out: out, bar: progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(out), progressbar.OptionSetDescription(what), progressbar.OptionShowCount(), progressbar.OptionShowIts(),
		progressbar.OptionSetPredictTime(true), progressbar.OptionFullWidth(), progressbar.OptionClearOnFinish(),
		progressbar.OptionThrottle(100*1e6), progressbar.OptionUseANSICodes(true))}
}

// Add moves the bar by n. What the terminal says about it does not matter.
func (p *Progress) Add(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		_ = p.bar.Add64(n)
	}
}

// Above runs print with the bar out of the way, so that lines mix neither with it nor
// with each other.
func (p *Progress) Above(print func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar == nil || p.bar.IsFinished() {
		print()
		return
	}
	fmt.Fprint(p.out, "\r\x1b[2K")
	print()
	_ = p.bar.RenderBlank()
}

// Close takes the bar away.
func (p *Progress) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		_ = p.bar.Finish()
	}
}
