package device

import (
	"testing"
	"time"
)

// Claim: a caller is told how long others had all the cores before it began; one that finds a core free has not waited.
func TestQueued(t *testing.T) {
	p := NewPool(1)
	p.SetCallers(2)
	if queued := p.run(1, func(int, int64) {}); queued != 0 {
		t.Errorf("a free core was waited for: %v", queued)
	}
	began, holding := make(chan struct{}), 20*time.Millisecond
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Run(1, func(int, int64) { close(began); time.Sleep(holding) })
	}()
	<-began
	start := time.Now()
	queued := p.run(1, func(int, int64) {})
	if all := time.Since(start); queued < holding/4 || queued > all {
		t.Errorf("waited %v of %v, while another computed for %v", queued, all, holding)
	}
	<-done
}
