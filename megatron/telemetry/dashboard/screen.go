package dashboard

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/guptarohit/asciigraph"

	"monotron/internal/exitcode"
	"monotron/megatron/telemetry"
)

// Screen draws runs as lines of text, at most width columns wide: how far each is, the main
// panels, each of some lines' height, and the newest events.
func Screen(runs []*Run, width, height int, now time.Time, colour bool) string {
	var b strings.Builder
	// A line or two for each run.
	for _, r := range runs {
		s := r.Summary()
		if course, numbers := r.course(&s, now, width), s.numbers(); utf8.RuneCountInString(course+numbers) < width {
			fmt.Fprintln(&b, course+numbers)
		} else {
			fmt.Fprintf(&b, "%s\n%s\n", cut(course, width), cut(numbers, width))
		}
	}
	// The first panel is twice as high as the others.
	for i, panel := range charts(runs) {
		lines := height
		if i > 0 {
			lines = max(2, height/2)
		}
		fmt.Fprintf(&b, "\n%s\n", panel.draw(width, lines, colour))
	}
	// The newest events of all runs.
	var marks []string
	for _, r := range runs {
		for _, m := range r.Marks() {
			marks = append(marks, cut(fmt.Sprintf("%s step %d: %s", m.Kind, m.Iteration, Printable(m.Text)), width))
		}
	}
	if len(marks) > 0 {
		fmt.Fprintf(&b, "\n%s\n", strings.Join(marks[max(0, len(marks)-4):], "\n"))
	}
	return b.String()
}

// course is how far a run is: a bar, and when it will end, or that it trains no more.
func (r *Run) course(s *Summary, now time.Time, width int) string {
	text := fmt.Sprintf("%s  step %d", Printable(shortened(r.Name)), s.Step)
	if s.TrainIters > 0 {
		full := max(10, width/4)
		done := int(float64(full) * min(1, float64(s.Step)/float64(s.TrainIters)))
		text = fmt.Sprintf("%s  [%s%s] %d of %d", Printable(shortened(r.Name)), strings.Repeat("#", done), strings.Repeat(".", full-done), s.Step, s.TrainIters)
	}
	if stopped := r.stopped(s, now); stopped != "" {
		return text + ", " + stopped
	}
	if left := float64(s.Left); left > 0 {
		span := time.Duration(left * float64(time.Second)).Round(time.Second)
		text += fmt.Sprintf(", %s left", span)
		if span < 24*time.Hour {
			text += now.Add(span).Format(" (15:04)")
		}
	}
	return text
}

// stopped says that a run trains no more, and why, by the rules of the page; "": it trains.
func (r *Run) stopped(s *Summary, now time.Time) string {
	// Its last verdict, its last step, its own last word.
	for _, m := range slices.Backward(r.Marks()) {
		if m.Kind == "verdict" && m.Iteration >= s.Step {
			return "failed: " + Printable(m.Text)
		}
	}
	ended := r.ending()
	switch {
	case s.TrainIters > 0 && s.Step >= s.TrainIters, ended != nil && ended.Code == exitcode.Done:
		return "done"
	case ended != nil:
		return "stopped: " + Printable(ended.Text)
	case r.Steps.Len() == 0:
		return "no step yet"
	}
	// A run that was killed says nothing: it has made no step for long.
	patience := 60.0
	if usual := float64(median(r.recent("seconds"))); 20*usual > patience {
		patience = 20 * usual
	}
	quiet := float64(now.UnixMilli())/1000 - r.Steps.Last("time")
	if !(quiet >= patience) {
		return ""
	}
	return fmt.Sprintf("stopped: there was no step for %s", (time.Duration(min(quiet, 1e9)) * time.Second).String())
}

// numbers are a run's latest, in a line.
func (s *Summary) numbers() (text string) {
	for _, n := range []struct {
		name  string
		value telemetry.Number
	}{{"loss", s.Loss}, {"validation", s.Validation}, {"tokens/s", s.TokensPerSecond}, {"MFU %", 100 * s.MFU}, {"cost", s.Cost}} {
		if !math.IsNaN(float64(n.value)) {
			text += fmt.Sprintf("  %s %.4g", n.name, n.value)
		}
	}
	return text
}

// The colours of runs, as the page's.
var inks = []asciigraph.AnsiColor{asciigraph.Blue, asciigraph.Red, asciigraph.Green, asciigraph.Magenta, asciigraph.Yellow, asciigraph.Cyan}

// axis is how much of a width the numbers at the side take.
const axis = 12

func (c *chart) draw(width, height int, colour bool) string {
	low, high := c.bounds()
	columns := max(4, width-axis-len(" step"))
	var rows [][]float64
	var names []string
	var colours []asciigraph.AnsiColor
	several := slices.ContainsFunc(c.curves, func(line curve) bool { return line.run != c.curves[0].run })
	for _, line := range c.curves {
		name := Printable(shortened(line.name))
		switch { // the first line names the only run
		case !several && line.validation:
			name = "validation"
		case !several:
			name = "training"
		}
		rows, names = append(rows, line.resampled(low, high, columns)), append(names, name)
		colours = append(colours, inks[line.run%len(inks)])
	}
	top := c.title
	if len(names) > 1 {
		top += ": " + strings.Join(names, ", ")
	}
	options := []asciigraph.Option{asciigraph.Height(height), asciigraph.YAxisValueFormatter(label(rows, height)),
		asciigraph.XAxisRange(low, high), asciigraph.XAxisTickCount(max(2, min(5, columns/12))), asciigraph.XAxisValueFormatter(func(step float64) string { return fmt.Sprintf("%.0f", step) })}
	if colour {
		options = append(options, asciigraph.SeriesColors(colours...))
	}
	plot := strings.Split(strings.TrimRight(asciigraph.PlotMany(rows, options...), "\n"), "\n")
	last := len(plot) - 1 // the numbers of steps
	plot[last] = cut(plot[last]+" step", width)
	return cut(top, width) + "\n" + strings.Join(plot, "\n")
}

// label writes the numbers at the side of a chart of so many lines with the digits that tell one line from the next.
func label(rows [][]float64, lines int) func(v float64) string {
	low, high := math.Inf(1), math.Inf(-1)
	for _, row := range rows {
		for _, v := range row {
			if !math.IsNaN(v) {
				low, high = min(low, v), max(high, v)
			}
		}
	}
	most := max(math.Abs(low), math.Abs(high))
	step := (high - low) / float64(lines)
	if !(step > 0) {
		step = most / 100 // a constant
	}
	digits := func(x float64) int { // behind the point of numbers that are multiples of x
		if !(x > 0) {
			return 0
		}
		return max(0, min(5, int(math.Ceil(-math.Log10(x)))))
	}
	if most > 0 && (most < 1e-2 || most >= 1e7) {
		return func(v float64) string { return fmt.Sprintf("%.*e", digits(step/most), v) }
	}
	return func(v float64) string { return fmt.Sprintf("%.*f", digits(step), v) }
}

// cut keeps a line within a width.
func cut(text string, width int) string {
	letters := []rune(text)
	if len(letters) <= width {
		return text
	}
	return string(letters[:max(0, width-1)]) + "…"
}

// Printable is text from outside without what moves a terminal's cursor or colours it.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
}
