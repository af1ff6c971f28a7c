package health

import (
	"slices"
	"time"

	"monotron/csrc/device"
	"monotron/mpu/comm"
)

// checkEvery is how often a device is asked how far it has come.
const checkEvery = 100 * time.Millisecond

// On says which device the rank computes on: where that does its ops behind the host's back,
// what it has done counts, and not what the host does meanwhile.
func (r *Recorder) On(d *device.Device) {
	if r == nil || d.Trail() == nil {
		return
	}
	r.mu.Lock()
	r.device, r.trail = d, d.Trail()
	r.account.began = time.Now()
	r.mu.Unlock()
	go r.check() // it may wait for a driver that does not answer, so that nobody waits for it
}

// check asks until the recorder's end.
func (r *Recorder) check() {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	for {
		select {
		case <-r.quit:
			return
		case <-tick.C:
			r.trail.Poll()
		}
	}
}

// at calls f when the rank comes to here, on its device.
func (r *Recorder) at(f func(*account, time.Time)) {
	sent := func(at time.Time) {
		r.mu.Lock()
		defer r.mu.Unlock()
		f(&r.account, at)
	}
	if r.device != nil {
		r.device.At(sent)
		return
	}
	sent(time.Now())
}

// pending is a collective that has been called and that the device has not done.
type pending struct {
	number    int64
	group     *Group
	transfers []comm.Transfer // of an exchange
	exchange  bool
	starting  bool // the engine has not returned from taking it
	begun     bool // the device has come to it
	since     time.Time
}

// start has the engine take a collective, and follows it from there where the device does
// it by itself.
func (r *Recorder) start(g *Group, number int64, c *comm.Collective) work {
	p := &pending{number: number, group: g, starting: true, since: time.Now()}
	if c.Op == comm.Exchange {
		p.exchange, p.transfers = true, c.Transfers
	}
	if r.trail != nil { // taking it may be a wait for the device, or for peers
		r.add(p)
	}
	inner := g.engine.Start(c)
	b, behind := inner.(comm.Behind)
	switch {
	case behind:
		r.add(p)
		r.follow(p, b)
	case r.trail != nil:
		r.mu.Lock()
		r.forget(p)
		r.mu.Unlock()
	}
	return work{g, number, inner, behind}
}

func (r *Recorder) add(p *pending) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(p)
	r.pending = append(r.pending, p)
}

// follow keeps a collective for as long as the device has not done it.
func (r *Recorder) follow(p *pending, b comm.Behind) {
	r.mu.Lock()
	p.starting = false
	r.mu.Unlock()
	b.Tell(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		p.begun, p.since = true, time.Now()
	}, func() {
		r.left(p.number)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.forget(p)
	})
}

func (r *Recorder) forget(p *pending) {
	if at := slices.Index(r.pending, p); at >= 0 {
		r.pending = slices.Delete(r.pending, at, at+1)
	}
}

// deviceStanding is the device's part of the rank's standing; it is read under the lock.
type deviceStanding struct {
	progress device.Progress
	oldest   *pending // collective that the device, or the engine, is in; nil: none
}

// hold reads the device's progress without waiting for it.
func (r *Recorder) hold() (h deviceStanding) {
	if r.trail != nil {
		h.progress = r.trail.Progress()
	}
	for _, p := range r.pending {
		if p.begun || p.starting && !h.inCall() {
			h.oldest = p
			break
		}
	}
	return h
}

// inCall reports whether the rank is in a call to its device.
func (h *deviceStanding) inCall() bool { return h.progress.Begun > h.progress.Over }

// since reports whether the rank has waited for its device ever since an earlier standing: in
// one call, or in one collective, and the device has done nothing. What its process computes
// meanwhile are waits that keep their processor, as CUDA's and NCCL's do.
func (h *deviceStanding) since(before deviceStanding) bool {
	if h.progress.Passed != before.progress.Passed {
		return false
	}
	return h.inCall() && h.progress.Begun == before.progress.Begun || h.oldest != nil && h.oldest == before.oldest
}

// count is how far the rank is in a group: where a device runs collectives by itself, as far as that
// has come.
func (r *Recorder) count(g *Group, h *deviceStanding) Count {
	c := Count{Entered: g.entered}
	if len(g.sent)+len(g.received) > 0 {
		c.Sent, c.Received = copied(g.sent), copied(g.received)
	}
	for _, p := range r.pending {
		switch {
		case p.group != g || p.begun || p.starting && !h.inCall():
		case !p.exchange:
			c.Entered--
		default:
			for _, t := range p.transfers {
				if peer := int32(g.members[t.Peer]); t.Send {
					c.Sent[peer]--
				} else {
					c.Received[peer]--
				}
			}
		}
	}
	return c
}
