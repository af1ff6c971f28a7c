package launch

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"monotron/fault"
)

// verdict is the one error of an attempt. First comes who was ended by a signal
// that is not ours, then who names itself, then who ended first.
func verdict(failures []ended, outOfMemory int) error {
	first := failures[0]
	for i := len(failures) - 1; i >= 0; i-- {
		if f := failures[i]; strings.HasPrefix(f.words, fmt.Sprintf("rank %d: ", f.rank)) {
			first = f
		}
	}
	for i := len(failures) - 1; i >= 0; i-- {
		if f := failures[i]; f.signalled() && !f.killed {
			first = f
		}
	}
	return first.error(failures, killsForMemory()-outOfMemory)
}

func (e *ended) signalled() bool {
	return e.state != nil && e.state.Sys().(syscall.WaitStatus).Signaled()
}

// error is what a rank's end means.
func (e *ended) error(failures []ended, memoryKills int) error {
	switch {
	case e.err != nil:
		return fault.Errorf(fault.NoInput, "rank %d could not be started: %w", e.rank, e.err)
	case e.signalled():
		s := e.state.Sys().(syscall.WaitStatus).Signal()
		text := fmt.Sprintf("rank %d (process %d) was ended by signal %d (%v)%s", e.rank, e.pid, int(s), s, e.was(failures))
		if s == syscall.SIGKILL && memoryKills > 0 {
			text += fmt.Sprintf("; the kernel has ended %d processes here for lack of memory: use fewer ranks on this host, or a smaller --micro-batch-size", memoryKills)
		}
		if use, ok := e.state.SysUsage().(*syscall.Rusage); ok && use.Maxrss > 0 {
			text += fmt.Sprintf("; it held %d MiB at most", use.Maxrss>>10)
		}
		return fault.With(fault.Code(128+int(s)), errors.New(text))
	case e.words == "":
		return fault.With(fault.Code(e.state.ExitCode()), fmt.Errorf("rank %d (process %d) ended with exit code %d; what it said stands above", e.rank, e.pid, e.state.ExitCode()))
	}
	return fault.With(fault.Code(e.state.ExitCode()), errors.New(e.words))
}

var wasIn = regexp.MustCompile(`^rank (\d+) \(process .*; it was in (.*)$`)

// was is what the others know of what a dead rank was at.
func (e *ended) was(failures []ended) string {
	for _, f := range failures {
		if m := wasIn.FindStringSubmatch(f.words); m != nil && m[1] == strconv.Itoa(e.rank) {
			return " in " + m[2]
		}
	}
	return ""
}

// killsForMemory is how often the kernel has ended a process of this control group
// for lack of memory.
func killsForMemory() int {
	text, err := os.ReadFile("/sys/fs/cgroup/memory.events")
	if err != nil {
		return 0 // not told here
	}
	for _, line := range strings.Split(string(text), "\n") {
		if count, ok := strings.CutPrefix(line, "oom_kill "); ok {
			n, _ := strconv.Atoi(strings.TrimSpace(count)) // 0: not told
			return n
		}
	}
	return 0
}
