// Package drawn chooses what a test takes of a long list. Complete lists are proofs, of minutes; make test takes a
// part of each, which SEED draws, so that runs of many seeds together take all.
package drawn

import (
	"hash/fnv"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
)

// Seed is SEED, or otherwise if it is not set.
func Seed(otherwise uint64) uint64 {
	if seed, err := strconv.ParseUint(os.Getenv("SEED"), 10, 64); err == nil {
		return seed
	}
	return otherwise
}

// Share is SHARE: lists are cut to about one in so many of their members; 1: they are complete.
func Share() uint64 { return ShareOr(1) }

// ShareOr is SHARE, or otherwise if it is not set.
func ShareOr(otherwise uint64) uint64 {
	if n, err := strconv.ParseUint(os.Getenv("SHARE"), 10, 32); err == nil {
		return max(1, n)
	}
	return otherwise
}

// Part is the members of a list that the environment asks for, in the order of the list: one in Share, and at least
// so many. Seed and the name of the test draw them; the test logs how many they are.
func Part[T any](t testing.TB, all []T, least int) []T {
	t.Helper()
	if Share() == 1 {
		return all
	}
	return Some(t, all, max(least, (len(all)+int(Share())-1)/int(Share())))
}

// Some is n members of a list, in the order of the list, which Seed and the name of the test draw; the test logs how
// many they are.
func Some[T any](t testing.TB, all []T, n int) []T {
	t.Helper()
	if n >= len(all) {
		return all
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(t.Name()))
	chosen := rand.New(rand.NewPCG(Seed(1), h.Sum64())).Perm(len(all))[:n]
	slices.Sort(chosen)
	part := make([]T, n)
	for i, k := range chosen {
		part[i] = all[k]
	}
	t.Logf("%d of %d, SEED %d", n, len(all), Seed(1))
	return part
}
