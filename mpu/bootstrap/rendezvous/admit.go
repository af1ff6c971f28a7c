package rendezvous

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"time"

	"monotron/internal/exitcode"
	"monotron/mpu/comm/failure"
)

// admit adds a rank; the last one completes the run. One that does not fit ends a
// run that is still gathering, since that cannot become complete; a run under way it
// does not disturb. The caller holds the lock.
func (s *server) admit(l *line, m *message) bool {
	if m.Seat != len(l.seats) || m.Member == nil || m.Seat >= s.config.World { // no rank sends that
		return false
	}
	// What a stranger sends is cut to what a message may hold.
	who := *m.Member
	who.Host, who.Addr, who.Report = cut(who.Host, longestName), cut(who.Addr, longestName), cut(who.Report, longestName)
	p := &peer{Member: who, line: l, seat: m.Seat, heard: time.Now()}
	l.seats = append(l.seats, nil)
	// The run has ended or has a verdict, or the member does not fit: it stays outside, with the verdict if any.
	wrong := s.misfit(p)
	switch {
	case s.stopped:
		return false
	case s.verdict != nil:
		l.send(refusal(p.seat, s.verdict))
		return false
	case wrong != nil:
		l.send(refusal(p.seat, wrong))
		if !s.full {
			s.judge(wrong)
		}
		return false
	}
	// The last member completes the run; one that comes later gets the list that the others have.
	l.seats[p.seat], s.peers[p.Rank] = p, p
	s.came++
	if p.Rank != 0 {
		s.staying++
	}
	switch {
	case s.full:
		l.send(s.joined)
	case s.came == s.config.World:
		s.announce()
	}
	return true
}

// misfit returns why a rank cannot be one of the run.
func (s *server) misfit(p *peer) *failure.Verdict {
	code := exitcode.Usage
	no := func(format string, a ...any) *failure.Verdict {
		return &failure.Verdict{Kind: failure.Own, Rank: p.Rank, Code: code, Text: fmt.Sprintf(format, a...), Time: time.Now()}
	}
	var other *peer
	if p.Rank >= 0 && p.Rank < len(s.peers) {
		other = s.peers[p.Rank]
	}
	switch {
	case p.World != s.config.World:
		return no("%[1]s was started as one of %[2]d %[4]ss, but %[4]s 0 as one of %[3]d: start all %[4]ss of a run in the same way", p, p.World, s.config.World, s.config.Called)
	case p.Rank < 0 || p.Rank >= s.config.World:
		return no("%s does not belong to this run, which has the %ss 0 to %d", p, s.config.Called, s.config.World-1)
	case s.config.Late && s.full && (other == nil || other.left):
	case s.config.Loose && s.full:
		code = exitcode.Again
		return no("%s is too late: the other processes have started without it", p)
	case other != nil:
		return no("two processes have the same %[1]s: %[2]s and %[3]s; give each process its own %[1]s, and each run its own port", s.config.Called, other, p)
	case s.full:
		return no("%s is too late: the other processes have started without it", p)
	}
	for _, what := range slices.Sorted(maps.Keys(s.config.Alike)) {
		if mine, theirs := s.config.Alike[what], p.Alike[what]; mine != theirs {
			return no("%[1]s does not have the same %[2]s as %[5]s 0: %[3]s instead of %[4]s; copy the same build to all hosts and start all %[5]ss in the same way", p, what, cut(theirs, longestName), cut(mine, longestName), s.config.Called)
		}
	}
	return nil
}

// announce gives every rank the list of all; nobody joins any more (but see Config.Late).
func (s *server) announce() {
	s.full = true
	var id [8]byte
	rand.Read(id[:]) // never fails
	var members []Member
	for rank := range s.config.World {
		var m Member // empty where nobody has come
		if p := s.peers[rank]; p != nil {
			m = p.Member
		}
		members = append(members, m)
	}
	s.joined = mustFrame(&message{Kind: kindJoined, Run: hex.EncodeToString(id[:]), List: pack(members)})
	s.toAll(s.joined)
	now := time.Now()
	for l := range s.lines {
		l.heard = now
	}
	for _, p := range s.peers {
		if p != nil {
			p.heard = now
		}
	}
}
