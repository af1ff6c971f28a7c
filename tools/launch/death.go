package launch

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"time"

	"monotron/internal/exitcode"
	"monotron/internal/system"
	"monotron/mpu/comm/failure"
	"monotron/mpu/health"
)

// verdict is the one error of an attempt. First comes who has died, then what the run's
// folder holds, then who names itself, then who ended first.
func (o *options) verdict(failures []ended, outOfMemory int) error {
	first := firstOf(failures)
	if first.died() {
		return o.death(first, killsForMemory("/")-outOfMemory)
	}
	if v, err := failure.Read(o.folder); err == nil { // rank 0 knows best
		return v.Err()
	}
	if said := first.said; said != nil && said.Kind != failure.Own && said.Kind != failure.Other { // rank 0 could not keep it
		return o.keep(said)
	}
	return first.error(killsForMemory("/") - outOfMemory)
}

// firstOf is whose failure counts.
func firstOf(failures []ended) *ended {
	for _, counts := range []func(*ended) bool{(*ended).died, (*ended).namesItself} {
		for i := range failures {
			if counts(&failures[i]) {
				return &failures[i]
			}
		}
	}
	return &failures[0]
}

// died: a rank has ended without a word, and not by us. Who was asked to stop and ends
// with the code of it has not died.
func (e *ended) died() bool {
	return e.state != nil && !e.killed && (e.signal() > 0 || (e.said == nil && !e.state.Success() && exitcode.Code(e.state.ExitCode()) != exitcode.Again))
}

func (e *ended) namesItself() bool { return e.said != nil && e.said.By(e.rank) }

// signal is what has ended a rank; 0: it ended by itself.
func (e *ended) signal() syscall.Signal {
	if e.state == nil {
		return 0
	}
	if s := e.state.Sys().(syscall.WaitStatus); s.Signaled() {
		return s.Signal()
	}
	return 0
}

// code is the exit code that a rank's end stands for. Go's runtime ends a program that it
// catches at a crash (a memory fault, an abort, a panic) with 2, which is also our code
// for a wrong flag: without a word of ours it is a crash.
func (e *ended) code() exitcode.Code {
	switch code := exitcode.Code(e.state.ExitCode()); {
	case e.signal() > 0:
		return exitcode.Code(128 + int(e.signal()))
	case code == exitcode.Usage && e.said == nil:
		return exitcode.Internal
	default:
		return code
	}
}

// death is the verdict on a rank that has ended without a word. Its flight record is
// a file that has outlived it: it says what the rank was at.
func (o *options) death(e *ended, memoryKills int) error {
	v := &failure.Verdict{Kind: failure.Death, Rank: e.rank, PID: e.pid, Code: e.code(), Signal: int(e.signal()), Time: time.Now()}
	if verdict, err := failure.Read(o.folder); err == nil {
		v.Ranks, v.Host = verdict.Ranks, verdict.Host
	}
	at := o.lastSeen(v)
	if v.Signal > 0 {
		v.Text = e.signalText(at, memoryKills)
	} else {
		v.Text = fmt.Sprintf("rank %d (process %d) ended with exit code %d and without an error message%s; its output is above", e.rank, e.pid, e.state.ExitCode(), at)
	}
	return o.keep(v)
}

// lastSeen fills in what a rank's flight record says that it was at, and gives it in words.
func (o *options) lastSeen(v *failure.Verdict) string {
	f, err := health.ReadFlight(health.FlightFile(o.folder, v.Rank))
	if err != nil || f.PID != v.PID {
		return ""
	}
	v.Phase, v.Step = f.Phase, f.Step
	n := len(f.Calls)
	if n == 0 {
		return " in " + f.At
	}
	last := &f.Calls[n-1]
	v.LastCall = last.Kept()
	return fmt.Sprintf(" in %s, its last call %s", f.At, last)
}

// keep puts a verdict of the launcher's own into the run's folder.
func (o *options) keep(v *failure.Verdict) error {
	if err := v.Write(o.folder); err != nil {
		return errors.Join(v.Err(), err)
	}
	return v.Err()
}

// signalText says that a signal has ended a rank, and what may be behind it.
func (e *ended) signalText(at string, memoryKills int) string {
	s := e.signal()
	text := fmt.Sprintf("rank %d (process %d) was ended by signal %d (%v)%s", e.rank, e.pid, int(s), s, at)
	if s == syscall.SIGKILL && memoryKills > 0 {
		text += fmt.Sprintf("; probably by the kernel for lack of memory, since the kernel ended %d processes of this control group in the meantime: use fewer ranks on this host, or a smaller --micro-batch-size", memoryKills)
	}
	if peak := system.PeakMemory(e.state); peak > 0 {
		text += fmt.Sprintf("; its peak memory was %d MiB", peak>>20)
	}
	return text
}

// error is what a rank's end means.
func (e *ended) error(memoryKills int) error {
	switch {
	case e.err != nil:
		return e.notStarted()
	case e.signal() > 0: // by us: it was too slow to end
		return exitcode.With(e.code(), errors.New(e.signalText("", memoryKills)))
	case e.said == nil:
		return exitcode.With(e.code(), fmt.Errorf("rank %d (process %d) ended with exit code %d; its output is above", e.rank, e.pid, e.state.ExitCode()))
	}
	return exitcode.With(e.code(), e.said)
}

// notStarted is the error of a rank without a process: of a program that cannot be run,
// or of a machine that has no memory for one more.
func (e *ended) notStarted() error {
	for _, wrong := range []error{fs.ErrNotExist, fs.ErrPermission, syscall.ENOEXEC, syscall.ENOTDIR} {
		if errors.Is(e.err, wrong) {
			return exitcode.Errorf(exitcode.NoInput, "rank %d could not be started: %w", e.rank, e.err)
		}
	}
	return exitcode.Errorf(exitcode.IO, "rank %d could not be started: %w; check ulimit -n, ulimit -u and the memory of this host", e.rank, e.err)
}
