package logging

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"monotron/internal/exitcode"
)

// Claim: in a file a note is its text and nothing else; a lower level is left out.
func TestPlainLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stderr")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	n := New(file)
	n.From("training").Rank(3).At(7).Info("saved %d to %q", 5, "a\tb")
	n.Debug("not told")
	n.Warn("two\nlines")
	n.Failure(exitcode.Errorf(exitcode.IO, "full"))
	file.Close()
	text, err := os.ReadFile(path)
	if want := "saved 5 to \"a\\tb\"\ntwo\nlines\nmonotron: full\n"; err != nil || string(text) != want {
		t.Errorf("%v\n%q, want\n%q", err, text, want)
	}
}

// Claim: for machines every note is an object with level, time, component, rank and step;
// the error that ends the program has its exit code, at any level.
func TestObjects(t *testing.T) {
	var out bytes.Buffer
	n := New(&out)
	if err := n.Choose(JSON, "error"); err != nil {
		t.Fatal(err)
	}
	n.Warn("not told")
	n.From("checkpoint").Rank(0).At(12).Error("a\nb \"c\"")
	n.Failure(exitcode.Errorf(exitcode.IO, "full"))
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != 2 {
		t.Fatalf("%q", lines)
	}
	var first, last struct {
		Level, Message, Component, Time string
		Rank, Step, Code                *int
	}
	if err := errors.Join(json.Unmarshal([]byte(lines[0]), &first), json.Unmarshal([]byte(lines[1]), &last)); err != nil {
		t.Fatal(err)
	}
	if first.Level != "error" || first.Message != "a\nb \"c\"" || first.Component != "checkpoint" || *first.Rank != 0 || *first.Step != 12 || first.Code != nil {
		t.Errorf("%s", lines[0])
	}
	if _, err := time.Parse(time.RFC3339Nano, first.Time); err != nil {
		t.Error(err)
	}
	if last.Level != "fatal" || last.Message != "full" || last.Rank != nil || last.Step != nil || *last.Code != int(exitcode.IO) {
		t.Errorf("%s", lines[1])
	}
}

// Claim: what is a note for machines differs from what is for people.
func TestIsRecord(t *testing.T) {
	for _, format := range []string{Text, JSON} {
		var out bytes.Buffer
		n := New(&out)
		if err := n.Choose(format, ""); err != nil {
			t.Fatal(err)
		}
		n.Failure(errors.New("rank 3: gone"))
		if IsRecord(out.String()) != (format == JSON) {
			t.Errorf("%s: %q", format, out.String())
		}
	}
	for _, other := range []string{"", "monotron: x", `{"level":"fatal"`, "{}"} {
		if IsRecord(other) {
			t.Errorf("%q is taken for a record", other)
		}
	}
}

// Claim: wrong words of the two flags are refused with those there are.
func TestChoose(t *testing.T) {
	for format, level := range map[string]string{"xml": "", "": "loud"} {
		err := New(&bytes.Buffer{}).Choose(format, level)
		if err == nil || !strings.Contains(err.Error(), "must be ") {
			t.Errorf("%q %q: %v", format, level, err)
		}
	}
}

// Claim: on a terminal a note has its hour, its level and who says it, in colour.
func TestTerminal(t *testing.T) {
	var out bytes.Buffer
	n := New(&out)
	n.sink.log = n.sink.log.Output(terminal(&out))
	n.From("gpus").Rank(1).Warn("hot")
	if text := out.String(); !strings.Contains(text, "WRN") || !strings.Contains(text, "hot") || !strings.Contains(text, "component=") || !strings.Contains(text, "\x1b[") {
		t.Errorf("%q", text)
	}
}

// Claim: notes of many goroutines are complete and none is lost, a bar steps aside for each.
func TestCompleteLines(t *testing.T) {
	var out bytes.Buffer
	n, aside := New(&out), 0
	n.Around(func(print func()) { aside++; print() })
	var all sync.WaitGroup
	for rank := range 8 {
		all.Go(func() {
			for i := range 50 {
				n.Rank(rank).Info("rank %d says %d", rank, i)
			}
		})
	}
	all.Wait()
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	seen := map[string]bool{}
	for _, l := range lines {
		seen[l] = true
	}
	for rank := range 8 {
		for i := range 50 {
			if !seen[fmt.Sprintf("rank %d says %d", rank, i)] {
				t.Fatalf("rank %d, %d is missing", rank, i)
			}
		}
	}
	if len(lines) != 400 || aside != 400 {
		t.Errorf("%d lines, the bar stepped aside %d times", len(lines), aside)
	}
}

// Claim: a writer's lines become notes, however they are cut; nobody's notes are silent.
func TestLines(t *testing.T) {
	var out bytes.Buffer
	w := New(&out).Lines()
	for _, part := range []string{"one\ntw", "o\n", "three"} {
		if n, err := w.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatal(n, err)
		}
	}
	if out.String() != "one\ntwo\n" {
		t.Errorf("%q", out.String())
	}
	var none *Notes
	none.From("x").Rank(1).At(2).Info("nothing")
	none.Around(nil)
}

// Claim: one of a thing is written in the singular.
func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0 evaluations", 1: "1 evaluation", 2: "2 evaluations"} {
		if got := Count(n, "evaluation"); got != want {
			t.Errorf("%d: %q", n, got)
		}
	}
}
