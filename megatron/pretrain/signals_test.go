package pretrain

import (
	"context"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"monotron/internal/exitcode"
	"monotron/internal/logging"
)

// Claim (docs/exit-codes.md): a signal during the setup ends the run within a second, with
// 75; once every rank is set up it is for the training to end, and only a later signal
// ends the process.
func TestSignalsEndASetup(t *testing.T) {
	for name, c := range map[string]struct {
		ranks, set int
		later      bool
		want       int
	}{
		"before the ranks":   {0, 0, false, int(exitcode.Again)},
		"one of two is late": {2, 1, false, int(exitcode.Again)},
		"set up":             {2, 2, false, -1},
		"sent twice":         {2, 2, true, 128 + int(syscall.SIGTERM)},
	} {
		t.Run(name, func(t *testing.T) {
			var code atomic.Int64
			code.Store(-1)
			ended := make(chan struct{}, 8)
			b := newBegun(nil)
			b.ranks = int64(c.ranks)
			for range c.set {
				b.one()
			}
			ctx, stop := stopOnSignal(context.Background(), logging.Stderr(), b, func(n int) { code.Store(int64(n)); ended <- struct{}{} })
			defer stop()
			signaled := time.Now()
			kill(t)
			<-ctx.Done()
			if c.later {
				time.Sleep(1100 * time.Millisecond)
				kill(t)
			}
			limit := time.Minute
			if c.want < 0 {
				limit = patience + 600*time.Millisecond // in which it would have ended
			}
			select {
			case <-ended:
				if took := time.Since(signaled); !c.later && took < patience {
					t.Errorf("ended after %v: a setup that is nearly done may end by itself", took)
				}
			case <-time.After(limit):
			}
			if int(code.Load()) != c.want {
				t.Errorf("code %d, want %d", code.Load(), c.want)
			}
		})
	}
}

func kill(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}
