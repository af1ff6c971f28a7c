package watch

import (
	"sync"
	"time"
)

// own is what this process does. Its ranks share one look: to look costs some time of a
// processor, which many looks would make look like work.
var own process

type process struct {
	mu       sync.Mutex
	activity activity
	looked   time.Time
	was      bool
}

// busy tells whether the process has done something, or would if others let it, between
// the last two looks, the later at most half a beat ago.
func (p *process) busy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); now.Sub(p.looked) > beatEvery/2 {
		p.looked, p.was = now, p.activity.busy()
	}
	return p.was
}
