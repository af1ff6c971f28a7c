package watch

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// How package comm says that ranks have called different things.
var (
	differing = regexp.MustCompile(`do not call the same: #(\d+) is (.*) on rank (\d+), but (.*) on rank (\d+)`)
	inGroup   = regexp.MustCompile(`the ranks of group (\S+) \[`)
)

// accuse finds who of the ranks that differ is alone with what it called.
func (w *Watcher) accuse(v *Verdict) {
	calls := map[int][]Call{}
	for rank := range w.ranks {
		if r := w.ranks[rank].report; r != nil {
			calls[rank] = r.Calls
		}
	}
	v.Rank = -1
	v.Text = itself.ReplaceAllString(v.Text, "") // who noticed is not who is wrong
	rank, why := blame(v.Text, calls)
	if rank < 0 {
		return
	}
	v.Rank = rank
	v.Text += "; " + why
}

// blame finds, where ranks have called different things, who differs from most of
// those that are at the same call of a group of that name: -1 where that does not
// tell. calls are the last ones of each rank.
func blame(text string, calls map[int][]Call) (rank int, why string) {
	m, g := differing.FindStringSubmatch(text), inGroup.FindStringSubmatch(text)
	if m == nil || g == nil {
		return -1, ""
	}
	seq, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil {
		return -1, ""
	}
	votes, says, sites := map[string]int{}, map[int]string{}, map[int]string{}
	for rank, list := range calls {
		for _, c := range slices.Backward(list) {
			if name, _, _ := strings.Cut(c.Group, " "); name == g[1] && c.Seq == seq && c.Op != opExchange {
				votes[c.What()]++
				says[rank], sites[rank] = c.What(), c.Outer
				break
			}
		}
	}
	ends := [2]int{}
	for i, at := range []int{3, 5} {
		ends[i], _ = strconv.Atoi(m[at]) // digits
		if says[ends[i]] == "" {
			says[ends[i]] = m[at-1]
			votes[m[at-1]]++
		}
	}
	a, b := ends[0], ends[1]
	if votes[says[a]] > votes[says[b]] {
		a, b = b, a
	}
	if votes[says[a]] == votes[says[b]] {
		return -1, ""
	}
	why = fmt.Sprintf("rank %d differs: most ranks call %s there", a, says[b])
	if sites[a] != "" {
		why += fmt.Sprintf("; its call is at %s", sites[a])
	}
	return a, why
}
