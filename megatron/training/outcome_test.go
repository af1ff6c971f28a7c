package training

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"monotron/internal/exitcode"
	"monotron/megatron/config"
	"monotron/megatron/telemetry"
	"monotron/mpu/comm/failure"
)

// Claim (docs/automation.md): under a launcher the outcome has the launcher's code and message: it replaces what the
// last rank said of its own end and keeps its numbers; where that was killed, the verdict says the step. An outcome
// with the same code, which may list several problems, stays.
func TestSettle(t *testing.T) {
	read := func(path string) (o Outcome) {
		t.Helper()
		text, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(text, &o)
		}
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	killed := (&failure.Verdict{Kind: failure.Death, Rank: 1, Code: 137, Signal: 9, Step: 8, Text: "rank 1 was ended by signal 9"}).Err()
	dir := t.TempDir()
	files := func(name string) *config.Log {
		return &config.Log{Result: filepath.Join(dir, name+".json"), JSONL: filepath.Join(dir, name+".jsonl")}
	}
	settle := func(c *config.Log, err error) error { return NewOutcome().Settle(c, err) }
	// The last rank lost another.
	lost, io := files("lost"), exitcode.Errorf(exitcode.IO, "rank 1: died: its connection was lost")
	o := NewOutcome()
	o.Iteration, o.Target, o.Samples = 7, 100, 28
	_ = o.Write(lost.Result, io)
	about := telemetry.About{Name: "a", Ended: &telemetry.Ended{Iteration: 3, Code: exitcode.IO, Text: io.Error()}}
	if err := about.Write(lost.JSONL); err != nil {
		t.Fatal(err)
	}
	if err := settle(lost, killed); !errors.Is(err, killed) || exitcode.CodeOf(err) != 137 || err.Error() != killed.Error() {
		t.Errorf("%v", err)
	}
	if got := read(lost.Result); got.ExitCode != 137 || got.Reason != "signal" || got.Message != killed.Error() || len(got.Problems) != 1 || got.Problems[0].Code != 137 || got.Iteration != 7 || got.Samples != 28 {
		t.Errorf("%+v", got)
	}
	if got, err := telemetry.ReadAbout(lost.JSONL); err != nil || got.Name != "a" || got.Ended.Code != 137 || got.Ended.Iteration != 8 || got.Ended.Text != killed.Error() {
		t.Errorf("%v, %+v", err, got)
	}
	// It was killed itself.
	gone := files("gone")
	if err := (&telemetry.About{Name: "b"}).Write(gone.JSONL); err != nil {
		t.Fatal(err)
	}
	_ = settle(gone, killed)
	if got := read(gone.Result); got.ExitCode != 137 || got.Iteration != 7 || got.Version != Version || got.Seconds <= 0 {
		t.Errorf("%+v", got)
	}
	if got, err := telemetry.ReadAbout(gone.JSONL); err != nil || got.Ended == nil || got.Ended.Code != 137 {
		t.Errorf("%v, %+v", err, got)
	}
	// The same code; a run that is done; one without a log.
	same := files("same")
	_ = NewOutcome().Write(same.Result, exitcode.With(exitcode.Usage, errors.Join(errors.New("one"), errors.New("two"))))
	before := read(same.Result)
	if err := errors.Join(settle(same, nil), settle(&config.Log{}, nil)); err != nil {
		t.Error(err)
	}
	_ = settle(same, exitcode.Errorf(exitcode.Usage, "rank 0: one"))
	if got := read(same.Result); len(got.Problems) != 2 || got.Message != before.Message {
		t.Errorf("%+v", got)
	}
	if _, err := os.Stat(telemetry.AboutFile(same.JSONL)); err == nil {
		t.Error("a file about a run without one")
	}
}
