package launch

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"monotron/fault"
	"monotron/mpu/comm/watch"
)

// verdict is the one error of an attempt. First comes who was ended by a signal
// that is not ours, then what rank 0 has found out, then who names itself, then who
// ended first.
func (o *options) verdict(failures []ended, outOfMemory int) error {
	first := o.first(failures)
	if first.died() {
		return o.death(first, killsForMemory()-outOfMemory)
	}
	if v, err := watch.ReadVerdict(o.folder); err == nil { // rank 0 knows best
		return v.Err()
	}
	return first.error(killsForMemory() - outOfMemory)
}

// first is whose failure counts.
func (o *options) first(failures []ended) *ended {
	first := failures[0]
	for i := len(failures) - 1; i >= 0; i-- {
		if f := failures[i]; strings.HasPrefix(f.words, fmt.Sprintf("rank %d: ", f.rank)) {
			first = f
		}
	}
	for i := len(failures) - 1; i >= 0; i-- {
		if f := failures[i]; f.died() {
			first = f
		}
	}
	return &first
}

// died: a rank has ended without a word, and not by us.
func (e *ended) died() bool {
	return e.state != nil && !e.killed && (e.signalled() || (e.words == "" && !e.state.Success()))
}

// death is the verdict on a rank that has ended without a word. Its flight record is
// a file that has outlived it: it says what the rank was at.
func (o *options) death(e *ended, memoryKills int) error {
	v := &watch.Verdict{Kind: watch.Death, Rank: e.rank, PID: e.pid, Code: fault.Code(e.state.ExitCode()), Time: time.Now()}
	if e.signalled() {
		v.Signal = int(e.state.Sys().(syscall.WaitStatus).Signal())
		v.Code = fault.Code(128 + v.Signal)
	}
	if told, err := watch.ReadVerdict(o.folder); err == nil {
		v.Ranks, v.Host = told.Ranks, told.Host
	}
	at := ""
	if f, err := watch.ReadFlight(watch.FlightFile(o.folder, e.rank)); err == nil && f.PID == e.pid {
		v.Phase, v.Step, at = f.Phase, f.Step, " in "+f.At
		if n := len(f.Calls); n > 0 {
			v.LastCall = &f.Calls[n-1]
			at += fmt.Sprintf(", its last call %s", v.LastCall)
		}
	}
	if v.Signal > 0 {
		v.Text = e.signalText(at, memoryKills)
	} else {
		v.Text = fmt.Sprintf("rank %d (process %d) ended with exit code %d and without a word%s; what it printed stands above", e.rank, e.pid, e.state.ExitCode(), at)
	}
	if err := v.Write(o.folder); err != nil {
		return errors.Join(v.Err(), err)
	}
	return v.Err()
}

// signalText says that a signal has ended a rank, and what may be behind it.
func (e *ended) signalText(at string, memoryKills int) string {
	s := e.state.Sys().(syscall.WaitStatus).Signal()
	text := fmt.Sprintf("rank %d (process %d) was ended by signal %d (%v)%s", e.rank, e.pid, int(s), s, at)
	if s == syscall.SIGKILL && memoryKills > 0 {
		text += fmt.Sprintf("; the kernel has ended %d processes here for lack of memory: use fewer ranks on this host, or a smaller --micro-batch-size", memoryKills)
	}
	if use, ok := e.state.SysUsage().(*syscall.Rusage); ok && use.Maxrss > 0 {
		text += fmt.Sprintf("; it held %d MiB at most", use.Maxrss>>10)
	}
	return text
}

func (e *ended) signalled() bool {
	return e.state != nil && e.state.Sys().(syscall.WaitStatus).Signaled()
}

// error is what a rank's end means.
func (e *ended) error(memoryKills int) error {
	switch {
	case e.err != nil:
		return fault.Errorf(fault.NoInput, "rank %d could not be started: %w", e.rank, e.err)
	case e.signalled(): // by us: it was too slow to end
		s := e.state.Sys().(syscall.WaitStatus).Signal()
		return fault.With(fault.Code(128+int(s)), errors.New(e.signalText("", memoryKills)))
	case e.words == "":
		return fault.With(fault.Code(e.state.ExitCode()), fmt.Errorf("rank %d (process %d) ended with exit code %d; what it said stands above", e.rank, e.pid, e.state.ExitCode()))
	}
	return fault.With(fault.Code(e.state.ExitCode()), errors.New(e.words))
}
