//go:build unix

package system

import (
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// StopSignals are signals other than SIGTERM, SIGINT and SIGHUP that ask a run to save and end.
var StopSignals = []os.Signal{syscall.SIGUSR1}

// OwnGroup has a command start in a process group of its own.
func OwnGroup(attr *syscall.SysProcAttr) *syscall.SysProcAttr {
	attr.Setpgid = true
	return attr
}

// SignalGroup sends a signal to the process group that a process of OwnGroup leads.
func SignalGroup(leader int, s syscall.Signal) error { return syscall.Kill(-leader, s) }

// SignalSelf sends a signal to this process.
func SignalSelf(s syscall.Signal) error { return syscall.Kill(os.Getpid(), s) }

// Suspend stops this process until SIGCONT.
func Suspend() error { return SignalSelf(syscall.SIGSTOP) }

// SignalName is a signal's constant, as SIGTERM; "" where it has none.
func SignalName(s syscall.Signal) string { return unix.SignalName(s) }

// OpenFiles is the number of files that this process may have open; not ok: not known.
func OpenFiles() (most uint64, ok bool) { return limit(unix.RLIMIT_NOFILE) }

// AddressSpace is the number of bytes that this process may map; not ok: not known.
func AddressSpace() (most uint64, ok bool) { return limit(unix.RLIMIT_AS) }

func limit(resource int) (uint64, bool) {
	var l unix.Rlimit
	err := unix.Getrlimit(resource, &l)
	return l.Cur, err == nil
}

// Usage is what this process has used: processor time of all threads, and how often
// the scheduler took a processor from one. Zeros where the system does not report it.
func Usage() (processor time.Duration, preempted int64) {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0, 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), int64(u.Nivcsw)
}

// PeakMemory is the most memory that an ended process had resident, in bytes; 0: not known.
func PeakMemory(p *os.ProcessState) int64 {
	u, ok := p.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	if runtime.GOOS == "darwin" || runtime.GOOS == "ios" {
		return int64(u.Maxrss) // bytes there, KiB on the others
	}
	return int64(u.Maxrss) << 10
}
