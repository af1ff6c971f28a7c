package telemetry

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"monotron/internal/exitcode"
)

// flaky is a sink that fails at the steps it lists.
type flaky struct {
	fails map[int64]error
	took  []int64
}

func (f *flaky) Take(s *Step) error {
	if err := f.fails[int64(s.Iteration)]; err != nil {
		return err
	}
	f.took = append(f.took, int64(s.Iteration))
	return nil
}
func (f *flaky) Close() error { return exitcode.Errorf(exitcode.IO, "not synced") }

// Claim: a log that fails is one warning for each stretch of failures, gets the later steps
// again, and closing it gives no error; an error that is not of reading or writing stays one.
func TestLogThatFailsEndsNoRun(t *testing.T) {
	full := exitcode.Errorf(exitcode.IO, "disk full")
	var said []string
	f := &flaky{fails: map[int64]error{2: full, 3: full, 5: full}}
	sink := Lasting("--log", f, func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) })
	step := func(n int) error { s := &Step{}; s.Iteration = n; return sink.Take(s) }
	for n := 1; n <= 5; n++ {
		if err := step(n); err != nil {
			t.Fatal(n, err)
		}
	}
	if err := sink.Close(); err != nil {
		t.Error(err)
	}
	if fmt.Sprint(f.took) != "[1 4]" || len(said) != 4 || !strings.Contains(said[1], "2 entries before iteration 4") || !strings.Contains(said[3], "1 entries at the end") {
		t.Errorf("took %v, said %q", f.took, said)
	}
	f.fails[6] = exitcode.Errorf(exitcode.Internal, "a mistake")
	if err := step(6); exitcode.CodeOf(err) != exitcode.Internal {
		t.Error(err)
	}
}

// Claim: a disk that is full for a while costs --log-jsonl the entries of that while and
// no others, though a line was written in part.
func TestJSONLOnAFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=8k"); err != nil {
		t.Skipf("no tmpfs here: %v", err)
	}
	defer unix.Unmount(dir, 0)
	path, ballast := filepath.Join(dir, "x.jsonl"), filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 4096), 0o666); err != nil {
		t.Fatal(err)
	}
	j, err := OpenJSONL(path)
	if err != nil {
		t.Fatal(err)
	}
	failed := 0
	for n := 1; n <= 100; n++ {
		s := &Step{}
		s.Iteration = n
		if err := j.Take(s); err != nil {
			failed++
		}
		if n == 50 {
			if err := os.Remove(ballast); err != nil {
				t.Fatal(err)
			}
		}
		if n == 60 {
			break
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	got, err := ReadJSONL(file)
	if err != nil || failed == 0 || len(got) != 60-failed || got[len(got)-1].Iteration != 60 {
		t.Errorf("%d of 60 failed, %d read, %v", failed, len(got), err)
	}
}
