package rendezvous

import (
	"errors"
	"net"
	"testing"
	"time"

	"monotron/internal/cgroup"
)

// herd is so many ranks that start at once.
func herd(t *testing.T, ranks, unproved int) {
	t.Helper()
	addr := freeAddr(t)
	var configs []Config
	for rank := range ranks {
		c := config(addr, rank, ranks)
		// One machine does the work of all ranks: however busy it is, none is lost.
		c.Silence, c.Timeout, c.unproved = 10*time.Minute, 10*time.Minute, unproved
		configs = append(configs, c)
	}
	began := time.Now()
	sessions, errs := joinAll(configs, 0)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d ranks met within %v", ranks, time.Since(began).Round(time.Millisecond))
	closeAll(t, sessions)
}

// Claim (docs/launch.md): ranks that start at once meet, although far fewer unproved connections
// are taken than come, and strangers have all of these when the first rank calls.
func TestHerdMeets(t *testing.T) {
	herd(t, 300, 8)
	if n := cgroup.Files(8, mostUnproved); n >= 1000 {
		herd(t, 3000, 0) // by the files that may be open
	}
}

// Claim: strangers that hold all unproved connections, and take each that is closed again, do not
// keep ranks out, and no more of their connections are open than the bound.
func TestStrangersDoNotKeepRanksOut(t *testing.T) {
	addr, done := freeAddr(t), make(chan struct{})
	for range 40 {
		go func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if c, err := net.Dial("tcp", addr); err == nil {
					_, _ = c.Read(make([]byte, 1)) // until it is closed
					c.Close()
				}
				time.Sleep(20 * time.Millisecond)
			}
		}()
	}
	defer close(done)
	var configs []Config
	for rank := range 20 {
		c := config(addr, rank, 20)
		c.unproved = 16
		configs = append(configs, c)
	}
	sessions, errs := joinAll(configs, time.Millisecond)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	u := sessions[0].server.callers
	u.mu.Lock()
	if len(u.conns) > u.most {
		t.Errorf("%d unproved connections, at most %d", len(u.conns), u.most)
	}
	u.mu.Unlock()
	closeAll(t, sessions)
}

// Claim: rank 0 that is done waits for the others as long as they take, and all end well.
func TestFirstRankDoneEarly(t *testing.T) {
	addr := freeAddr(t)
	var configs []Config
	for rank := range 3 {
		c := config(addr, rank, 3)
		c.Silence = 1500 * time.Millisecond
		configs = append(configs, c)
	}
	sessions, errs := joinAll(configs, 0)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	first := make(chan error, 1)
	go func() { first <- sessions[0].Close() }()
	time.Sleep(4 * time.Second) // longer than a silence
	closeAll(t, sessions[1:])
	if err := <-first; err != nil {
		t.Errorf("rank 0, done 4 s before the others: %v", err)
	}
}
