package rendezvous

import (
	"testing"
	"time"

	"monotron/mpu/comm/failure"
)

// Claim: the loss of a connection is a death, unless the rank had been silent for so long that it was ended for that.
func TestLossAfterSilence(t *testing.T) {
	const allowed = 20 * time.Second
	for silent, want := range map[time.Duration]failure.Kind{0: failure.Death, 14 * time.Second: failure.Death, 16 * time.Second: failure.Silence, time.Minute: failure.Silence} {
		p := &peer{Member: Member{Rank: 3}, line: &line{}, heard: time.Now().Add(-silent)}
		if v := p.died(allowed); v.Kind != want || v.Rank != 3 {
			t.Errorf("after a silence of %v: %s of rank %d, want %s", silent, v.Kind, v.Rank, want)
		}
	}
}

// Claim (docs/failures.md): where the relay of a host falls silent, the verdict names it, also if rank 0 has heard another rank
// of the host last some seconds before; where another rank falls silent, the verdict names that one.
func TestSilentRelayIsNamed(t *testing.T) {
	const nobody, relay, relayed = -1, 2, 3
	for _, c := range []struct {
		rank, line time.Duration // since the relayed rank, and since anything of its host was heard
		blamed     int
	}{
		{20500 * time.Millisecond, 19500 * time.Millisecond, nobody}, // the relay has its time
		{21500 * time.Millisecond, 20500 * time.Millisecond, relay},
		{20500 * time.Millisecond, 15600 * time.Millisecond, nobody},
		{25000 * time.Millisecond, 20100 * time.Millisecond, relay},
		{20500 * time.Millisecond, 300 * time.Millisecond, relayed},
		{20500 * time.Millisecond, 14 * time.Second, relayed}, // the relay was heard long after it
	} {
		now := time.Now()
		s := &server{config: Config{World: 4, Silence: 20 * time.Second}, peers: make([]*peer, 4), full: true, beaten: now}
		own, host := &line{heard: now}, &line{heard: now.Add(-c.line)}
		for rank := range 4 {
			s.peers[rank] = &peer{Member: Member{Rank: rank, Host: "a"}, line: own, seat: rank, heard: now}
		}
		own.seats = s.peers[:2]
		for seat, p := range s.peers[2:] {
			p.Host, p.line, p.seat, p.heard = "b", host, seat, host.heard
		}
		s.peers[relayed].heard = now.Add(-c.rank)
		host.seats = s.peers[2:]
		s.expire(now, false)
		if got := s.verdict; (got == nil) != (c.blamed == nobody) || got != nil && (got.Rank != c.blamed || got.Kind != failure.Silence) {
			t.Errorf("a rank heard %v ago over a connection heard %v ago: %+v, want rank %d", c.rank, c.line, got, c.blamed)
		}
	}
}
