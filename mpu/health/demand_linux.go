package health

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// starvedShare of the time a thread would compute whom other programs leave no
// processor. One that waits for a peer wakes for moments, and queues for moments.
const starvedShare = 0.8

// demand is the time that each thread has computed or queued for a processor so far,
// by its folder in /proc.
type demand struct {
	at   time.Time
	nano map[string]int64
}

// starved reports whether a thread has wanted a processor most of the time since the
// last call. The kernel counts both (schedstat, Linux's Documentation/scheduler).
func (d *demand) starved() bool {
	before := *d
	*d = demand{time.Now(), map[string]int64{}}
	folders, err := filepath.Glob("/proc/self/task/*")
	if err != nil {
		return false
	}
	for _, folder := range folders {
		text, err := os.ReadFile(filepath.Join(folder, "schedstat"))
		if err != nil {
			continue // the thread has ended
		}
		var ran, queued int64
		if _, err := fmt.Sscan(string(text), &ran, &queued); err == nil {
			d.nano[folder] = ran + queued
		}
	}
	return d.since(before)
}

func (d *demand) since(before demand) bool {
	least := int64(starvedShare * float64(d.at.Sub(before.at)))
	for folder, now := range d.nano {
		if then, known := before.nano[folder]; known && now-then > least {
			return true
		}
	}
	return false
}
