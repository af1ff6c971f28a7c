package health

import (
	"sync"
	"time"
)

// own is what this process does. Its ranks share one reading: each costs some time of a
// processor, and many would appear as work.
var own process

type process struct {
	mu       sync.Mutex
	activity activity
	checked  time.Time
	was      bool
	waiting  map[*Recorder]bool // ranks that their devices hold up: the processor's time may be theirs
}

// busy reports whether the process has done something, or would if others let it, between
// the last two readings, the later at most half a beat ago. waiting: r has been in its device
// since its last beat.
func (p *process) busy(r *Recorder, waiting bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if waiting {
		if p.waiting == nil {
			p.waiting = map[*Recorder]bool{}
		}
		p.waiting[r] = true
	} else {
		delete(p.waiting, r)
	}
	if now := time.Now(); now.Sub(p.checked) > beatEvery/2 {
		p.checked, p.was = now, p.activity.busy(len(p.waiting) > 0)
	}
	return p.was
}

// forget drops what is known of a rank that ends.
func (p *process) forget(r *Recorder) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waiting, r)
}
