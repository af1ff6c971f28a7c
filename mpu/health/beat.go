package health

import (
	"bytes"
	"compress/flate"
	"io"
	"runtime"
	"strings"
	"time"

	"monotron/mpu/comm/failure"
)

// Beat is what a rank says of itself once a second.
type Beat struct {
	Phase   Phase
	Step    int64
	Since   int64 // milliseconds in the phase
	Calls   int64 // made so far
	Ended   int64 // of them over
	Marks   int64 // passed by its device, where that works behind the host's back
	Outside int64 // signs of life from outside the run that it waits for
	Stalled bool  // by its device, which has done nothing since the last beat
	Busy    bool  // it has computed or moved bytes of files since the last beat
	Waiting *Call
	Waited  int64 // milliseconds in it
	Groups  []Count
	Own     [Phases]float64 // seconds in each phase until this step, of its device, less waiting for others
	Steps   int64           // begun
	Longest [Phases]float64 // seconds that the rank has been in each phase at once, of those that are over
}

// Count is how far a rank is in one of its groups.
type Count struct {
	Entered  int64            // collectives
	Sent     map[int32]uint32 // messages by rank of the world
	Received map[int32]uint32
}

// Hello is what a rank says first, and again when it has more groups.
type Hello struct {
	PID    int     `json:"pid"`
	Host   string  `json:"host"`
	Groups []Named `json:"groups"`
}

// Named is a group: its name and its ranks of the world, as ranges writes them.
type Named struct {
	Name  string `json:"n"`
	Ranks string `json:"r"`
}

// Key names a group among all of a run, as calls do.
func (n Named) Key() string { return n.Name + " " + n.Ranks }

// Report is what a rank says when it is asked, and when it fails. When a run fails, rank 0 hears one of each rank.
type Report struct {
	Stack packed `json:"-"` // of the rank's goroutine
	Calls []Call `json:"-"` // the last ones, oldest first

	Failure *failure.Verdict `json:"failure,omitempty"` // why it fails; nil: it was asked
}

// Beat is the rank's next beat.
func (r *Recorder) Beat() *Beat {
	r.mu.Lock()
	defer r.mu.Unlock()
	h, now := r.page.head, time.Now()
	d := r.hold()
	b := &Beat{Phase: Phase(h.Phase), Step: h.Step, Since: now.Sub(r.began).Milliseconds(), Calls: h.Written, Ended: h.Ended, Marks: d.progress.Passed, Outside: r.outside,
		Own: r.account.full, Steps: r.account.steps, Longest: r.longest, Stalled: d.since(r.before)}
	r.before = d
	switch {
	case h.Waiting > 0:
		b.waits(r.page, h.Waiting, now.Sub(r.slept))
	case d.oldest != nil:
		b.waits(r.page, d.oldest.number, now.Sub(d.oldest.since))
	}
	for _, g := range r.groups {
		b.Groups = append(b.Groups, r.count(g, &d))
	}
	b.Busy = own.busy(r, b.Stalled)
	return b
}

// waits says in which call, unless the page has lost it.
func (b *Beat) waits(p *page, number int64, so time.Duration) {
	if s := p.slot(number); s.Number == number {
		c := p.call(s)
		b.Waiting, b.Waited = &c, so.Milliseconds()
	}
}

func copied(m map[int32]uint32) map[int32]uint32 {
	out := make(map[int32]uint32, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}

// hello names the rank and its groups.
func (r *Recorder) hello(host string) *Hello {
	r.mu.Lock()
	defer r.mu.Unlock()
	hello := &Hello{PID: int(r.page.head.PID), Host: host}
	for _, g := range r.groups {
		hello.Groups = append(hello.Groups, g.named)
	}
	return hello
}

// Calls and bytes of stack in a report.
const (
	sentCalls = 64
	sentStack = 16 << 10
)

// report is the rank's stack and last calls.
func (r *Recorder) report(why error) *Report {
	calls := r.Calls()
	p := &Report{Stack: pack(r.stack()), Calls: calls[max(0, len(calls)-sentCalls):]}
	if why != nil {
		p.Failure = failure.Of(r.Rank(), why).Brief()
	}
	return p
}

// packed is a deflated text: of the stacks of all ranks, rank 0 shows only that of the rank to blame.
type packed []byte

func pack(text string) packed {
	if text == "" {
		return nil
	}
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.BestSpeed)
	if err != nil { // of another level alone
		return nil
	}
	_, _ = io.WriteString(w, text) // a buffer takes all
	_ = w.Close()
	return b.Bytes()
}

// text is what was packed, of at most sentStack bytes: up to where it is damaged.
func (p packed) text() string {
	text, _ := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(p)), sentStack)) // it may come from outside
	return string(text)
}

// stack is that of the rank's own goroutine.
func (r *Recorder) stack() string {
	r.mu.Lock()
	thread := r.thread
	r.mu.Unlock()
	if thread == "" {
		return ""
	}
	all := make([]byte, 1<<20)
	all = all[:runtime.Stack(all, true)]
	for _, one := range bytes.Split(all, []byte("\n\n")) {
		if strings.HasPrefix(string(one), thread) {
			return cut(string(one), sentStack)
		}
	}
	return ""
}
