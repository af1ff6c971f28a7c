package spec

import (
	"fmt"
	"strconv"
)

// UncutHeads is the reason why tp tensor-parallel ranks cannot share the heads of attention, with the nearest
// sizes that can; "": they can. A query group may be on several ranks, if each has the same number of heads.
func (m *Model) UncutHeads(tp int) string {
	heads, groups := m.NumAttentionHeads, max(1, m.NumQueryGroups)
	what := ""
	switch {
	case tp < 1:
		return ""
	case heads%tp != 0:
		what = fmt.Sprintf("the %d attention heads of the model", heads)
	case groups%tp != 0 && tp%groups != 0:
		what = fmt.Sprintf("the %d query groups of the model, or be a multiple of that number", groups)
	default:
		return ""
	}
	if heads%groups != 0 {
		groups = heads // an error of its own
	}
	return fmt.Sprintf("--tensor-model-parallel-size %d must divide %s; use --tensor-model-parallel-size %s", tp, what,
		Nearest(tp, heads, func(tp int) bool { return heads%tp == 0 && (groups%tp == 0 || tp%groups == 0) }))
}

// mostRanks is the end of the flags of parallel sizes, and of the search for one: the next divisor of a prime
// width is that width.
const mostRanks = 100_000

// Nearest are the numbers below and above near, from 1 to most, that fit, for a message.
func Nearest(near, most int, fits func(int) bool) string {
	most = min(most, mostRanks)
	below, above := min(near, most), near
	for below > 1 && !fits(below) {
		below--
	}
	for above < most && !fits(above) {
		above++
	}
	if above > most || !fits(above) || above == below {
		return strconv.Itoa(below)
	}
	return fmt.Sprintf("%d or %d", below, above)
}
