package health

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"monotron/mpu/comm"
	"monotron/mpu/comm/failure"
)

// accuse finds who of the ranks that differ is alone with what it called.
func accuse(v *failure.Verdict, ranks []view) {
	calls := map[int][]Call{}
	for rank := range ranks {
		if r := ranks[rank].report; r != nil {
			calls[rank] = r.Calls
		}
	}
	v.Rank = -1 // who noticed is not who is wrong
	if rank, why := blame(v.Differing, calls); rank >= 0 {
		v.Rank = rank
		v.Text += "; " + why
	}
}

// origin is the failure of the rank that has one of its own, where v is another's; v
// where none has reported it.
func origin(v *failure.Verdict, ranks []view) *failure.Verdict {
	for rank := range ranks {
		if r := ranks[rank].report; r != nil && r.Failure != nil && r.Failure.By(rank) {
			own := *r.Failure
			return &own
		}
	}
	return v
}

// said is what ranks have called as one collective of a group: by rank, what and where.
type said map[int]string

// blame finds, where ranks have called different things, the rank that first left
// what the others do: -1 where the records do not tell. calls are each rank's last.
func blame(d *failure.Differing, calls map[int][]Call) (rank int, why string) {
	if d == nil {
		return -1, ""
	}
	group := groupOf(calls[d.Ranks[0]], d.Group, d.Seq)
	for _, sign := range []signer{(*Call).What, sited} { // the root of a call may make it at another line
		if rank, why = firstApart(calls, d.Group, group, d.Seq, sign); rank >= 0 {
			return rank, why
		}
	}
	return -1, ""
}

// signer is how calls are distinguished.
type signer func(*Call) string

func sited(c *Call) string {
	if c.Outer == "" || c.Root >= 0 {
		return c.What()
	}
	return c.What() + " at " + c.Outer
}

// firstApart finds the first collective of a group on which its ranks differ, and who
// is alone there.
func firstApart(calls map[int][]Call, name, group string, end int64, sign signer) (rank int, why string) {
	// What each rank called, by number.
	seqs := map[int64]said{}
	for rank, list := range calls {
		for i := range list {
			if c := &list[i]; c.Group == group && c.Seq <= end && c.Op != comm.Exchange {
				if seqs[c.Seq] == nil {
					seqs[c.Seq] = said{}
				}
				seqs[c.Seq][rank] = sign(c)
			}
		}
	}
	// The first number on which ranks differ. The odd side is the one with fewer ranks; where both
	// are equal, the one that differs in other groups too, then the one that differs from its past.
	for _, seq := range slices.Sorted(maps.Keys(seqs)) {
		one, other := parties(seqs[seq])
		if one == "" {
			continue
		}
		odd, usual := lesser(one, other, func(s string) int { return seqs[seq].count(s) })
		if odd == "" {
			odd, usual = lesser(one, other, func(s string) int { return otherGroups(calls, name, group, seq, s, sign) })
		}
		if odd == "" {
			odd, usual = lesser(one, other, func(s string) int { return habit(calls, name, group, seq, s, sign) })
		}
		if odd == "" {
			return -1, ""
		}
		rank := seqs[seq].first(odd)
		return rank, fmt.Sprintf("rank %d differs: its call #%d is %s, but that of the other ranks is %s", rank, seq, odd, usual)
	}
	return -1, ""
}

// groupOf is the group of a name in which a rank made a call.
func groupOf(calls []Call, name string, seq int64) string {
	for _, c := range slices.Backward(calls) {
		if kind, _, _ := strings.Cut(c.Group, " "); kind == name && c.Seq == seq && c.Op != comm.Exchange {
			return c.Group
		}
	}
	return ""
}

// parties are two things that ranks say; "" where they agree.
func parties(s said) (one, other string) {
	for _, text := range s {
		switch {
		case one == "":
			one = text
		case text != one:
			return min(one, text), max(one, text)
		}
	}
	return "", ""
}

func (s said) count(text string) (n int) {
	for _, t := range s {
		if t == text {
			n++
		}
	}
	return n
}

func (s said) first(text string) int {
	best := -1
	for rank, t := range s {
		if t == text && (best < 0 || rank < best) {
			best = rank
		}
	}
	return best
}

// lesser orders two things by how often they are said; "" where that is alike.
func lesser(a, b string, count func(string) int) (odd, usual string) {
	switch x, y := count(a), count(b); {
	case x < y:
		return a, b
	case y < x:
		return b, a
	}
	return "", ""
}

// otherGroups counts calls of text with that number in other groups of the name.
func otherGroups(calls map[int][]Call, name, group string, seq int64, text string, sign signer) (n int) {
	for _, list := range calls {
		for i := range list {
			c := &list[i]
			if kind, _, _ := strings.Cut(c.Group, " "); kind == name && c.Group != group && c.Seq == seq && sign(c) == text {
				n++
			}
		}
	}
	return n
}

// habit counts how often text followed, in groups of the name, what came before it at
// that number.
func habit(calls map[int][]Call, name, group string, seq int64, text string, sign signer) (n int) {
	before := ""
	for _, list := range calls {
		for i := range list {
			if c := &list[i]; c.Group == group && c.Seq == seq-1 && c.Op != comm.Exchange {
				before = sign(c)
			}
		}
	}
	for _, list := range calls {
		last := map[string]string{}
		for i := range list {
			c := &list[i]
			kind, _, _ := strings.Cut(c.Group, " ")
			if kind != name || c.Op == comm.Exchange {
				continue
			}
			if last[c.Group] == before && sign(c) == text && !(c.Group == group && c.Seq == seq) {
				n++
			}
			last[c.Group] = sign(c)
		}
	}
	return n
}
