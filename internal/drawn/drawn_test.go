package drawn

import (
	"slices"
	"testing"
)

// Claim: without SHARE a list is complete; with it a part is in order, repeats with its seed, is another with
// another seed and in another test, and many seeds together take every member.
func TestPart(t *testing.T) {
	all := make([]int, 40)
	for i := range all {
		all[i] = i
	}
	t.Setenv("SHARE", "")
	if got := Part(t, all, 3); len(got) != 40 {
		t.Errorf("%d members without SHARE", len(got))
	}
	t.Setenv("SHARE", "8")
	seen, sets := map[int]bool{}, map[string]bool{}
	for seed := range 60 {
		t.Setenv("SEED", string(rune('0'+seed%10))+string(rune('0'+seed/10)))
		part := Part(t, all, 3)
		if len(part) != 5 || !slices.IsSorted(part) || !slices.Equal(part, Part(t, all, 3)) {
			t.Fatalf("seed %d: %v", seed, part)
		}
		for _, x := range part {
			seen[x] = true
		}
		sets[string(rune(part[0]))+string(rune(part[1]))+string(rune(part[2]))] = true
	}
	if len(seen) != 40 || len(sets) < 40 {
		t.Errorf("%d members and %d sets in 60 seeds", len(seen), len(sets))
	}
	var other []int
	t.Run("other", func(t *testing.T) { other = Part(t, all, 3) })
	if slices.Equal(other, Part(t, all, 3)) {
		t.Error("two tests draw alike")
	}
	if got := Part(t, all[:6], 4); len(got) != 4 {
		t.Errorf("%d members, at least 4 asked for", len(got))
	}
}
