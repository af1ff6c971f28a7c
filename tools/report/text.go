package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"monotron/internal/exitcode"
	"monotron/megatron/telemetry"
	"monotron/megatron/telemetry/dashboard"
)

// markdown writes what differs, a line a run, and the events.
func markdown(w io.Writer, runs []*dashboard.Run) error {
	var b strings.Builder
	if len(runs) > 1 {
		fmt.Fprint(&b, "## What differs\n\n")
		flagTable(&b, runs)
	}
	fmt.Fprint(&b, "## Summary\n\n")
	rows := [][]string{{"run", "step", "tokens", "loss", "validation", "best validation", "tokens/s", "MFU %", "hours", "skipped", "restarts", "torn lines"}}
	for _, r := range runs {
		s := r.Summary()
		rows = append(rows, []string{r.Name, strconv.Itoa(s.Step), strconv.FormatInt(s.Tokens, 10), number(s.Loss), number(s.Validation), number(s.Best),
			number(s.TokensPerSecond), number(100 * s.MFU), number(s.Hours), strconv.Itoa(s.Skipped), strconv.Itoa(s.Restarts), strconv.Itoa(s.Torn)})
	}
	table(&b, rows)
	for _, r := range runs {
		if r.Note != "" {
			fmt.Fprintf(&b, "%s: %s.\n\n", cell(r.Name), cell(r.Note))
		}
	}
	eventTable(&b, runs)
	_, err := io.WriteString(w, b.String())
	return exitcode.With(exitcode.IO, err)
}

func flagTable(b *strings.Builder, runs []*dashboard.Run) {
	head := []string{"flag"}
	for _, r := range runs {
		head = append(head, r.Name)
	}
	rows := [][]string{head}
	for _, d := range dashboard.Differences(runs) {
		rows = append(rows, append([]string{"--" + d.Flag}, d.Values...))
	}
	if len(rows) == 1 {
		known := 0
		for _, r := range runs {
			if r.Flags != nil {
				known++
			}
		}
		fmt.Fprintf(b, "No flag differs; flags are known of %d of %d runs.\n\n", known, len(runs))
		return
	}
	table(b, rows)
}

func eventTable(b *strings.Builder, runs []*dashboard.Run) {
	rows := [][]string{{"run", "what", "step", ""}}
	for _, r := range runs {
		for _, m := range r.Marks() {
			rows = append(rows, []string{r.Name, m.Kind, strconv.Itoa(m.Iteration), m.Text})
		}
	}
	if len(rows) > 1 {
		fmt.Fprint(b, "## Events\n\n")
		table(b, rows)
	}
}

// table writes rows, the first of which is the head.
func table(b *strings.Builder, rows [][]string) {
	for i, r := range rows {
		for _, text := range r {
			fmt.Fprintf(b, "| %s ", cell(text))
		}
		fmt.Fprintln(b, "|")
		if i == 0 {
			fmt.Fprintln(b, strings.Repeat("|---", len(r))+"|")
		}
	}
	fmt.Fprintln(b)
}

// escapes keep text from outside out of Markdown's and HTML's hands.
var escapes = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `\`, `\\`, "|", `\|`, "`", "\\`", "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`)

func cell(text string) string { return escapes.Replace(dashboard.Printable(text)) }

func number(n telemetry.Number) string {
	if math.IsNaN(float64(n)) {
		return "–"
	}
	return strconv.FormatFloat(float64(n), 'g', 5, 64)
}

// commas writes a line a step and evaluation, with every digit.
func commas(w io.Writer, runs []*dashboard.Run) error {
	out := csv.NewWriter(w)
	head := []string{"run", "split"}
	for _, f := range dashboard.Fields {
		head = append(head, f.Name)
	}
	lines := [][]string{head}
	for _, r := range runs {
		lines = append(lines, values(r.Name, "training", r.Steps)...)
		for _, split := range slices.Sorted(maps.Keys(r.Evaluations)) {
			lines = append(lines, values(r.Name, split, r.Evaluations[split])...)
		}
	}
	return exitcode.With(exitcode.IO, out.WriteAll(lines))
}

func values(run, split string, t dashboard.Table) (lines [][]string) {
	for i := range t.Len() {
		line := []string{run, split}
		for _, n := range t.Row(i) {
			text := ""
			if !math.IsNaN(float64(n)) {
				text = strconv.FormatFloat(float64(n), 'f', -1, 64)
			}
			line = append(line, text)
		}
		lines = append(lines, line)
	}
	return lines
}
