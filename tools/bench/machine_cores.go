package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/urfave/cli/v2"

	"monotron/internal/exitcode"
	"monotron/tools/internal/command"
)

// apart is how far two cores are from each other now, and notes it: on a virtual machine that changes while it
// runs, and the threads of one rank, which hand each other every op, are slower where they share no cache.
func (s *survey) apart() float64 {
	if s.machine.Threads < 2 {
		return 0
	}
	now := roundTrip(300, 10)
	s.distances = append(s.distances, now)
	return now
}

// near tells whether cores that were so far apart were as near as they were at any time.
func (s *survey) near(apart float64) bool {
	return len(s.distances) == 0 || apart <= 2*slices.Min(s.distances)
}

// nearOnes are those of all that saw the cores near, or all where none did.
func nearOnes[T any](all []T, near func(T) bool) (some []T) {
	for _, x := range all {
		if near(x) {
			some = append(some, x)
		}
	}
	if len(some) == 0 {
		return all
	}
	return some
}

// enoughTrips is how long roundTrip begins new tries: where others have the cores each takes long.
const enoughTrips = 20 * time.Millisecond

// roundTrip is the seconds of a word from one thread to another and back, at best.
func roundTrip(trips int64, tries int) float64 {
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

// told says what apart noted; nothing where there is one core.
func (s *survey) told() string {
	if len(s.distances) == 0 {
		return ""
	}
	least, most := slices.Min(s.distances), slices.Max(s.distances)
	text := fmt.Sprintf("a word from core to core and back: %.0f to %.0f ns", 1e9*least, 1e9*most)
	if !s.near(most) {
		text += "; what was seen while the cores were far apart is left out where they were near too"
	}
	return text
}

// benchCores tells how far two cores are apart.
func benchCores(c *cli.Context) error {
	if runtime.GOMAXPROCS(0) < 2 {
		return exitcode.Errorf(exitcode.Usage, "bench cores: this process has one core")
	}
	nanoseconds := math.Round(1e9 * roundTrip(1000, 20))
	out := &command.Printer{W: c.App.Writer}
	if !c.Bool("json") {
		out.Printf("a word from core to core and back: %.0f ns\n", nanoseconds)
		return out.Err
	}
	text, err := json.Marshal(map[string]any{"round_trip_nanoseconds": nanoseconds})
	out.Printf("%s\n", text)
	return errors.Join(err, out.Err)
}
