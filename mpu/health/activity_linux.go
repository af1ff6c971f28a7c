package health

import (
	"os"
	"strconv"
	"strings"
	"time"

	"monotron/internal/system"
)

// activity reports whether this process has computed, moved bytes of files, or waits
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

// busy reports it for the time since the last call. spins: a processor that was used, or
// wanted, may be that of threads that wait for a device, and says nothing.
func (a *activity) busy(spins bool) bool {
	now, bytes := time.Now(), fileBytes()
	spent, _ := system.Usage()
	took := now.Sub(a.at)
	computed := (spent - a.spent).Seconds() > idleShare*took.Seconds()
	moved := float64(bytes-a.bytes) > idleBytes*took.Seconds()
	a.at, a.spent, a.bytes = now, spent, bytes
	starved := a.threads.starved()
	return moved || system.AnyThread(os.Getpid(), 'D') || !spins && (computed || starved)
}

// fileBytes is what this process has read from and written to disks.
func fileBytes() (n int64) {
	text, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return 0 // not available here
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
