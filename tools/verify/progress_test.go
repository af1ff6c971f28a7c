package verify

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"monotron/internal/logging"
	"monotron/tools/verify/layouts"
)

// Claim: in a file the first result is printed at once, later ones no oftener than `every`,
// a layout that differs at once and once; each note says how many are done, which is worst
// and how long the rest will take.
func TestProgress(t *testing.T) {
	var out bytes.Buffer
	clock := time.Unix(1e9, 0)
	p := &progress{notes: logging.New(&out), every: 10 * time.Second, now: func() time.Time { return clock }, began: clock}
	row := func(layout string, ok bool) layouts.Row {
		return layouts.Row{Model: "gpt2", Layout: layout, OK: ok, Problem: "its loss differs"}
	}
	for _, step := range []struct {
		at   time.Duration
		now  layouts.Progress
		want string
	}{
		{0, layouts.Progress{All: 4, Next: "gpt2 on one rank"}, "training gpt2 on one rank\n"},
		{4, layouts.Progress{All: 4, Next: "gpt2: tp2"}, ""},
		{8, layouts.Progress{Done: 1, All: 4, Next: "gpt2: dp2", Last: row("tp2", true), Share: 0.25}, "1 of 4 done, worst at 25% of its bounds: gpt2: tp2; about 24 s left; now gpt2: dp2\n"},
		{12, layouts.Progress{Done: 2, All: 4, Next: "gpt2: pp2", Last: row("dp2", false)}, "gpt2: dp2: its loss differs\n"},
		{20, layouts.Progress{Done: 3, All: 4, Next: "gpt2: tp4", Last: row("pp2", true), Share: 0.5}, "3 of 4 done, 1 failed, worst at 50% of its bounds: gpt2: pp2; about 7 s left; now gpt2: tp4\n"},
		{24, layouts.Progress{Done: 4, All: 4, Unseen: "dropped"}, "not detected: dropped\n"},
	} {
		out.Reset()
		clock = time.Unix(1e9, 0).Add(step.at * time.Second)
		p.report(step.now)
		if out.String() != step.want {
			t.Errorf("%+v:\n%q, want\n%q", step.now, out.String(), step.want)
		}
	}
}

// Claim: on a terminal one line is written over, and what differs is above it.
func TestProgressOnATerminal(t *testing.T) {
	var screen bytes.Buffer
	p := &progress{notes: logging.New(&screen), screen: &screen, every: glance, now: time.Now, began: time.Now()}
	p.report(layouts.Progress{All: 2, Next: "gpt2: tp2"})
	p.report(layouts.Progress{Done: 1, All: 2, Next: "gpt2: dp2", Last: layouts.Row{Model: "gpt2", Layout: "tp2", Problem: "bad"}})
	p.report(layouts.Progress{Done: 2, All: 2})
	if text := screen.String(); !strings.HasPrefix(text, "\r\x1b[2Ktraining gpt2: tp2\r\x1b[2Kgpt2: tp2: bad\n") || !strings.HasSuffix(text, "\r\x1b[2K") {
		t.Errorf("%q", text)
	}
}
