package bpe

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Claim: the queue used for long pieces makes the same merges as the plain loop.
func TestLongMergeEqualsShort(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	m := NewMerges(400)
	for rank := range int32(400) {
		m.Add(rng.Int32N(10+rank/2), rng.Int32N(10+rank/2), rank, 10+rank)
	}
	for range 3000 {
		piece := make([]Part, 2+rng.IntN(90))
		for i := range piece {
			piece[i].ID = rng.Int32N(10)
		}
		short := m.Merge(nil, slices.Clone(piece))
		if long := m.mergeLong(nil, slices.Clone(piece)); !slices.Equal(short, long) {
			t.Fatalf("%v: %v by the loop, %v by the queue", piece, short, long)
		}
	}
}
