package launch

import (
	"io"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"monotron/mpu/bootstrap/rendezvous"
)

// hosts are the gatherings of a run on so many hosts and one spare host.
func hosts(t *testing.T, wanted int) []*gathering {
	t.Helper()
	t.Setenv("MONOTRON_SECRET", strings.Repeat("0123456789abcdef", 2))
	line := readLine([]string{"pretrain_gpt"}, wanted)
	addr := "127.0.0.1:" + strconv.Itoa(rendezvous.AnyPort())
	var all []*gathering
	for number := range wanted + 1 {
		o := &options{local: 1, wanted: wanted, spares: 1, all: wanted + 1, number0: number, given: addr, leastNodes: 1,
			hostWait: time.Minute, restartsAtAll: true, line: line}
		g, err := o.newGathering()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(g.close)
		all = append(all, g)
	}
	return all
}

// gatherAll lets these hosts meet, and requires that the last one is a spare.
func gatherAll(t *testing.T, all []*gathering) {
	t.Helper()
	var wg sync.WaitGroup
	for _, g := range all {
		wg.Go(func() {
			switch spare, err := g.gather(t.Context(), io.Discard); {
			case err != nil:
				t.Errorf("host %d: %v", g.number0, err)
			case spare != (g.number0 == len(all)-1):
				t.Errorf("host %d: spare is %t", g.number0, spare)
			}
		})
	}
	wg.Wait()
}

// Claim: a spare host that checks itself meets the others, is not chosen, and hears the end of the run.
func TestSpareHearsWhileItChecks(t *testing.T) {
	all := hosts(t, 2)
	gatherAll(t, all)
	spare := all[2]
	spare.check = &spareCheck{done: make(chan struct{}), failed: make(chan struct{})}
	// A rank fails: all meet again.
	all[1].leave()
	if over, err := spare.standby(t.Context(), io.Discard); over || err != nil {
		t.Fatalf("at the restart: over %t, %v", over, err)
	}
	gatherAll(t, all)
	// The run ends.
	all[0].over(nil)
	var said strings.Builder
	if over, err := spare.standby(t.Context(), &said); !over || err != nil || !strings.Contains(said.String(), "the run has ended") {
		t.Errorf("at the end: over %t, %v, %q", over, err, said.String())
	}
}

// Claim: a lost host is not replaced by a spare one before this has passed its check, and is after it.
func TestSpareIsChosenAfterItsCheck(t *testing.T) {
	all := hosts(t, 2)
	gatherAll(t, all)
	spare := all[2]
	spare.check = &spareCheck{done: make(chan struct{}), failed: make(chan struct{})}
	all[1].close()
	var wg sync.WaitGroup
	met := make(chan struct{})
	for _, g := range []*gathering{all[0], spare} {
		wg.Go(func() {
			if isSpare, err := g.gather(t.Context(), io.Discard); isSpare || err != nil {
				t.Errorf("host %d: spare %t, %v", g.number0, isSpare, err)
			}
		})
	}
	go func() {
		wg.Wait()
		close(met)
	}()
	select {
	case <-met:
		t.Fatal("the hosts met before the spare one had passed its check")
	case <-time.After(2 * time.Second):
	}
	close(spare.check.done)
	<-met
	if spare.node != 1 || all[0].node != 0 {
		t.Errorf("host 0 is node rank %d, the spare host %d", all[0].node, spare.node)
	}
}

// Claim: a spare host that comes while the others run waits with them, is there at their restart, and hears the end.
func TestLateSpare(t *testing.T) {
	all := hosts(t, 2)
	var wg sync.WaitGroup
	for _, g := range all[:2] {
		wg.Go(func() {
			if spare, err := g.gather(t.Context(), io.Discard); spare || err != nil {
				t.Errorf("host %d: spare %t, %v", g.number0, spare, err)
			}
		})
	}
	wg.Wait()
	spare := all[2]
	comes := func() {
		t.Helper()
		if isSpare, err := spare.gather(t.Context(), io.Discard); !isSpare || err != nil {
			t.Fatalf("spare %t, %v", isSpare, err)
		}
		spare.check = &spareCheck{done: make(chan struct{}), failed: make(chan struct{})}
	}
	comes()
	// A restart, which the spare host may miss when it is over soon.
	all[0].leave()
	if over, err := spare.standby(t.Context(), io.Discard); over || err != nil {
		t.Fatalf("at the restart: over %t, %v", over, err)
	}
	for _, g := range all[:2] {
		wg.Go(func() {
			if _, err := g.gather(t.Context(), io.Discard); err != nil {
				t.Errorf("host %d: %v", g.number0, err)
			}
		})
	}
	wg.Wait()
	comes()
	all[0].over(nil)
	var said strings.Builder
	if over, err := spare.standby(t.Context(), &said); !over || err != nil || !strings.Contains(said.String(), "the run has ended") {
		t.Errorf("at the end: over %t, %v, %q", over, err, said.String())
	}
}
