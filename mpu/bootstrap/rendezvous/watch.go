package rendezvous

import (
	"fmt"
	"time"

	"monotron/internal/exitcode"
	"monotron/internal/system"
	"monotron/mpu/comm/failure"
)

// watch beats, and finds ranks that are late or silent.
func (s *server) watch() {
	defer s.idle.Done()
	// Three clocks: heartbeats, whether enough hosts are here to start without the others, the time limit.
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	asking := time.NewTicker(enoughEvery)
	defer asking.Stop()
	if s.config.Enough == nil {
		asking.Stop()
	}
	deadline := time.NewTimer(s.config.Timeout)
	defer deadline.Stop()
	last, waiting := time.Now(), newLongWait(s.config.Notes)
	for {
		select {
		case <-s.quit:
			return
		case <-deadline.C:
			s.mu.Lock()
			s.late()
			s.mu.Unlock()
		case <-asking.C:
			s.enough()
		// A tick that comes late means that this process was stopped: silence of others proves nothing then.
		case now := <-tick.C:
			s.mu.Lock()
			s.expire(now, now.Sub(last) > 5*beatEvery)
			missing, strangers := s.missing(), s.strangers()
			s.mu.Unlock()
			last = now
			if len(missing) > 0 {
				waiting.say(now, "%s 0 is still waiting for %d of %d %[1]ss (%[4]s); the time limit is %[5]v%s", s.config.Called, len(missing), s.config.World, ranges(missing), s.config.Timeout, strangers)
			}
		}
	}
}

// enoughEvery is how often rank 0 asks whether those that have come are enough.
const enoughEvery = 100 * time.Millisecond

// enough continues with those that have come, where they are (Config.Enough).
func (s *server) enough() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.full || s.verdict != nil || s.stopped {
		return
	}
	var here []Member
	for _, p := range s.peers {
		if p != nil {
			here = append(here, p.Member)
		}
	}
	if s.config.Enough(here) {
		s.announce()
	}
}

// late ends the wait for ranks that have not come.
func (s *server) late() {
	missing := s.missing()
	switch {
	case len(missing) == 0 || s.full || s.verdict != nil:
	case s.config.Fewer:
		s.announce()
	default:
		s.judge(&failure.Verdict{Kind: failure.Own, Rank: missing[0], Code: exitcode.IO, Time: time.Now(), Text: fmt.Sprintf("%d of %d %ss did not join within %v: %s; read their output where they were started%s",
			len(missing), s.config.World, s.config.Called, s.config.Timeout, ranges(missing), s.strangers())})
	}
}

// strangers says what may keep ranks out: a secret that is not the same on all hosts.
func (s *server) strangers() string {
	if s.foreign == 0 {
		return ""
	}
	return fmt.Sprintf("; %d connections did not have this run's secret, the last from %s: MONOTRON_SECRET must be the same on all hosts", s.foreign, s.from)
}

// missing are the ranks that the run still waits for.
func (s *server) missing() (ranks []int) {
	if s.full {
		return nil
	}
	for r := range s.config.World {
		if s.peers[r] == nil {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// beatsPerSilence is how often rank 0 beats, at least, before it counts as silent: seldom, as that is a write to each connection.
const beatsPerSilence = 8

// expire beats to all and judges who is silent; not after a stop of this process.
func (s *server) expire(now time.Time, wasStopped bool) {
	if now.Sub(s.beaten) > s.config.Silence/beatsPerSilence {
		s.beaten = now
		s.toAll(beatFrame(0, ""))
	}
	watched := s.full && !s.config.Loose && s.verdict == nil
	if !watched && !wasStopped {
		return
	}
	for l := range s.lines {
		if wasStopped {
			l.heard = now
		}
	}
	for _, p := range s.peers {
		switch {
		case p == nil || p.left:
		case wasStopped:
			p.heard = now
		case s.verdict == nil && now.Sub(p.heard) > s.config.Silence:
			s.silent(p, now)
		}
	}
}

// together is how long before its connection a rank is heard last, at most, whose connection falls silent: the
// heartbeats of a host's ranks do not come at the same moment.
const together = 5 * beatEvery

// silent judges a rank that has not been heard. Where nothing at all comes over its connection since then, that is the
// fault of the rank that has made it, which has its time, too.
func (s *server) silent(p *peer, now time.Time) {
	since := p.heard
	if first := p.line.seats[0]; first != nil && (now.Sub(p.line.heard) > s.config.Silence || p.line.heard.Sub(p.heard) < together) {
		p, since = first, p.line.heard
	}
	if silent := now.Sub(since); s.config.lost(silent, &p.Member, &s.peers[0].Member) {
		s.judge(p.verdict(failure.Silence, exitcode.IO, fmt.Sprintf("has not responded for %d s%s: it is stopped, or its host or network failed%s", int(silent.Seconds()), p.at(), p.others())))
	}
}

// lost reports whether a member that has been silent for so long counts as lost, as seen from
// another. One on the same host that only waits for a processor has longer: where hundreds of
// processes share a few, a turn can take longer than a silence.
func (c *Config) lost(silent time.Duration, m, from *Member) bool {
	if silent <= c.Silence {
		return false
	}
	return silent > starvedTimes*c.Silence || m.Host != from.Host || !starved(m.PID)
}

// starvedTimes is how many silences a rank has that wants a processor and gets none.
const starvedTimes = 15

// starved reports whether a process of this host wants a processor and is not given one, or
// runs: it is not stopped, and will answer once it has its turn.
func starved(pid int) bool { return system.AnyThread(pid, 'R') }
