package launch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"monotron/internal/exitcode"
	"monotron/mpu/comm/failure"
)

// fakeProcess is an entry of a /proc.
func fakeProcess(t *testing.T, root string, pid int, environment, line, cwd, state string) {
	t.Helper()
	folder := filepath.Join(root, fmt.Sprint(pid))
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"environ": environment, "cmdline": line, "stat": fmt.Sprintf("%d (monotron) %s 1 1", pid, state)} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(strings.ReplaceAll(text, " ", map[bool]string{true: " ", false: "\x00"}[name == "stat"])), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(cwd, filepath.Join(folder, "cwd")); err != nil {
		t.Fatal(err)
	}
}

// Claim (docs/failures.md): ranks that a dead launcher of the same command in the same folder has
// left are ended, and no others.
func TestStale(t *testing.T) {
	root := t.TempDir()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	const line = "/opt/monotron pretrain_gpt --save ck"
	fakeProcess(t, root, 10, "PATH=/bin", "monotron launch -- pretrain_gpt --save ck", here, "S")
	fakeProcess(t, root, 11, "RANK=0 MONOTRON_LAUNCHER=10", line, here, "R")                       // its launcher lives
	fakeProcess(t, root, 20, "PATH=/bin", "", here, "Z")                                           // a launcher that was killed
	fakeProcess(t, root, 21, "RANK=0 MONOTRON_LAUNCHER=20", line, here, "D")                       // stale
	fakeProcess(t, root, 22, "RANK=1 MONOTRON_LAUNCHER=99", line+" --resume-from-save", here, "R") // stale, after a restart
	fakeProcess(t, root, 23, "RANK=2 MONOTRON_LAUNCHER=99", line, here, "Z")                       // has ended
	fakeProcess(t, root, 24, "RANK=0 MONOTRON_LAUNCHER=99", line, "/elsewhere", "R")               // another run
	fakeProcess(t, root, 25, "RANK=0 MONOTRON_LAUNCHER=99", "/opt/monotron pretrain_gpt --save other", here, "R")
	fakeProcess(t, root, 26, "RANK=0", line, here, "R") // another launcher's
	o := &options{words: []string{"pretrain_gpt", "--save", "ck"}}
	got := o.stale(root)
	if slices.Sort(got); !slices.Equal(got, []int{21, 22}) {
		t.Errorf("stale are %v", got)
	}
}

// Claim: the starts since the newest checkpoint count, and the steps in which they ended are named.
func TestTries(t *testing.T) {
	in := func(step int64) error {
		return (&failure.Verdict{Kind: failure.Own, Code: exitcode.Internal, Step: step, Text: "x"}).Err()
	}
	tr := tries{newest: -1}
	for _, c := range []struct {
		newest int64
		err    error
		futile int
		where  string
	}{
		{-1, errors.New("no step"), 1, "before their first step"}, {-1, in(3), 2, "in step 3"}, {4, in(7), 1, "in step 7"}, {4, in(7), 2, "in step 7"},
		{4, in(6), 3, "in steps 6, 7"}, {6, in(8), 1, "in step 8"},
	} {
		if tr.failed(c.newest, c.err); tr.futile != c.futile || tr.where() != c.where {
			t.Errorf("%+v: %d futile, %q", c, tr.futile, tr.where())
		}
	}
}

// Claim (docs/failures.md): a folder of checkpoints that cannot be written is found before a restart.
func TestCheckStorage(t *testing.T) {
	folder := t.TempDir()
	o := &options{saves: folder, staged: folder}
	if err := o.checkStorage(); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(folder); len(left) > 0 {
		t.Errorf("it leaves %v", left)
	}
	o.staged = filepath.Join(folder, "not", "yet")
	if err := o.checkStorage(); err != nil {
		t.Errorf("a folder that is not there yet: %v", err)
	}
	o.staged = filepath.Join(folder, "file")
	if err := os.WriteFile(o.staged, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := o.checkStorage(); exitcode.CodeOf(err) != exitcode.IO || !strings.Contains(err.Error(), "are not restarted") {
		t.Errorf("a file: %v", err)
	}
}
