package launch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"monotron/internal/exitcode"
	"monotron/mpu/comm/failure"
)

// endOf is how a shell's command ends as rank 1.
func endOf(t *testing.T, command string, said *failure.Verdict) ended {
	t.Helper()
	cmd := exec.Command("sh", "-c", command)
	_ = cmd.Run() // the state says it
	return ended{rank: 1, pid: cmd.Process.Pid, state: cmd.ProcessState, said: said}
}

// Claim (docs/failures.md, docs/exit-codes.md): a rank that ends without a word has died,
// whatever its exit code: a signal is 128 + its number, Go's own code of a crash is 70,
// another is the rank's; one that has said why ends as it says.
func TestEnds(t *testing.T) {
	usage := failure.Of(-1, exitcode.Errorf(exitcode.Usage, "a wrong flag"))
	for _, test := range []struct {
		command string
		said    *failure.Verdict
		died    bool
		code    exitcode.Code
		again   bool
	}{
		{"kill -SEGV $$", nil, true, 139, true},
		{"kill -ABRT $$", nil, true, 134, true},
		{"kill -KILL $$", nil, true, 137, true},
		{"exit 2", nil, true, exitcode.Internal, true}, // Go's runtime, after a crash
		{"exit 9", nil, true, 9, true},
		{"exit 75", nil, false, exitcode.Again, false}, // asked to stop during its setup
		{"exit 2", usage, false, exitcode.Usage, false},
	} {
		o := &options{folder: t.TempDir()}
		e := endOf(t, test.command, test.said)
		err := o.verdict([]ended{e}, 0)
		if e.died() != test.died || exitcode.CodeOf(err) != test.code || again(err) != test.again {
			t.Errorf("%s: died %v, code %d, again %v: %v", test.command, e.died(), exitcode.CodeOf(err), again(err), err)
		}
		if v, err := failure.Read(o.folder); test.died && (err != nil || v.Kind != failure.Death || v.Rank != 1 || v.Code != test.code) {
			t.Errorf("%s: verdict %+v, %v", test.command, v, err)
		}
	}
}

// Claim: of several failures that one counts whose rank names itself, before those that
// another's has ended, and a death before all.
func TestFirst(t *testing.T) {
	other := func(rank int) ended { return ended{rank: rank, said: &failure.Verdict{Kind: failure.Own, Rank: 2}} }
	own := ended{rank: 2, said: &failure.Verdict{Kind: failure.Own, Rank: 2}}
	onOtherHost := ended{rank: 3, said: &failure.Verdict{Kind: failure.Other, Rank: 3}}
	if f := firstOf([]ended{onOtherHost, other(0), own}); f.rank != 2 {
		t.Errorf("rank %d", f.rank)
	}
	dead := endOf(t, "exit 3", nil)
	if f := firstOf([]ended{onOtherHost, own, dead}); f.rank != 1 {
		t.Errorf("rank %d", f.rank)
	}
	if f := firstOf([]ended{onOtherHost, other(0)}); f.rank != 3 {
		t.Errorf("rank %d", f.rank)
	}
}

// Claim (docs/exit-codes.md): a rank that could not be started for lack of something that
// the machine may have later is I/O trouble, a program that cannot be run missing input.
func TestNotStarted(t *testing.T) {
	for err, code := range map[error]exitcode.Code{syscall.EMFILE: exitcode.IO, syscall.EAGAIN: exitcode.IO, syscall.ENOMEM: exitcode.IO, fs.ErrNotExist: exitcode.NoInput, syscall.EACCES: exitcode.NoInput} {
		e := ended{rank: 4, err: fmt.Errorf("fork/exec: %w", err)}
		if got := e.error(0); exitcode.CodeOf(got) != code || !strings.Contains(got.Error(), "rank 4") {
			t.Errorf("%v: code %d, %v", err, exitcode.CodeOf(got), got)
		}
	}
}

// full is a device without space.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// Claim (docs/launch.md): why a program ends is taken from its line of fields, and what it
// prints after that is not passed on; a line that only resembles one is.
func TestLastWords(t *testing.T) {
	var errs bytes.Buffer
	l := newConsole(io.Discard, &errs, "stderr").of(3, true)
	fmt.Fprintln(l, "ordinary")
	fmt.Fprintln(l, "\x1everdict {")
	failure.Tell(l, exitcode.With(exitcode.IO, errors.Join(exitcode.Errorf(exitcode.BadData, "one"), errors.New("two\nlines"))))
	fmt.Fprintln(l, "monotron: one")
	said := l.close()
	if said == nil || said.Code != exitcode.IO || said.Kind != failure.Own || said.Text != "one\ntwo\nlines" {
		t.Errorf("%+v", said)
	}
	if errs.String() != "[3] ordinary\n[3] \x1everdict {\n" {
		t.Errorf("%q", errs.String())
	}
}

// Claim (docs/launch.md): a log that cannot be written ends the run with 74, and is reported
// once; output that nobody reads is not an error of that kind.
func TestLogLost(t *testing.T) {
	c := newConsole(full{}, io.Discard, "stderr")
	l := c.of(0, false)
	fmt.Fprint(l, "one\ntwo\n")
	select {
	case <-c.full:
	default:
		t.Error("nobody is told")
	}
	if err := c.err(); exitcode.CodeOf(err) != exitcode.IO || !errors.Is(err, syscall.ENOSPC) {
		t.Error(err)
	}
	if c := newConsole(io.Discard, full{}, "stderr"); c.err() != nil {
		t.Error(c.err())
	} else if fmt.Fprintln(c.of(0, true), "a note"); c.err() != nil {
		t.Error("a note that is lost ends no run")
	}
}

// Claim (docs/failures.md): ranks that are stopped are judged by the launcher, where no
// rank can; not those that continue meanwhile, nor when the launcher was stopped itself.
func TestStopped(t *testing.T) {
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }() // it may be dead already
	p := &process{rank: 5, cmd: cmd}
	a := &attemptRun{options: &options{folder: t.TempDir(), local: 8}, ranks: []*process{p}, console: newConsole(io.Discard, io.Discard, "none")}
	now := time.Now()
	tick := func(seconds int) {
		for range seconds {
			now = now.Add(time.Second)
			a.findStopped(now)
		}
	}
	send := func(s syscall.Signal, want bool) {
		t.Helper()
		if err := cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		for end := now.Add(time.Minute); stopped(cmd.Process.Pid) != want; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Skip("this system does not show which processes are stopped")
			}
		}
	}
	tick(40)
	send(syscall.SIGSTOP, true)
	tick(15)
	send(syscall.SIGCONT, false)
	tick(1)
	send(syscall.SIGSTOP, true)
	tick(15)
	now = now.Add(time.Minute) // the launcher was stopped
	tick(15)
	if p.killed {
		t.Error("a rank was judged too early")
	}
	tick(15)
	v, err := failure.Read(a.folder)
	if err != nil || !p.killed || v.Kind != failure.Silence || v.Rank != 5 || v.Code != exitcode.IO || a.limit == nil {
		t.Errorf("killed %v, %+v, %v", p.killed, v, err)
	}
}

// Claim: a rank that had ended by itself when the others were killed has died: its own exit code counts.
func TestEndedBeforeTheKill(t *testing.T) {
	for command, died := range map[string]bool{"exit 9": true, "kill -KILL $$": false} {
		a := &attemptRun{options: &options{folder: t.TempDir(), grace: time.Minute}, ranks: []*process{{rank: 1, killed: true}}}
		e := endOf(t, command, nil)
		a.over(&e)
		if got := a.failures[0].died(); got != died {
			t.Errorf("%s: died %t, want %t", command, got, died)
		}
	}
}
