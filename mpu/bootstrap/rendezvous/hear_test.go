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
