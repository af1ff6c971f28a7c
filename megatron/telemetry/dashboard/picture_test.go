package dashboard

import (
	"bytes"
	"fmt"
	"image/png"
	"io"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"monotron/internal/exitcode"
	"monotron/megatron/telemetry"
)

// falling is a run of 200 steps.
func falling(t *testing.T, name string, factor float64) *Run {
	var lines []string
	for i := 1; i <= 200; i++ {
		lines = append(lines, line(i, factor*(2+3*math.Exp(-float64(i)/40))))
		if i%50 == 0 {
			lines = append(lines, evaluation(i, factor*3))
		}
	}
	return opened(t, logOf(t, name, append(lines, "")...))[0]
}

// TestPicture: the picture is a PNG that holds each run's colour; runs without a step are an
// error.
func TestPicture(t *testing.T) {
	var b bytes.Buffer
	if err := WritePicture(&b, []*Run{falling(t, "a", 1), falling(t, "b", 1.5)}); err != nil {
		t.Fatal(err)
	}
	picture, err := png.Decode(&b)
	if err != nil {
		t.Fatal(err)
	}
	pixels := map[int]int{}
	for x := range picture.Bounds().Dx() {
		for y := range picture.Bounds().Dy() {
			for i := range palette {
				if r, g, b, _ := picture.At(x, y).RGBA(); r>>8 == uint32(palette[i].R) && g>>8 == uint32(palette[i].G) && b>>8 == uint32(palette[i].B) {
					pixels[i]++
				}
			}
		}
	}
	if pixels[0] < 200 || pixels[1] < 200 || pixels[2] != 0 {
		t.Errorf("pixels of each run's colour: %v", pixels)
	}
	if err := WritePicture(&b, []*Run{{History: newHistory()}}); exitcode.CodeOf(err) != exitcode.BadData {
		t.Errorf("no step: %v", err)
	}
}

// TestScreen: the screen keeps to its width, has the panels, and neither colour nor what a
// run's text could do to a terminal.
func TestScreen(t *testing.T) {
	r := falling(t, "a", 1)
	r.Name = "evil\x1b]0;title\x07" + strings.Repeat("long", 50)
	r.Restarts = []Mark{{Iteration: 3, Kind: "restart", Text: "\x1b[2J" + strings.Repeat("x", 200)}}
	for _, width := range []int{80, 40} {
		text := Screen([]*Run{r, falling(t, "b", 1.5)}, width, 12, time.Unix(0, 0), false)
		for _, want := range []string{"loss, nats a token", "200 step", "tokens a second", "gradient norm", "restart step 3"} {
			if !strings.Contains(text, want[:min(len(want), width-4)]) {
				t.Errorf("%q is not in\n%s", want, text)
			}
		}
		for line := range strings.Lines(text) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width {
				t.Errorf("%d columns of %d: %q", n, width, line)
			}
		}
		if strings.ContainsAny(text, "\x1b\x07") {
			t.Errorf("a control character is in %q", text)
		}
	}
}

// TestThinnedKeepsWhatStandsOut: of a long log the page has true rows, in order, with every
// spike.
func TestThinnedKeepsWhatStandsOut(t *testing.T) {
	h := newHistory()
	for i := 1; i <= 50000; i++ {
		loss := 5.0
		if i%10000 == 7 {
			loss = 9
		}
		e, ok := parse([]byte(line(i, loss)))
		if !ok {
			t.Fatal(i)
		}
		h.step(&e)
	}
	thin := h.Steps.thinned(2000)
	if thin.Len() > 2100 || thin.Last("iteration") != 50000 {
		t.Errorf("%d rows, the last is %v", thin.Len(), thin.Last("iteration"))
	}
	spikes := ""
	for i, steps := 0, thin.Of("iteration"); i < thin.Len(); i++ {
		if i > 0 && steps[i] <= steps[i-1] {
			t.Fatalf("row %d does not rise", i)
		}
		if thin.Of("loss")[i] == 9 {
			spikes += fmt.Sprint(steps[i], " ")
		}
	}
	if spikes != "7 10007 20007 30007 40007 " {
		t.Errorf("spikes at %s", spikes)
	}
}

// TestNumbersOutOfAllBounds: picture, screen and page of logs whose numbers no run has; the
// numbers that can be drawn are.
func TestNumbersOutOfAllBounds(t *testing.T) {
	huge, tiny, minus := 1.7e308, 5e-324, -1.7e308
	for _, values := range [][]float64{{huge, minus, 3}, {tiny, 2 * tiny, 3 * tiny}, {huge, tiny, 0}, {math.MaxFloat32, -math.MaxFloat32}, {math.SmallestNonzeroFloat32, 0}, {1e16, 1e16 + 2}} {
		var lines []string
		for i, v := range values {
			lines = append(lines, line(i+1, v))
		}
		runs := opened(t, logOf(t, "extreme", append(lines, "")...))
		if err := WritePicture(io.Discard, runs); err != nil {
			t.Errorf("%g: %v", values, err)
		}
		if err := WritePage(io.Discard, runs); err != nil {
			t.Errorf("%g: %v", values, err)
		}
		for _, width := range []int{0, 5, 20, 80} {
			if text := Screen(runs, width, 4, time.Unix(0, 0), false); text == "" {
				t.Errorf("%g: nothing on a screen of %d columns", values, width)
			}
		}
	}
}

// TestStepsThatAreNone: iterations that a table cannot tell apart, or below 0, are torn lines; a
// log may begin with a long line of either kind.
func TestStepsThatAreNone(t *testing.T) {
	long := strings.Replace(line(1, 3), "{", `{"x":"`+strings.Repeat("y", 300<<10)+`",`, 1)
	r := opened(t, logOf(t, "a", line(-5, 1), line(math.MaxInt, 1), strings.Repeat("[", 300<<10), long, line(2, 3), ""))[0]
	if s := r.Summary(); s.Torn != 3 || s.Step != 2 || r.Steps.Len() != 2 {
		t.Errorf("%d torn, %d steps to %d", s.Torn, r.Steps.Len(), s.Step)
	}
}

// TestPreferenceChart: a run of preference tuning has a panel of its margins, those of evaluations
// too; another run has none.
func TestPreferenceChart(t *testing.T) {
	with := func(line, fields string) string { return strings.TrimSuffix(line, "}") + fields + "}" }
	run := opened(t, logOf(t, "dpo", with(line(1, 0.69), `,"rewards_margins":0,"rewards_accuracies":0`), with(line(2, 0.5), `,"rewards_margins":0.5,"rewards_accuracies":0.75`),
		with(evaluation(2, 0.6), `,"rewards_margins":0.25`), ""))[0]
	margins := func(r *Run) (list []curve) {
		for _, c := range charts([]*Run{r}) {
			if c.title == "reward margin" {
				list = c.curves
			}
		}
		return list
	}
	got := margins(run)
	if len(got) != 2 || fmt.Sprint(got[0].x) != "[1 2]" || got[0].y[0] != 0 || got[0].y[1] <= 0 || fmt.Sprint(got[1].y) != "[0.25]" {
		t.Errorf("%+v", got)
	}
	if got := margins(falling(t, "sft", 1)); got != nil {
		t.Errorf("%+v", got)
	}
}

// Claim (docs/report.md): the screen says that a run is done, failed or stopped, and why, by the rules of the page; only
// a run that trains has time left. The axis has the steps.
func TestScreenOfARunThatStopped(t *testing.T) {
	for name, c := range map[string]struct {
		after time.Duration // since the last step
		ended *telemetry.Ended
		mark  *Mark
		steps int // of the run in all
		says  string
	}{
		"trains":  {after: 10 * time.Second, steps: 400, says: " left ("},
		"killed":  {after: time.Hour, steps: 400, says: ", stopped: there was no step for 1h0m0s"},
		"stopped": {after: time.Second, steps: 400, ended: &telemetry.Ended{Code: exitcode.Again, Text: "stopped by SIGTERM"}, says: ", stopped: stopped by SIGTERM"},
		"failed":  {after: time.Second, steps: 400, mark: &Mark{Iteration: 200, Kind: "verdict", Text: "rank 3 died"}, says: ", failed: rank 3 died"},
		"done":    {after: time.Hour, steps: 200, says: ", done"},
	} {
		r := falling(t, "a", 1)
		r.latest.TrainIters = c.steps
		r.About = &telemetry.About{Ended: c.ended}
		if c.mark != nil {
			r.kept = append(r.kept, *c.mark)
		}
		seen := time.UnixMilli(int64(1000 * r.Steps.Last("time")))
		text := Screen([]*Run{r}, 120, 6, seen.Add(c.after), false)
		first, _, _ := strings.Cut(text, "\n")
		if !strings.Contains(first, c.says) || strings.Contains(first, " left") != (name == "trains") {
			t.Errorf("%s: %s", name, first)
		}
		if !regexp.MustCompile(`(?m)^ +1 .* 200 +step$`).MatchString(text) {
			t.Errorf("%s: the steps are not below the chart:\n%s", name, text)
		}
	}
}

// Claim: the numbers at the side of a chart differ from line to line, however small what they span is.
func TestLabelsDiffer(t *testing.T) {
	for _, span := range [][2]float64{{0.001, 0.0009999}, {3e-4, 0}, {4.62, 3.63}, {1.12, 0.98}, {21690, 19000}, {1e9, 1e8}, {-0.5, 0.5}, {7, 7}} {
		text, seen := label([][]float64{{span[0], span[1], math.NaN()}}, 6), map[string]bool{}
		for i := range 7 {
			seen[text(span[0]+(span[1]-span[0])*float64(i)/6)] = true
		}
		if want := 7; span[0] != span[1] && len(seen) != want || len(text(span[0])) > 11 { // what the chart leaves for them
			t.Errorf("%v: %d labels, %v", span, len(seen), seen)
		}
	}
}
