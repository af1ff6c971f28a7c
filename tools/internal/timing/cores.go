package timing

import (
	"math"
	"sync/atomic"
	"time"
)

// enoughTrips is how long RoundTrip begins new tries: where others have the cores each takes long.
const enoughTrips = 20 * time.Millisecond

// RoundTrip is the seconds of a word from one thread to another and back, the best of so many tries.
func RoundTrip(trips int64, tries int) float64 {
	best, began := math.Inf(1), time.Now()
	for try := 0; try < tries && (try == 0 || time.Since(began) < enoughTrips); try++ {
		var word atomic.Int64
		over := make(chan struct{})
		go func() {
			defer close(over)
			for i := range trips {
				for word.Load() != 2*i+1 {
				}
				word.Store(2*i + 2)
			}
		}()
		start := time.Now()
		for i := range trips {
			word.Store(2*i + 1)
			for word.Load() != 2*i+2 {
			}
		}
		best = min(best, time.Since(start).Seconds()/float64(trips))
		<-over
	}
	return best
}
