package native

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"monotron/internal/exitcode"
)

var errKilled = errors.New("killed")

// stops lets n steps of a save pass and then nothing more, as a kill would; a
// write that is hit leaves the start of the data. It counts the steps.
type stops struct {
	after, seen int
	noSwap      bool // the file system cannot exchange names
}

func (s *stops) fail(op, path string) error {
	if s.noSwap && op == "exchange" {
		return errors.ErrUnsupported
	}
	if s.seen++; s.seen <= s.after {
		return nil
	}
	return fmt.Errorf("%s %s: %w", op, path, errKilled)
}

// A save killed before any of its steps: the folder then loads as the old state
// or the new one, complete; the next save works and clears what was left. Cases:
// a new iteration, the same one again (also where names cannot be exchanged),
// and with pruning.
func TestKilledAtEveryStep(t *testing.T) {
	for name, c := range map[string]struct {
		before []int64
		save   int64
		o      SaveOptions
		noSwap bool
	}{
		"first":          {nil, 5, SaveOptions{}, false},
		"next":           {[]int64{5}, 10, SaveOptions{}, false},
		"again":          {[]int64{5, 10}, 10, SaveOptions{}, false},
		"again, no swap": {[]int64{5, 10}, 10, SaveOptions{}, true},
		"only, no swap":  {[]int64{10}, 10, SaveOptions{}, true},
		"pruning":        {[]int64{5, 10, 15}, 20, SaveOptions{KeepLast: 2}, false},
		"keep just one":  {[]int64{5}, 10, SaveOptions{KeepLast: 1}, false},
	} {
		t.Run(name, func(t *testing.T) {
			for after := 0; ; after++ {
				if killedAfter(t, c.before, c.save, c.o, c.noSwap, after) {
					if after < 8 {
						t.Errorf("a save of only %d steps", after)
					}
					return
				}
			}
		})
	}
}

// killedAfter runs one kill; true when the save ended before it.
func killedAfter(t *testing.T, before []int64, step int64, o SaveOptions, noSwap bool, after int) (survived bool) {
	t.Helper()
	dir := fastDir(t)
	for _, b := range before {
		mustSave(t, dir, b, SaveOptions{})
	}
	o.Tag = "1-dead"
	s := &stops{after: after, noSwap: noSwap}
	o.fail = s.fail
	_, err := save(t, dir, step, o)
	if survived = err == nil; !survived && !errors.Is(err, errKilled) {
		t.Fatalf("after %d steps: %v", after, err)
	}
	got, _, err := load(t, dir, -1)
	switch {
	case len(before) == 0 && errors.Is(err, ErrNone) && !survived:
	case err != nil:
		t.Fatalf("after %d steps nothing loads: %v; folder: %v", after, err, names(t, dir))
	case got != step && (survived || got != before[len(before)-1]):
		t.Fatalf("after %d steps iteration %d is loaded", after, got)
	}
	o.Tag, o.fail = "2-alive", nil
	mustSave(t, dir, step+100, o)
	if got, _, err := load(t, dir, -1); got != step+100 || err != nil || len(leftovers(t, dir)) > 0 {
		t.Fatalf("after %d steps and a new save: %d, %v, left %v", after, got, err, leftovers(t, dir))
	}
	return survived
}

const savingProcess = "MONOTRON_TEST_SAVE_DIR"

// TestSavingProcess is what TestKilledProcess starts: it saves again and again,
// every second iteration twice.
func TestSavingProcess(t *testing.T) {
	dir := os.Getenv(savingProcess)
	if dir == "" {
		t.Skip("a part of TestKilledProcess")
	}
	first := int64(0)
	if n, err := Latest(dir); err == nil {
		first = n
	}
	for i := 2 * first; ; i++ {
		mustSave(t, dir, i/2+1, SaveOptions{KeepLast: 2})
	}
}

// A process killed by SIGKILL at random moments of saving, 20 times over: each
// time what loads is complete, and the iterations never decrease.
func TestKilledProcess(t *testing.T) {
	dir := fastDir(t)
	last := int64(0)
	r := rand.New(rand.NewPCG(3, 4))
	for round := range 20 {
		child := exec.Command(os.Args[0], "-test.run=^TestSavingProcess$")
		child.Env = append(os.Environ(), savingProcess+"="+dir)
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		for start := time.Now(); time.Since(start) < 30*time.Second; time.Sleep(time.Millisecond) {
			if n, err := Latest(dir); err == nil && n > last+1 { // it is at work
				break
			}
		}
		time.Sleep(time.Duration(r.IntN(5000)) * time.Microsecond)
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = child.Wait() // killed: always an error
		step, report, err := load(t, dir, -1)
		if err != nil || step <= last || len(report.Notes) > 0 {
			t.Fatalf("round %d: loaded %d after %d, %v, %v", round, step, last, report.Notes, err)
		}
		last = step
	}
}

// Any single step that fails (and the process lives): the error names path and
// reason, the old state loads or the new one, and nothing temporary is left.
func TestEveryStepFailing(t *testing.T) {
	for at := 0; ; at++ {
		dir := fastDir(t)
		mustSave(t, dir, 5, SaveOptions{})
		seen, where := 0, ""
		fail := func(op, path string) error {
			if seen++; seen-1 == at {
				where = path
				return unix.ENOSPC
			}
			return nil
		}
		_, err := save(t, dir, 10, SaveOptions{KeepLast: 1, fail: fail})
		if where == "" {
			if err != nil || at < 8 {
				t.Fatalf("%d steps, %v", at, err)
			}
			return
		}
		if exitcode.CodeOf(err) != exitcode.IO || !contains(err.Error(), where) || !errors.Is(err, unix.ENOSPC) {
			t.Fatalf("step %d: %v (exit %d) does not name %s", at, err, exitcode.CodeOf(err), where)
		}
		if got, _, err := load(t, dir, -1); err != nil || got != 5 && got != 10 {
			t.Fatalf("step %d (%s): loaded %d, %v", at, where, got, err)
		}
		left := slices.DeleteFunc(leftovers(t, dir), func(n string) bool { return strings.HasPrefix(n, tmpPrefix+iterName(5)) })
		if len(left) > 0 { // what was being pruned may stay for the next save to remove
			t.Fatalf("step %d (%s): left %v", at, where, left)
		}
	}
}

// A disk too small: refused before anything is written, naming both sizes; a
// disk that fills while writing: the error of the write. Both leave iteration 1.
func TestFullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting a small tmpfs needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=128k"); err != nil {
		t.Skipf("no tmpfs here: %v", err)
	}
	defer func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	}()
	mustSave(t, dir, 1, SaveOptions{})
	ballast := filepath.Join(dir, "ballast")
	overwrite(t, ballast, make([]byte, 80<<10))
	_, err := save(t, dir, 2, SaveOptions{})
	if exitcode.CodeOf(err) != exitcode.IO || !contains(err.Error(), "are free") || !contains(err.Error(), dir) {
		t.Errorf("got %v", err)
	}
	fills := func(op, path string) error {
		if op == "write" && filepath.Base(path) == manifestName {
			return os.WriteFile(ballast, make([]byte, 200<<10), 0o666) // someone else takes the rest
		}
		return nil
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if _, err = save(t, dir, 2, SaveOptions{fail: fills}); !errors.Is(err, unix.ENOSPC) || exitcode.CodeOf(err) != exitcode.IO {
		t.Errorf("got %v", err)
	}
	if step, _, err := load(t, dir, -1); step != 1 || err != nil || len(leftovers(t, dir)) > 0 {
		t.Errorf("loaded %d, %v, left %v", step, err, leftovers(t, dir))
	}
}

// A folder that cannot be written: a file where the folder should be, and (not
// as root, whom nothing stops) a folder without the right to write.
func TestUnwritableFolder(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	overwrite(t, file, nil)
	if _, err := save(t, filepath.Join(file, "x"), 1, SaveOptions{}); exitcode.CodeOf(err) != exitcode.IO || !contains(err.Error(), file) {
		t.Errorf("got %v", err)
	}
	if os.Getuid() == 0 {
		return
	}
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	if _, err := save(t, dir, 1, SaveOptions{}); exitcode.CodeOf(err) != exitcode.IO || !contains(err.Error(), "permission denied") {
		t.Errorf("got %v", err)
	}
}

// One of several ranks fails: every rank gets an error, the old state stays.
func TestOneRankFails(t *testing.T) {
	dir := t.TempDir()
	mustSave(t, dir, 1, SaveOptions{})
	err := together(t, 3, func(rank int, meet func() error) error {
		o := SaveOptions{Rank: rank, World: 3, Meet: meet}
		if rank == 1 {
			o.fail = func(op, _ string) error {
				if op == "write" {
					return unix.EIO
				}
				return nil
			}
		}
		d := newDevice(t)
		_, err := Save(t.Context(), dir, stateAt(2), tensors(t, d, layout{3, rank, rows}, 2, true), d, o)
		if err == nil {
			t.Errorf("rank %d saw nothing", rank)
		}
		return err
	})
	if !errors.Is(err, unix.EIO) {
		t.Errorf("got %v", err)
	}
	if step, _, err := load(t, dir, -1); step != 1 || err != nil {
		t.Errorf("loaded %d, %v", step, err)
	}
}
