package spec

import (
	"testing"

	"monotron/mpu/topology"
)

// Claim: groups hold a token's choice where Megatron's group_limited_topk finds topk/group_topk
// experts in each.
func TestChoosable(t *testing.T) {
	for e, want := range map[[4]int]bool{ // experts, choice, groups, of them a token
		{4, 2, 0, 0}: true, {4, 5, 0, 0}: false, {4, 0, 0, 0}: false, {8, 4, 4, 2}: true, {8, 2, 4, 2}: true,
		{2, 2, 2, 1}: false, {4, 2, 4, 1}: false, {4, 2, 2, 1}: true, {8, 3, 4, 2}: false, {6, 2, 4, 2}: false, {8, 4, 2, 4}: false,
		{8, 2, 0, 1}: false, {8, 2, 4, 0}: false, {8, 2, -4, 2}: false, {8, 2, 4, -2}: false,
	} {
		x := Experts{Num: e[0], TopK: e[1], NumGroups: e[2], GroupTopK: e[3]}
		if got := x.Choosable(); got != want {
			t.Errorf("%v: %v", e, got)
		}
	}
}

// Claim: an even choice is never counted as more than all choices that a capacity leaves.
func TestSlotsUnderCapacity(t *testing.T) {
	one := topology.Sizes{TP: 1, PP: 1, CP: 1, DP: 1, EP: 1, ETP: 1}
	for factor, want := range map[float64][2]int64{0: {14, 14}, 0.01: {6, 6}, 1: {14, 14}, 100: {14, 14}} {
		m := Model{Experts: &Experts{Num: 6, TopK: 2, CapacityFactor: factor}}
		if even, most := m.Slots(7, one); [2]int64{even, most} != want {
			t.Errorf("capacity factor %g: even %d, most %d, want %v", factor, even, most, want)
		}
	}
}
