package device

import (
	"testing"
	"time"
)

// Claim: Run returns how long others had all the cores before it began; one that finds a core free has not waited.
func TestQueued(t *testing.T) {
	p := NewPool(1)
	p.SetCallers(2)
	if queued := p.run(1, func(int, int64) {}); queued != 0 {
		t.Errorf("a free core was waited for: %v", queued)
	}
	// On a busy machine the other may be through before this goroutine runs again: then it holds the core longer.
	for holding := 20 * time.Millisecond; ; holding *= 2 {
		began, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			p.Run(1, func(int, int64) { close(began); time.Sleep(holding) })
		}()
		<-began
		start := time.Now()
		queued := p.run(1, func(int, int64) {})
		all := time.Since(start)
		<-done
		if queued > all || queued < holding/4 && holding > 10*time.Second {
			t.Fatalf("waited %v of %v, while another computed for %v", queued, all, holding)
		}
		if queued >= holding/4 {
			return
		}
	}
}
