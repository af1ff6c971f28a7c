package main

import (
	"bufio"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"monotron/fault"
	"monotron/megatron/report"
)

func put(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCorpus: source files only, each once, whole, in an order that depends on
// their names alone.
func TestCorpus(t *testing.T) {
	root := t.TempDir()
	put(t, root, map[string]string{
		"fmt/print.go": "package fmt // <&>\n", "fmt/testdata/x.go": "package x\n", "io/io.go": "package io\n",
		"io/README": "no source", "big/table.go": strings.Repeat("x", largestSource+1), "os/é.go": "package os\n",
	})
	paths, err := listSources(root)
	if err != nil {
		t.Fatal(err)
	}
	again, err := listSources(root)
	if err != nil || !slices.Equal(paths, again) {
		t.Errorf("%v, then %v, %v", paths, again, err)
	}
	if got := slices.Sorted(slices.Values(paths)); !slices.Equal(got, []string{"fmt/print.go", "io/io.go", "os/é.go"}) {
		t.Errorf("found %q", got)
	}
	out := filepath.Join(t.TempDir(), "go.jsonl")
	bytes, err := writeCorpus(root, paths, out, math.MaxInt64)
	if err != nil || bytes != int64(len("package fmt // <&>\npackage io\npackage os\n")) {
		t.Errorf("%d bytes, %v", bytes, err)
	}
	file, err := os.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for i := 0; lines.Scan(); i++ {
		var line corpusLine
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil || line.Path != paths[i] {
			t.Errorf("line %d is %q, %v", i, lines.Text(), err)
		}
		if want, _ := os.ReadFile(filepath.Join(root, line.Path)); line.Text != string(want) {
			t.Errorf("%s: %q became %q", line.Path, want, line.Text)
		}
	}
}

func TestNoSources(t *testing.T) {
	if _, err := listSources(t.TempDir()); fault.CodeOf(err) != fault.NoInput {
		t.Error(err)
	}
}

func step(iteration int, loss float64) report.Entry {
	norm := report.Number(loss / 2)
	return report.Entry{Iteration: iteration, Loss: map[string]report.Number{"lm loss": report.Number(loss)}, Trained: &report.Trained{GradNorm: &norm}}
}

// TestDifferenceIsFound: the proof can fail, by the last bit of one loss.
func TestDifferenceIsFound(t *testing.T) {
	before := []report.Entry{step(1, 9), step(2, 8), step(3, 7)}
	if n, err := sameSteps(before, []report.Entry{step(2, 8), step(3, 7), step(4, 6)}); n != 2 || err != nil {
		t.Errorf("%d steps, %v", n, err)
	}
	if _, err := sameSteps(before, []report.Entry{step(2, 8), step(3, 7.000000000000001)}); fault.CodeOf(err) != fault.Differs {
		t.Errorf("a loss that differs by one bit passed: %v", err)
	}
}

// TestTensorsAreCompared: so can the proof about files.
func TestTensorsAreCompared(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	put(t, a, map[string]string{"x.safetensors": "1234", "manifest.json": "then"})
	put(t, b, map[string]string{"x.safetensors": "1234", "manifest.json": "now"})
	if files, size, err := sameTensors(a, b); files != 1 || size != 4 || err != nil {
		t.Errorf("%d files, %d bytes, %v", files, size, err)
	}
	put(t, b, map[string]string{"x.safetensors": "1235"})
	if _, _, err := sameTensors(a, b); fault.CodeOf(err) != fault.Differs {
		t.Errorf("other bytes passed: %v", err)
	}
	if _, _, err := sameTensors(t.TempDir(), b); err == nil {
		t.Error("a checkpoint without tensors passed")
	}
}

// TestTailWaitsForWholeLines: a line that is being written is read later, once.
func TestTailWaitsForWholeLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "steps.jsonl")
	r := tail{path: path}
	if steps, err := r.read(); len(steps) != 0 || err != nil {
		t.Errorf("no file yet: %v, %v", steps, err)
	}
	for _, c := range []struct {
		text string
		want []int
	}{
		{`{"iteration":1,"seconds":1}` + "\n" + `{"iter`, []int{1}},
		{`ation":2,"seconds":1}`, nil},
		{"\n" + `{"iteration":3,"seconds":1}` + "\n", []int{2, 3}},
	} {
		file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.WriteString(c.text); err != nil {
			t.Fatal(err)
		}
		file.Close()
		steps, err := r.read()
		var got []int
		for _, s := range steps {
			got = append(got, s.Iteration)
		}
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("after %q: %v, %v; want %v", c.text, got, err, c.want)
		}
	}
}

// TestFolderOfOthersIsLeft: quickstart empties only what it made.
func TestFolderOfOthersIsLeft(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "quickstart")
	if err := fresh(dir); err != nil {
		t.Fatal(err)
	}
	put(t, dir, map[string]string{"old": ""})
	if err := fresh(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "old")); err == nil {
		t.Error("the last quickstart's files are still there")
	}
	other := t.TempDir()
	put(t, other, map[string]string{"thesis.tex": ""})
	if err := fresh(other); fault.CodeOf(err) != fault.Usage {
		t.Errorf("a folder of someone else's was emptied: %v", err)
	}
	if _, err := os.Stat(filepath.Join(other, "thesis.tex")); err != nil {
		t.Error(err)
	}
}
