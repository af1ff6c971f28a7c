package verify

import (
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"golang.org/x/term"

	"monotron/internal/logging"
	"monotron/tools/verify/layouts"
)

// progress prints how far a proof is: on a terminal in one line that is written over, else
// by a note at the first result and then each time that `every` has passed. What differs
// is a note at once.
type progress struct {
	notes  *logging.Notes
	screen io.Writer // a terminal; nil: none
	every  time.Duration
	now    func() time.Time

	began, said time.Time
	failed      int
	worst       float64 // share of the bounds that a layout that holds has used up
	worstName   string
}

// glance is how often the line on a terminal is written over.
const glance = 100 * time.Millisecond

func newProgress() *progress {
	p := &progress{notes: logging.Stderr().From("verify"), every: 10 * time.Second, now: time.Now, began: time.Now()}
	if term.IsTerminal(int(os.Stderr.Fd())) {
		p.screen, p.every = os.Stderr, glance
	}
	return p
}

// report hears what has ended and what begins.
func (p *progress) report(now layouts.Progress) {
	if now.Last.Model != "" {
		p.result(&now)
	}
	if now.Unseen != "" {
		p.failed++
		p.warn("not detected: %s", now.Unseen)
	}
	first := now.Done == 1 && p.screen == nil
	if !first && p.now().Sub(p.said) < p.every && now.Next != "" {
		return
	}
	p.said = p.now()
	p.say(&now)
}

// result takes a layout that has ended.
func (p *progress) result(now *layouts.Progress) {
	name := now.Last.Model + ": " + now.Last.Layout
	if !now.Last.OK {
		p.failed++
		p.warn("%s: %s", name, now.Last.Problem)
		return
	}
	if now.Share > p.worst || p.worstName == "" {
		p.worst, p.worstName = now.Share, name
	}
}

// warn says at once what has failed, instead of the line.
func (p *progress) warn(format string, args ...any) {
	p.clear()
	p.notes.Warn(format, args...)
}

func (p *progress) clear() {
	if p.screen != nil {
		fmt.Fprint(p.screen, "\r\x1b[2K")
	}
}

// say prints the state of the proof.
func (p *progress) say(now *layouts.Progress) {
	switch text := p.text(now); {
	case p.screen == nil && now.Next != "":
		p.notes.Info("%s", text)
	case p.screen != nil:
		p.clear()
		if now.Next != "" {
			fmt.Fprintf(p.screen, "%.120s", text)
		}
	}
}

// text is how much is done and how long the rest will take, what is worst so far, and
// what is trained now.
func (p *progress) text(now *layouts.Progress) string {
	if now.Done == 0 {
		return "training " + now.Next
	}
	text := fmt.Sprintf("%d of %d done", now.Done, now.All)
	if p.failed > 0 {
		text += fmt.Sprintf(", %d failed", p.failed)
	}
	if p.worstName != "" {
		text += fmt.Sprintf(", worst at %.0f%% of its bounds: %s", 100*p.worst, p.worstName)
	}
	left := time.Duration(float64(p.now().Sub(p.began)) / float64(now.Done) * float64(now.All-now.Done))
	return text + fmt.Sprintf("; about %s left; now %s", span(left), now.Next)
}

// span is a time to the digits that matter.
func span(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%.0f s", math.Ceil(d.Seconds()))
	}
	return fmt.Sprintf("%.0f min", math.Ceil(d.Minutes()))
}
