package health

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// Claim: a thread that wants a processor is busy though others leave it hardly any,
// and one that wakes for moments is not.
func TestDemand(t *testing.T) {
	start := time.Now()
	before := demand{start, map[string]int64{"/1": 5e9, "/2": 7e9}}
	for name, c := range map[string]struct {
		nano map[string]int64
		want bool
	}{
		"queues all the time": {map[string]int64{"/1": 5e9, "/2": 7e9 + 99e7}, true},
		"wakes for moments":   {map[string]int64{"/1": 5e9 + 3e8, "/2": 7e9 + 3e8}, false},
		"is new":              {map[string]int64{"/3": 99e9}, false},
	} {
		after := demand{start.Add(time.Second), c.nano}
		if after.since(before) != c.want {
			t.Errorf("%s: starved is %v", name, !c.want)
		}
	}
}

// Claim: the kernel's counts show a thread that computes, alone or with others.
func TestDemandOfAThread(t *testing.T) {
	var stop atomic.Bool
	defer stop.Store(true)
	go func() {
		runtime.LockOSThread()
		for !stop.Load() {
		}
	}()
	var d demand
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		d.starved()
		time.Sleep(200 * time.Millisecond)
		if len(d.nano) == 0 {
			t.Skip("this kernel does not count: no schedstat")
		}
		if d.starved() {
			return
		}
	}
	t.Error("a thread that computes without end is not seen")
}
