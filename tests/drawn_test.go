package tests

import (
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
)

// shuffled is a list in the order that a seed draws.
func shuffled[T any](list []T, seed uint64) []T {
	list = slices.Clone(list)
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// drawn is the subtests that the environment asks for: with SHARE, as make test has it, half of them, which SEED
// draws; else all.
func drawn[F any](t *testing.T, all map[string]F) map[string]F {
	t.Helper()
	if share, err := strconv.Atoi(os.Getenv("SHARE")); err != nil || share < 2 {
		return all
	}
	some, seed := map[string]F{}, seedOr(1)
	for _, name := range shuffled(slices.Sorted(maps.Keys(all)), seed)[:(len(all)+1)/2] {
		some[name] = all[name]
	}
	t.Logf("%d of %d tests, SEED %d", len(some), len(all), seed)
	return some
}
