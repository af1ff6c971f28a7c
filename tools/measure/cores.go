package measure

import (
	"fmt"
	"slices"

	"monotron/tools/internal/timing"
)

// apart is how far two cores are from each other now, and notes it: on a virtual machine that changes while it
// runs, and the threads of one rank, which hand each other every op, are slower where they share no cache.
func (s *survey) apart() float64 {
	if s.machine.Threads < 2 {
		return 0
	}
	now := timing.RoundTrip(300, 10)
	s.distances = append(s.distances, now)
	return now
}

// near reports whether cores that were so far apart were as near as they were at any time.
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

// summary says what apart noted; nothing where there is one core.
func (s *survey) summary() string {
	if len(s.distances) == 0 {
		return ""
	}
	least, most := slices.Min(s.distances), slices.Max(s.distances)
	text := fmt.Sprintf("a message from one core to another and back takes %.0f to %.0f ns", 1e9*least, 1e9*most)
	if !s.near(most) {
		text += "; measurements made while this time was long are left out if others were made while it was short"
	}
	return text
}
