package device

import (
	"time"

	"monotron/csrc/device/internal/spin"
)

// roomy reports whether every caller that is awake has a core.
func (p *Pool) roomy() bool { return p.awake.Load() <= int32(p.Threads()) }

// spare reports whether more cores are free than callers will want in a moment.
func (p *Pool) spare() bool { return p.free.Load() > p.kept() }

// kept is how many free cores are not for helpers.
func (p *Pool) kept() int32 { return max(0, p.soon.Load()) }

// enter takes a core for a caller, and returns how long that took where others had them all.
func (p *Pool) enter() (queued time.Duration) {
	if !p.core() {
		began := time.Now()
		p.want.Add(1)
		for !p.core() {
			select {
			case <-p.turn:
			case <-time.After(lull):
			}
		}
		if p.want.Add(-1) > 0 {
			p.hand()
		}
		queued = time.Since(began)
	}
	p.soon.Add(-1)
	return queued
}

// lull is how long a caller that wants a core sleeps before it checks whether another has left its
// own: nobody wakes it for one that is left between two ops.
const lull = 2 * time.Millisecond

// exit leaves a caller's core between two ops. No other caller is woken for it.
func (p *Pool) exit() {
	p.soon.Add(1)
	p.free.Add(1)
	if p.want.Load() == 0 && p.open.Load() > 0 && p.spare() {
		p.hand()
	}
}

// core takes a free core, if there is one.
func (p *Pool) core() bool {
	for {
		n := p.free.Load()
		if n == 0 {
			return false
		}
		if p.free.CompareAndSwap(n, n-1) {
			return true
		}
	}
}

// leave gives back a core, and the number that the worker ran under.
func (p *Pool) leave(worker int) {
	p.free.Add(1)
	p.mu.Lock()
	p.workers = append(p.workers, worker)
	p.wake()
	p.mu.Unlock()
}

// hand has wake find someone for a free core.
func (p *Pool) hand() {
	p.mu.Lock()
	p.wake()
	p.mu.Unlock()
}

// wake finds someone for a free core: a caller, or else a helper. It runs under the lock.
func (p *Pool) wake() {
	switch {
	case p.free.Load() == 0:
	case p.want.Load() > 0:
		select {
		case p.turn <- struct{}{}:
		default: // one is on its way
		}
	case p.open.Load() > 0 && p.spare():
		p.work.Signal()
	}
}

// Away returns when other ranks have closed done. Where every caller has a core, who waits does tiles
// of theirs meanwhile; else, and after a while without any, it sleeps, and its core is another's till
// then.
func (p *Pool) Away(done <-chan struct{}) {
	if p.callers.Load() <= int32(p.Threads()) && p.assist(done) {
		return
	}
	p.awake.Add(-1)
	p.soon.Add(-1)
	if p.want.Load() > 0 || p.open.Load() > 0 {
		p.hand()
	}
	<-done
	p.soon.Add(1)
	p.awake.Add(1)
}

// assist does tiles of others until done is closed; false: there were none for a while.
func (p *Pool) assist(done <-chan struct{}) bool {
	var s stint
	for start, i := time.Now(), 1; i%spin.Reads != 0 || time.Since(start) < standing; i++ {
		if over(done) {
			return true
		}
		if p.open.Load() > 0 {
			p.mu.Lock()
			j, worker := p.pick(0)
			p.mu.Unlock()
			if j != nil {
				p.soon.Add(-1)
				for p.want.Load() == 0 && !over(done) && j.tile(worker) {
					s.rest()
				}
				p.soon.Add(1)
				p.leave(worker)
				start = time.Now()
			}
		}
		spin.Wait(i)
	}
	return false
}

// standing is how long a rank waits for others before it sleeps. To wake one that computes in
// C among others takes half a millisecond.
const standing = time.Millisecond

func over(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}
