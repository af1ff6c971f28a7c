package model

import (
	"slices"
	"testing"
)

// Claim: an expert that got as many tokens as the mean stays where it is, for every number of
// experts. Source: Megatron's get_updated_expert_bias, which divides the sum.
func TestCountsThatAreTheMeanDoNotMove(t *testing.T) {
	for _, experts := range []int{4, 6, 10, 48, 60, 160} {
		for n := range 300 {
			counts := slices.Repeat([]float64{float64(n)}, experts)
			if signs := towardsMean(counts); slices.Max(signs) != 0 || slices.Min(signs) != 0 {
				t.Fatalf("%d experts of %d tokens each: %v", experts, n, signs)
			}
			counts[0], counts[1] = counts[0]+2, counts[1]-2
			if signs := towardsMean(counts); signs[0] != -1 || signs[1] != 1 || slices.Max(signs[2:]) != 0 || slices.Min(signs[2:]) != 0 {
				t.Fatalf("%d experts of %d tokens but two: %v", experts, n, signs)
			}
		}
	}
}
