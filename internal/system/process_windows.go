package system

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/windows"
)

// StopSignals are signals other than SIGTERM, SIGINT and SIGHUP that ask a run to save
// and end: none on Windows.
var StopSignals []os.Signal

// OwnGroup has a command start in a process group of its own: Ctrl-C does not reach it.
func OwnGroup(attr *syscall.SysProcAttr) *syscall.SysProcAttr {
	attr.CreationFlags |= windows.CREATE_NEW_PROCESS_GROUP
	return attr
}

// SignalGroup ends the process that leads a group of OwnGroup, for SIGKILL. Processes
// that it has started continue, and other signals are not delivered.
func SignalGroup(leader int, s syscall.Signal) error {
	if s != syscall.SIGKILL {
		return unsupported(s)
	}
	p, err := os.FindProcess(leader)
	if err != nil {
		return err
	}
	defer p.Release()
	return p.Kill()
}

// SignalSelf ends this process, whatever the signal.
func SignalSelf(s syscall.Signal) error {
	os.Exit(128 + int(s))
	return nil
}

// Suspend is not supported on Windows.
func Suspend() error { return fmt.Errorf("suspending a process: %w on Windows", errors.ErrUnsupported) }

func unsupported(s syscall.Signal) error {
	return fmt.Errorf("signal %d (%v): %w on Windows; only SIGKILL is supported", int(s), s, errors.ErrUnsupported)
}

// SignalName is a signal's constant, as SIGTERM; "" where it has none.
func SignalName(s syscall.Signal) string {
	return map[syscall.Signal]string{syscall.SIGHUP: "SIGHUP", syscall.SIGINT: "SIGINT", syscall.SIGKILL: "SIGKILL",
		syscall.SIGTERM: "SIGTERM"}[s]
}

// OpenFiles is the number of files that this process may have open; not ok: not known.
func OpenFiles() (most uint64, ok bool) { return 0, false }

// AddressSpace is the number of bytes that this process may map; not ok: not known.
func AddressSpace() (most uint64, ok bool) { return 0, false }

// Usage is the processor time of all threads of this process; Windows does not report
// how often the scheduler took a processor from one.
func Usage() (processor time.Duration, preempted int64) {
	var begun, ended, kernel, user windows.Filetime
	if windows.GetProcessTimes(windows.CurrentProcess(), &begun, &ended, &kernel, &user) != nil {
		return 0, 0
	}
	ticks := func(t windows.Filetime) time.Duration { // a length in units of 100 ns, not a date
		return time.Duration(int64(t.HighDateTime)<<32|int64(t.LowDateTime)) * 100
	}
	return ticks(kernel) + ticks(user), 0
}

// PeakMemory is the most memory that an ended process had resident, in bytes; 0: not known.
func PeakMemory(*os.ProcessState) int64 { return 0 }
