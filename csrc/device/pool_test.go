package device

import (
	"sync"
	"sync/atomic"
	"testing"
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
