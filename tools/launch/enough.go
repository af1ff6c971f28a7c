package launch

import (
	"context"
	"sync"
	"time"

	"monotron/mpu/bootstrap/rendezvous"
)

// wait decides, where this launcher leads, whether to continue without those that have not come.
type wait struct {
	g     *gathering
	since time.Time
	first bool

	mu   sync.Mutex
	gone map[int]bool // launchers whose ports are closed
}

// newWait asks all ports of the last start, until ctx is done.
func newWait(g *gathering, ctx context.Context) *wait {
	w := &wait{g: g, since: time.Now(), first: g.addrs == nil, gone: map[int]bool{}}
	for _, number := range g.slots {
		if number != g.number0 {
			go w.ask(ctx, number, g.addrs[number])
		}
	}
	return w
}

func (w *wait) ask(ctx context.Context, number int, addr string) {
	for ctx.Err() == nil {
		lives := addr != "" && rendezvous.Lives(addr, answerLimit)
		w.mu.Lock()
		w.gone[number] = !lives
		w.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(300 * time.Millisecond):
		}
	}
}

// enough: a first start needs all hosts but spares, which it waits for shortly. Later as many are
// enough as run ranks, if of those that did the others are gone. Who leads without having been in
// the last start cannot ask those.
func (w *wait) enough(here []rendezvous.Member) bool {
	// Who is there and can run ranks, and whether a start was before.
	came, again := map[int]bool{}, false
	for _, m := range here {
		c := readClaim(m.Report)
		if !c.checking {
			came[(m.Rank+w.g.number0)%w.g.all] = true
		}
		again = again || c.start > 0
	}
	// As many as are needed, and which others to wait for.
	switch {
	case w.first && again:
		return len(came) >= w.g.wanted && time.Since(w.since) >= lateSpares
	case w.first:
		for number := range w.g.wanted {
			if !came[number] {
				return false
			}
		}
		return time.Since(w.since) >= lateSpares
	case len(came) < w.g.wanted:
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, number := range w.g.slots {
		if !came[number] && !w.gone[number] {
			return false
		}
	}
	return true
}
