package spec

import "testing"

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
