package spec

import "testing"

// Claim: neighbours of a parallel size are searched among the sizes that its flag takes, however
// wide what they must divide is.
func TestNearestSizesAreFew(t *testing.T) {
	const prime = 1<<31 - 1
	asked := 0
	if got := Nearest(2, prime, func(n int) bool { asked++; return prime%n == 0 }); got != "1" || asked > 110_000 {
		t.Errorf("%s after %d numbers", got, asked)
	}
}

// Claim: a size that heads or query groups cannot be divided by is refused with the nearest sizes that work.
func TestUncutHeads(t *testing.T) {
	const use = "; use --tensor-model-parallel-size "
	for _, c := range []struct {
		heads, groups, tp int
		want              string
	}{
		{4, 4, 2, ""}, {4, 2, 4, ""}, {4, 0, 4, ""},
		{4, 4, 3, "--tensor-model-parallel-size 3 must divide the 4 attention heads of the model" + use + "2 or 4"},
		{4, 2, 8, "--tensor-model-parallel-size 8 must divide the 4 attention heads of the model" + use + "4"},
		{12, 6, 4, "--tensor-model-parallel-size 4 must divide the 6 query groups of the model, or be a multiple of that number" + use + "3 or 6"},
	} {
		m := &Model{NumAttentionHeads: c.heads, NumQueryGroups: c.groups}
		if got := m.UncutHeads(c.tp); got != c.want {
			t.Errorf("%+v: %q, want %q", c, got, c.want)
		}
	}
}
