package device

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Claim (pool.go): every tile runs once, whatever the number of threads, also
// with many callers at once.
func TestPoolRunsEveryTileOnce(t *testing.T) {
	for _, threads := range []int{1, 2, 3} {
		p := NewPool(threads)
		var callers sync.WaitGroup
		for caller := range 4 {
			callers.Add(1)
			go func() {
				defer callers.Done()
				for round := range 200 {
					tiles := int64((caller*7+round)%23 + 1)
					counts := make([]atomic.Int32, tiles)
					p.Run(tiles, func(_ int, tile int64) { counts[tile].Add(1) })
					for i := range counts {
						if n := counts[i].Load(); n != 1 {
							t.Errorf("%d threads: tile %d of %d ran %d times", threads, i, tiles, n)
						}
					}
				}
			}()
		}
		callers.Wait()
	}
}

// Claim (pool.go): however many callers there are, no more tiles run at once than
// there are threads, and nobody is left behind.
func TestPoolHasOneCoreAThread(t *testing.T) {
	for _, threads := range []int{1, 2, 3} {
		p := NewPool(threads)
		p.SetCallers(6)
		var now, most, done atomic.Int64
		var callers sync.WaitGroup
		for caller := range 6 {
			callers.Go(func() {
				for round := range 100 {
					p.Run(int64((caller+round)%5+1), func(int, int64) {
						n := now.Add(1)
						for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
						}
						runtime.Gosched()
						now.Add(-1)
						done.Add(1)
					})
				}
			})
		}
		callers.Wait()
		if most.Load() > int64(threads) || done.Load() != 6*300 {
			t.Errorf("%d threads: %d tiles at once, %d done", threads, most.Load(), done.Load())
		}
		if p.free.Load() != int32(threads) || len(p.jobs) != 0 {
			t.Errorf("%d threads: %d cores free, %d jobs left", threads, p.free.Load(), len(p.jobs))
		}
	}
}

// Claim (pool.go): of a job that began when there was no core free, others do tiles once a caller waits
// for its peers: that caller itself, a helper on its core when it sleeps; nobody while it will be back in a
// moment.
func TestPoolHelpComesLate(t *testing.T) {
	for _, wait := range []time.Duration{0, 1, 5 * standing} {
		away := wait > 0
		p := NewPool(2)
		p.SetCallers(2)
		hold, holding, left, over := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{})
		go func() {
			p.Run(1, func(int, int64) { close(holding); <-hold })
			if away {
				time.AfterFunc(wait, func() { close(left) })
				p.Away(over)
				return
			}
			close(left)
		}()
		<-holding
		helped := make(chan struct{})
		var once sync.Once
		p.Run(30, func(worker int, tile int64) {
			switch {
			case worker > 0:
				once.Do(func() { close(helped) })
			case tile == 0:
				close(hold)
				<-left
				if away {
					<-helped // ends only when a helper came
				}
			default:
				runtime.Gosched()
			}
		})
		select {
		case <-helped:
			if !away {
				t.Error("a helper took the core of a caller that is between two ops")
			}
		default:
		}
		close(over)
	}
}
