package launch

import (
	"slices"
	"testing"
)

// Claim: hosts keep the node ranks of the latest start, spares and hosts that came back take the
// free ones in order, and where hosts are fewer every node rank is somebody's.
func TestAssign(t *testing.T) {
	at := func(number, slot, start int) arrival { return arrival{number, claim{slot: slot, start: start}} }
	none := func(number int) arrival { return at(number, -1, 0) }
	for name, c := range map[string]struct {
		here  []arrival
		hosts int
		want  []int
	}{
		"first start":                        {[]arrival{none(0), none(1), none(2), none(3)}, 3, []int{0, 1, 2}},
		"a spare for host 1":                 {[]arrival{at(0, 0, 1), at(2, 2, 1), none(3)}, 3, []int{0, 3, 2}},
		"a spare for host 0":                 {[]arrival{at(1, 1, 1), at(2, 2, 1), none(3)}, 3, []int{3, 1, 2}},
		"the first of two spares":            {[]arrival{at(0, 0, 4), at(2, 2, 4), none(3), none(4)}, 3, []int{0, 3, 2}},
		"host 1 is back, its place is taken": {[]arrival{at(0, 0, 2), none(1), at(2, 2, 2), at(3, 1, 2)}, 3, []int{0, 3, 2}},
		"it missed a start":                  {[]arrival{at(0, 0, 3), at(1, 1, 2), at(2, 2, 3), at(3, 1, 3)}, 3, []int{0, 3, 2}},
		"fewer hosts":                        {[]arrival{at(0, 0, 1), at(2, 2, 1)}, 2, []int{0, 2}},
		"fewer, the first is gone":           {[]arrival{at(1, 1, 1), at(2, 2, 1)}, 2, []int{2, 1}},
		"fewer than there are":               {[]arrival{at(0, 0, 1), at(1, 1, 1), at(2, 2, 1)}, 2, []int{0, 1}},
		"the same claim twice":               {[]arrival{at(0, 0, 1), at(1, 0, 1)}, 2, []int{0, 1}},
	} {
		if got := assign(c.here, c.hosts); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// Claim: a claim is read as it was written; other text claims nothing.
func TestClaim(t *testing.T) {
	for _, c := range []claim{{slot: -1}, {3, 7, true, false}, {0, 1, false, false}, {-1, 0, false, true}} {
		if got := readClaim(c.String()); got != c {
			t.Errorf("%+v is read as %+v", c, got)
		}
	}
	for _, text := range []string{"", "1", "1 2", "x y z", "1 2 maybe false", "1 2 true"} {
		if got := readClaim(text); got != (claim{slot: -1}) {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
}
