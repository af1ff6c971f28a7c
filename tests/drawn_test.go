package tests

import (
	"hash/fnv"
	"maps"
	"os"
	"strconv"
	"testing"
)

// drawn is the subtests that the environment asks for: with SHARE, as make test has it, about half of
// them, which SEED chooses; else all.
func drawn[F any](t *testing.T, all map[string]F) map[string]F {
	t.Helper()
	share, err := strconv.Atoi(os.Getenv("SHARE"))
	if err != nil || share < 2 {
		return all
	}
	some, seed := maps.Clone(all), seedOr(1)
	maps.DeleteFunc(some, func(name string, _ F) bool {
		h := fnv.New32a()
		h.Write([]byte(name + strconv.FormatUint(seed, 10)))
		return h.Sum32()>>16%2 == 1
	})
	if len(some) == 0 {
		return all
	}
	t.Logf("%d of %d tests, SEED %d", len(some), len(all), seed)
	return some
}
