package trie

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// Claim: prefixes, the longest one and the leftmost position are those a search
// of every key finds.
func TestAgainstSearch(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	word := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = "abcdefghijklmnopqrstuvwxyz\xff"[rng.IntN(1+rng.IntN(27))]
		}
		return string(b)
	}
	for range 300 {
		var keys []string
		var values []int32
		for i := range rng.IntN(60) {
			keys, values = append(keys, word(rng.IntN(6))), append(values, int32(i))
		}
		tr := New(keys, values)
		text := word(30)
		best, bestLen := -1, 0
		for at := range text {
			want := map[int]int32{}
			for i, k := range keys {
				if k != "" && strings.HasPrefix(text[at:], k) {
					want[len(k)] = values[i]
				}
			}
			var lengths []int
			tr.Prefixes(text[at:], func(n int, v int32) {
				if want[n] != v {
					t.Fatalf("%q in %q at %d: value %d, want %d", text[at:at+n], text, at, v, want[n])
				}
				lengths = append(lengths, n)
			})
			if len(lengths) != len(want) || !slices.IsSorted(lengths) {
				t.Fatalf("%q at %d: lengths %v, want %v", text, at, lengths, want)
			}
			if best < 0 && len(lengths) > 0 {
				best, bestLen = at, lengths[len(lengths)-1]
			}
		}
		if at, n, _ := tr.Find(text, 0); at != best || n != bestLen {
			t.Fatalf("%q: found %d+%d, want %d+%d", text, at, n, best, bestLen)
		}
	}
}
