package report

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"monotron/internal/exitcode"
	"monotron/megatron/telemetry/dashboard"
)

// opened is the run of a log with these lines.
func opened(t *testing.T, lines ...string) []*dashboard.Run {
	t.Helper()
	path := filepath.Join(t.TempDir(), "steps.jsonl")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	r, err := dashboard.Open(dashboard.Source{Path: path, Finished: true})
	if err != nil {
		t.Fatal(err)
	}
	return []*dashboard.Run{r}
}

const (
	step       = `{"time":"2026-11-22T17:00:01Z","iteration":1,"loss":{"lm loss":0.3333333333333333},"seconds":1}`
	evaluation = `{"time":"2026-11-22T17:00:02Z","iteration":1,"loss":{"lm loss":0.6666666666666666},"validation":"validation"}`
)

// TestCSVHasEveryDigit: numbers read back as they were.
func TestCSVHasEveryDigit(t *testing.T) {
	var b bytes.Buffer
	if err := commas(&b, opened(t, step, evaluation)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{",training,1,", ",0.3333333333333333,", ",validation,1,", ",0.6666666666666666,"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
}

// TestMarkdownIsEscaped: no text of a run is markup.
func TestMarkdownIsEscaped(t *testing.T) {
	runs := opened(t, step)
	runs[0].Name = "\x1b[2J</td><img src=x onerror=run()>|*"
	var b bytes.Buffer
	if err := markdown(&b, runs); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(b.String(), "\x1b\r") || strings.Contains(b.String(), "<img") || !strings.Contains(b.String(), "onerror") {
		t.Errorf("text of the run is there as markup, or not at all:\n%s", b.String())
	}
}

// TestFormatByEnding: a name says what a file is to be, unless --format does.
func TestFormatByEnding(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "steps.jsonl")
	if err := os.WriteFile(log, []byte(step+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, format, begins string }{
		{"a.png", "", "\x89PNG"}, {"a.html", "", "<!doctype"}, {"a", "", "<!doctype"}, {"b.png", "html", "<!doctype"}, {"a.csv", "", "run,"},
	} {
		path := filepath.Join(dir, c.name)
		words := []string{"monotron", "report", log, "--output", path}
		if c.format != "" {
			words = append(words, "--format", c.format)
		}
		var notes bytes.Buffer
		app := &cli.App{Commands: []*cli.Command{Command()}, ErrWriter: &notes, ExitErrHandler: func(*cli.Context, error) {}}
		if err := app.Run(words); err != nil || notes.String() != "wrote "+path+"\n" {
			t.Errorf("%s: %v, %q", c.name, err, notes.String())
		}
		if data, err := os.ReadFile(path); err != nil || !strings.HasPrefix(string(data), c.begins) {
			t.Errorf("%s begins with %.20q, %v", c.name, data, err)
		}
	}
}

// TestSeveralRuns: runs that are named one after the other are compared, as those of --compare are.
func TestSeveralRuns(t *testing.T) {
	dir := t.TempDir()
	var logs []string
	for _, name := range []string{"one", "two", "three"} {
		logs = append(logs, filepath.Join(dir, name, "steps.jsonl"))
		if err := errors.Join(os.MkdirAll(filepath.Dir(logs[len(logs)-1]), 0o755), os.WriteFile(logs[len(logs)-1], []byte(step+"\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	var texts []string
	for i, words := range [][]string{{logs[0], logs[1], logs[2]}, {logs[0], "--compare", logs[1], "--compare", logs[2]}, {logs[0], logs[1], "--compare", logs[2]}} {
		out := filepath.Join(dir, fmt.Sprint(i, ".md"))
		app := &cli.App{Commands: []*cli.Command{Command()}, ExitErrHandler: func(*cli.Context, error) {}}
		if err := app.Run(append([]string{"monotron", "report", "--output", out}, words...)); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	if texts[0] != texts[1] || texts[0] != texts[2] || !strings.Contains(texts[0], "What differs") || strings.Count(texts[0], "| three ") == 0 {
		t.Errorf("%q", texts)
	}
	app := &cli.App{Commands: []*cli.Command{Command()}, ExitErrHandler: func(*cli.Context, error) {}}
	if err := app.Run([]string{"monotron", "report"}); exitcode.CodeOf(err) != exitcode.Usage {
		t.Error(err)
	}
}

// TestOutputThatIsRefused: an ending that says no format, and the log itself, which stays as it is.
func TestOutputThatIsRefused(t *testing.T) {
	dir := t.TempDir()
	log, link := filepath.Join(dir, "steps.jsonl"), filepath.Join(dir, "link.csv")
	if err := os.WriteFile(log, []byte(step+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(log, link); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ output, format, says string }{
		{filepath.Join(dir, "a.pdf"), "html", ""}, {filepath.Join(dir, "b.pdf"), "", "unknown suffix .pdf"},
		{log, "csv", "would be overwritten"}, {link, "", "would be overwritten"},
	} {
		words := []string{"monotron", "report", "--output", c.output}
		if c.format != "" {
			words = append(words, "--format", c.format)
		}
		app := &cli.App{Commands: []*cli.Command{Command()}, ExitErrHandler: func(*cli.Context, error) {}}
		err := app.Run(append(words, log))
		if c.says == "" && err != nil || c.says != "" && (exitcode.CodeOf(err) != exitcode.Usage || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v", c.output, err)
		}
	}
	if data, err := os.ReadFile(log); err != nil || string(data) != step+"\n" {
		t.Errorf("the log is now %q, %v", data, err)
	}
}
