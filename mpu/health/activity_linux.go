package health

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// activity tells whether this process has computed, moved bytes of files, or waits
// for a disk or a processor.
type activity struct {
	at      time.Time
	spent   time.Duration
	bytes   int64
	threads demand
}

// Less than this a second is what a process needs that waits.
const (
	idleShare = 0.03    // of a core
	idleBytes = 1 << 18 // a second
)

// busy tells it of the time since the last call. spins: a processor that was used, or
// wanted, may be that of threads that wait for a device, and says nothing.
func (a *activity) busy(spins bool) bool {
	now, spent, bytes := time.Now(), spentTime(), fileBytes()
	took := now.Sub(a.at)
	computed := (spent - a.spent).Seconds() > idleShare*took.Seconds()
	moved := float64(bytes-a.bytes) > idleBytes*took.Seconds()
	a.at, a.spent, a.bytes = now, spent, bytes
	starved := a.threads.starved()
	return moved || diskWait() || !spins && (computed || starved)
}

// spentTime is the processor time of this process so far.
func spentTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// fileBytes is what this process has read from and written to disks.
func fileBytes() (n int64) {
	text, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return 0 // not told here
	}
	for _, line := range strings.Split(string(text), "\n") {
		name, value, _ := strings.Cut(line, ": ")
		if name == "read_bytes" || name == "write_bytes" {
			v, err := strconv.ParseInt(value, 10, 64)
			if err == nil {
				n += v
			}
		}
	}
	return n
}

// diskWait tells whether a thread is in the kernel's uninterruptible wait, as for a
// disk or a file server.
func diskWait() bool {
	threads, err := filepath.Glob("/proc/self/task/*/stat")
	if err != nil {
		return false
	}
	for _, path := range threads {
		text, err := os.ReadFile(path)
		if at := strings.LastIndexByte(string(text), ')'); err == nil && at >= 0 && strings.HasPrefix(string(text[at+1:]), " D") {
			return true
		}
	}
	return false
}
