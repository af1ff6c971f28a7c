package telemetry

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// plain is a step of a plain run: a step a second, of 1000.
func plain(i int) *Step {
	norm := 1 + 0.1*math.Sin(float64(i))
	return &Step{Time: time.Unix(int64(i), 0), Iteration: i, TrainIters: 1000, Elapsed: time.Second, Data: 10 * time.Millisecond, GradNorm: &norm,
		Losses: []Value{{"lm loss", 4 + 6*math.Exp(-float64(i)/300) + 0.02*math.Sin(7*float64(i))}}}
}

// alerted are the alerts of steps, as "step kind".
func alerted(r *Rules, steps int, change func(*Step)) (all []string) {
	for i := 1; i <= steps; i++ {
		s := plain(i)
		change(s)
		for _, a := range r.Check(s) {
			all = append(all, fmt.Sprintf("%d %s", i, a.Kind))
		}
	}
	return all
}

// work of some ranks, with a log line each 10 steps.
func lineOf(s *Step, forward ...float64) {
	if s.Iteration%10 == 0 {
		s.Line = &Interval{Iterations: 10, Work: Work{Phases: []string{"data", "forward"}}}
		for _, seconds := range forward {
			s.Line.Work.Seconds = append(s.Line.Work.Seconds, []float64{0.01, seconds})
		}
	}
}

// TestAlertRules: each trouble is reported at the step that shows it, once; a plain run has none
// (docs/logging.md).
func TestAlertRules(t *testing.T) {
	free := int64(100e9)
	for name, c := range map[string]struct {
		change func(*Step)
		free   func(s *Step) int64
		want   string
	}{
		"a plain run": {func(*Step) {}, nil, ""},
		"one spike": {func(s *Step) {
			if s.Iteration >= 500 && s.Iteration < 505 {
				s.Losses[0].Value += 2
			}
		}, nil, "500 loss_spike"},
		"two spikes, and one at the start that nothing is known of": {func(s *Step) {
			if s.Iteration == 5 || s.Iteration == 300 || s.Iteration == 700 {
				s.Losses[0].Value *= 1.5
			}
		}, nil, "300 loss_spike 700 loss_spike"},
		"a skipped step has no spike": {func(s *Step) {
			if s.Skipped = s.Iteration == 300; s.Skipped {
				s.Losses[0].Value, s.GradNorm = math.Inf(1), nil
			}
		}, nil, ""},
		"nothing was learned": {func(s *Step) {
			s.Losses[0].Value = 10 + 0.02*math.Sin(7*float64(s.Iteration)) + 1e-4*float64(s.Iteration)
		}, nil, "300 nothing_learned"},
		"gradient norm": {func(s *Step) {
			if s.Iteration == 200 {
				*s.GradNorm = 30
			}
		}, nil, "200 gradient_norm"},
		"data wait": {func(s *Step) {
			if s.Iteration > 400 {
				s.Data = s.Elapsed / 2
			}
		}, nil, "425 data_wait"},
		"a slow rank": {func(s *Step) {
			slow := 0.2
			if s.Iteration > 600 {
				slow = 0.5
			}
			lineOf(s, 0.2, 0.22, slow, 0.19)
		}, nil, "630 slow_rank"},
		"two ranks that are slow in turn": {func(s *Step) {
			times := []float64{0.2, 0.5, 0.2}
			if s.Iteration%200 < 50 {
				times = []float64{0.5, 0.2, 0.2}
			}
			lineOf(s, times...)
		}, nil, "30 slow_rank"},
		"a rank that is slow now and then": {func(s *Step) {
			slow := 0.2
			if s.Iteration%30 == 0 {
				slow = 0.5
			}
			lineOf(s, 0.2, slow)
		}, nil, ""},
		"a disk that fills":            {func(*Step) {}, func(s *Step) int64 { return free - int64(s.Iteration)*150e6 }, "301 full_disk"},
		"a disk that is large enough":  {func(*Step) {}, func(s *Step) int64 { return free - int64(s.Iteration)*90e6 }, ""},
		"a disk that got a checkpoint": {func(*Step) {}, func(s *Step) int64 { return free - int64(s.Iteration/500)*60e9 }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Rules{}
			var at *Step
			if c.free != nil {
				r.Disks, r.Free = []string{"out"}, func(string) (int64, bool) { return c.free(at), true }
			}
			if got := strings.Join(alerted(r, 1000, func(s *Step) { c.change(s); at = s }), " "); got != c.want {
				t.Errorf("told %q, want %q", got, c.want)
			}
		})
	}
}

// TestAlertsHaveNumbers: the text and the numbers that machines get are the same.
func TestAlertsHaveNumbers(t *testing.T) {
	r := &Rules{}
	for i := 1; i < 100; i++ {
		if alerts := r.Check(plain(i)); alerts != nil {
			t.Fatal(alerts)
		}
	}
	s := plain(100)
	s.Losses[0].Value = 20
	s.Alerts = r.Check(s)
	text, err := json.Marshal(entry(s))
	if err != nil || len(s.Alerts) != 1 {
		t.Fatal(err, s.Alerts)
	}
	var e Entry
	if err := json.Unmarshal(text, &e); err != nil || e.Alerts[0].Values["loss"] != 20 || !strings.Contains(e.Alerts[0].Text, "the loss is 20.0000, but the mean of the 64 steps before is 8.8") {
		t.Errorf("%v: %s", err, text)
	}
}

// TestUnevenExperts: an expert without a token, or with too many, is reported once, by layer and
// number; in a step of few tokens none is.
func TestUnevenExperts(t *testing.T) {
	few := []MixtureLayer{{Number: 1, Tokens: []float64{0, 4, 0, 4}}}
	many := []MixtureLayer{{Number: 1, Tokens: []float64{0, 100, 50, 250}}, {Number: 3, Tokens: []float64{100, 100, 100, 100}}}
	r, got := &Rules{Imbalance: 2}, ""
	for i, layers := range [][]MixtureLayer{few, many, many} {
		s := plain(i + 1)
		s.MoELayers = layers
		for _, a := range r.Check(s) {
			got += a.Text + "\n"
		}
	}
	want := "layer 1: expert 0 got no tokens (0 tokens, 100 in an even step); this is reported only once\n" +
		"layer 1: expert 3 got 2.5 times an even share of the tokens, more than --moe-imbalance-limit 2 (250 tokens, 100 in an even step); this is reported only once\n"
	if got != want {
		t.Errorf("told\n%swant\n%s", got, want)
	}
}

// waitLines waits until a file has n lines.
func waitLines(t *testing.T, path string, n int) string {
	t.Helper()
	for range 600 {
		text, _ := os.ReadFile(path)
		if strings.Count(string(text), "\n") >= n {
			return string(text)
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("%s did not get %d lines", path, n)
	return ""
}

// TestAlertCommand: the command gets each alert once, as JSON; Take does not wait for it, and
// what waits when the run ends is handed over then.
func TestAlertCommand(t *testing.T) {
	out := filepath.Join(t.TempDir(), "got")
	gate := out + ".held" // the command does not end while it is there
	if err := os.WriteFile(gate, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	var warned []string
	c := runAlertCommand(fmt.Sprintf("cat >>%[1]s; echo end >>%[1]s; while [ -e %[2]s ]; do sleep 0.05; done; echo broken; exit 3", out, gate), time.Hour, time.Minute, func(format string, args ...any) {
		warned = append(warned, fmt.Sprintf(format, args...))
	})
	take := func(i int) {
		if err := c.Take(&Step{Iteration: i, Alerts: []Alert{{Kind: "k", Text: "t", Values: map[string]Number{"n": Number(math.NaN())}}}}); err != nil {
			t.Fatal(err)
		}
	}
	take(1)
	waitLines(t, out, 2)
	take(2) // would wait for ever, if it waited for the command
	take(3)
	if err := os.Remove(gate); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	line := func(i int) string {
		return fmt.Sprintf(`{"time":"0001-01-01T00:00:00Z","iteration":%d,"kind":"k","text":"t","values":{"n":null}}`+"\n", i)
	}
	if got, want := waitLines(t, out, 5), line(1)+"end\n"+line(2)+line(3)+"end\n"; got != want {
		t.Errorf("the command got\n%swant\n%s", got, want)
	}
	if len(warned) != 2 || !strings.Contains(warned[0], `exit status 3 (its message: "broken")`) {
		t.Errorf("warned: %q", warned)
	}
}

// TestAStuckAlertCommandEnds: one that never ends is killed with what it started.
func TestAStuckAlertCommandEnds(t *testing.T) {
	out := filepath.Join(t.TempDir(), "started")
	c := runAlertCommand(fmt.Sprintf("echo >>%s; sleep 1000 & sleep 1000", out), 0, 100*time.Millisecond, func(string, ...any) {})
	take := func(n int) {
		for i := range n {
			if err := c.Take(&Step{Iteration: i, Alerts: []Alert{{Kind: "k"}}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	take(1)
	waitLines(t, out, 1)
	take(3 * alertsWaiting)
	if c.dropped != 2*alertsWaiting {
		t.Errorf("%d of %d alerts were dropped", c.dropped, 3*alertsWaiting)
	}
	began := time.Now()
	if err := c.Close(); err != nil || time.Since(began) > 5*time.Minute {
		t.Errorf("closing took %v, %v", time.Since(began), err)
	}
}

// TestAnAlertCommandIsNotAStall: what a run's end waits for commands is less than what ends a run
// that stands still.
func TestAnAlertCommandIsNotAStall(t *testing.T) {
	for stall, most := range map[time.Duration]time.Duration{0: commandAtEnd, time.Second: time.Second / 3, 15 * time.Second: commandAtEnd, time.Hour: commandAtEnd} {
		c := RunAlertCommand("true", stall, t.Logf)
		if delay := min(time.Second, c.atEnd/5); c.atEnd > most || stall > 0 && 2*(c.atEnd+delay) >= stall {
			t.Errorf("stall of %v: a command has %v, its output %v", stall, c.atEnd, delay)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestWhatAnAlertCommandSays: its output is quoted, and a process that it leaves behind is not a failure.
func TestWhatAnAlertCommandSays(t *testing.T) {
	for _, c := range []struct {
		command, want string
		atEnd         time.Duration
	}{
		{`printf '\033[2Jx\nmonotron: no'; exit 4`, `exit status 4 (its message: "\x1b[2Jx\nmonotron: no")`, time.Minute},
		{"sleep 3 & exit 0", "", time.Minute},
		{"sleep 1000", "after the end of the run and was killed (it wrote no message)", 100 * time.Millisecond},
	} {
		var warned []string
		run := runAlertCommand(c.command, time.Hour, c.atEnd, func(format string, args ...any) { warned = append(warned, fmt.Sprintf(format, args...)) })
		if err := errors.Join(run.Take(&Step{Alerts: []Alert{{Kind: "k"}}}), run.Close()); err != nil {
			t.Error(err)
		}
		if text := strings.Join(warned, "\n"); c.want == "" && text != "" || !strings.Contains(text, c.want) {
			t.Errorf("%s: warned %q, want %q", c.command, text, c.want)
		}
	}
}

// Claim: of a command that writes without end 2 KiB are kept, as os/exec copies its output (a
// buffer with a ReadFrom of its own would take all).
func TestEndlessCommandTakesNoMemory(t *testing.T) {
	kept := &head{}
	if n, err := io.Copy(kept, io.LimitReader(zeros{}, 1<<26)); n != 1<<26 || err != nil {
		t.Fatal(n, err)
	}
	if n := kept.kept.Len(); n != commandSaysMax {
		t.Errorf("%d bytes are kept, want %d", n, commandSaysMax)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }
