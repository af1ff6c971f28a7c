package rendezvous

import (
	"fmt"
	"slices"
	"time"

	"monotron/internal/exitcode"
	"monotron/mpu/comm/failure"
)

// follow reads what the ranks of a connection say, until all have left.
func (s *server) follow(l *line) {
	for {
		m, err := l.from.message(fromRank)
		s.mu.Lock()
		l.heard = time.Now()
		if err != nil {
			s.lose(l)
		} else {
			s.take(l, m)
		}
		left, hears := l.hasLeft(), s.hears
		s.mu.Unlock()
		if err != nil {
			s.drop(l)
			return
		}
		if m.Kind == kindReport {
			m.beats = []Beat{{Seat: m.Seat, Report: m.report}}
		}
		for _, b := range m.beats {
			if p := l.at(b.Seat); p != nil && hears != nil && len(b.Report) > 0 {
				hears(p.Rank, b.Report)
			}
		}
		if left {
			s.drop(l)
			return
		}
	}
}

// at is the rank of a seat; nil: there is none.
func (l *line) at(seat int) *peer {
	if seat < 0 || seat >= len(l.seats) {
		return nil
	}
	return l.seats[seat]
}

func (l *line) hasLeft() bool {
	return !slices.ContainsFunc(l.seats, func(p *peer) bool { return p != nil && !p.left })
}

// take is what a rank says. The caller holds the lock.
func (s *server) take(l *line, m *message) {
	if m.Kind == kindJoin {
		s.admit(l, m)
		return
	}
	for _, b := range m.beats {
		if p := l.at(b.Seat); p != nil {
			p.heard = l.heard
			if len(b.At) > 0 && string(b.At) != p.is {
				p.is = cut(string(b.At), longestName)
			}
		}
	}
	p := l.at(m.Seat)
	if m.Kind == kindBeat || p == nil {
		return
	}
	p.heard = l.heard
	switch {
	case m.Kind == kindGone:
		s.leave(p, p.died(s.config.Silence))
	case m.Kind == kindBye:
		s.leave(p, nil)
	case m.Kind == kindFail && m.Verdict != nil && m.Verdict.Rank < s.config.World:
		s.judge(m.Verdict)
	}
}

func (p *peer) at() string {
	if p.is == "" {
		return ""
	}
	return "; at its last heartbeat it was in " + p.is
}

// died is the verdict on a rank whose connection is lost. If it has been silent for nearly as long as is allowed, others
// may have judged and ended it for that: the silence came first.
func (p *peer) died(allowed time.Duration) *failure.Verdict {
	if silent := time.Since(p.heard); silent > allowed*3/4 {
		return p.verdict(failure.Silence, exitcode.IO, fmt.Sprintf("did not respond for %d s%s, and then its connection was lost: it was stopped, or its host or network failed%s", int(silent.Seconds()), p.at(), p.others()))
	}
	return p.verdict(failure.Death, exitcode.IO, "died: its connection was lost"+p.at()+p.others())
}

// others says which ranks are lost with the one that relays for them.
func (p *peer) others() string {
	n := 0
	for _, other := range p.line.seats {
		if other != nil && other != p && !other.left {
			n++
		}
	}
	if p.seat != 0 || n == 0 {
		return ""
	}
	return fmt.Sprintf("; it was also the relay of other ranks of its host (%d)", n)
}

// lose notes that the ranks of a connection are gone. The one that has made it is to blame: for the others it relays,
// also after its own last word.
func (s *server) lose(l *line) {
	if l.hasLeft() {
		return
	}
	var why *failure.Verdict
	for _, p := range l.seats {
		if p == nil {
			continue
		}
		if why == nil {
			why = p.died(s.config.Silence)
		}
		s.leave(p, why)
	}
}

// leave notes that a rank is gone, and why where that ends the run.
func (s *server) leave(p *peer, why *failure.Verdict) {
	if p.left {
		return
	}
	p.left = true
	if p.Rank != 0 {
		s.staying--
	}
	if (s.config.Fewer || s.config.Loose) && !s.full {
		s.peers[p.Rank], s.came = nil, s.came-1 // it may come again
		return
	}
	if why != nil && !s.stopped && !s.config.Loose {
		s.judge(why)
	}
	s.checkDone()
}

// judge makes the verdict, unless there is one, and sends it to all.
func (s *server) judge(v *failure.Verdict) {
	if s.verdict == nil {
		s.verdict = v
		s.toAll(verdictFrame(v))
	}
}

// checkDone closes done when no rank is left to serve.
func (s *server) checkDone() {
	if s.staying == 0 && (s.full || s.verdict != nil) {
		s.closing.Do(func() { close(s.done) })
	}
}
