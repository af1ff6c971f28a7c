package health

import (
	"strings"
	"testing"
	"time"

	"monotron/mpu/comm/failure"
)

// Claim (docs/failures.md): a rank that stays in a phase for longer than some times the longest stay
// of this run is named, also where it is busy; not before three steps, nor in phases that
// nobody has left yet, and never below twice the limit of stalls.
func TestLearntTimeouts(t *testing.T) {
	now := time.Now()
	w := newWatcher(3, Settings{Limit: 15 * time.Second, Factor: 5}, nil, nil)
	beat := func(rank int, p Phase, steps int64, since time.Duration, waits bool) {
		b := &Beat{Phase: p, Step: steps, Steps: steps, Since: since.Milliseconds(), Busy: !waits}
		b.Longest[Forward], b.Longest[Data], b.Longest[Save] = 2, 10, float64(rank)*9
		if waits {
			b.Waiting = &Call{}
		}
		w.ranks[rank] = view{hello: &Hello{}, groups: map[string]int{}, beat: b, heard: now, moved: now}
	}
	all := func(p Phase, steps int64, since time.Duration) *failure.Verdict {
		beat(0, p, steps, since, true)
		beat(1, p, steps, since, false)
		beat(2, p, steps, since, true)
		return w.outlasting(w.limits(), now)
	}
	for name, c := range map[string]struct {
		phase Phase
		steps int64
		since time.Duration
		blame int
	}{
		"as long as ever":           {Data, 9, 49 * time.Second, -1},
		"longer than five times":    {Data, 9, 51 * time.Second, 1},
		"below the least":           {Forward, 9, 29 * time.Second, -1},
		"above the least":           {Forward, 9, 31 * time.Second, 1},
		"of the slowest rank":       {Save, 9, 89 * time.Second, -1},
		"longer than that":          {Save, 9, 91 * time.Second, 1},
		"in the first steps":        {Forward, 3, time.Hour, -1},
		"a phase that is not known": {Eval, 9, time.Hour, -1},
		"the setup":                 {Startup, 9, time.Hour, -1},
	} {
		v := all(c.phase, c.steps, c.since)
		switch {
		case (v == nil) != (c.blame < 0):
			t.Errorf("%s: verdict %+v", name, v)
		case v != nil && (v.Rank != c.blame || v.Kind != failure.Stall || !strings.Contains(v.Text, "the time-out learned from this run is")):
			t.Errorf("%s: verdict %+v", name, v)
		}
	}
	// What is reported.
	all(Forward, 9, 0)
	line := w.learnt(w.limits())
	if want := "data 50 s, forward 30 s, save 90 s (5 times the longest time that a rank has spent in the phase, and at least 30 s)"; !strings.HasSuffix(line, want) {
		t.Errorf("it says %q, want %q", line, want)
	}
	if again := w.learnt(w.limits()); again != "" {
		t.Errorf("and again: %q", again)
	}
	w.ranks[2].beat.Longest[Save] = 100
	if line = w.learnt(w.limits()); !strings.Contains(line, "save 500 s") {
		t.Errorf("after a longer save: %q", line)
	}
	if w.settings.Factor = 0; w.outlasting(w.limits(), now.Add(time.Hour)) != nil {
		t.Error("time-outs that nobody asked for")
	}
}

// Claim: a recorder knows the longest stay in each phase.
func TestLongest(t *testing.T) {
	r, err := NewRecorder(0, 1, "")
	if err != nil {
		t.Fatal(err)
	}
	r.Enter(Data, 1)
	r.began = r.began.Add(-7 * time.Second)
	r.Enter(Forward, 1)
	r.Enter(Data, 2)
	r.Enter(Forward, 2)
	if b := r.Beat(); b.Longest[Data] < 7 || b.Longest[Data] > 60 || b.Longest[Forward] > 7 || b.Longest[Backward] != 0 {
		t.Errorf("%v", b.Longest)
	}
}
